//! Kernel names as people write them.

use crate::library::Library;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;

unsafe extern "C" {
    fn free(memory: *mut c_void);
}

type Demangle =
    unsafe extern "C" fn(*const c_char, *mut c_char, *mut usize, *mut c_int) -> *mut c_char;

/// The name, demangled by the C++ library of the process or of the machine; as it is where
/// there is none, or where it is no mangled name.
pub fn demangled(name: &CStr) -> String {
    let plain = || name.to_string_lossy().into_owned();
    let Some(demangle) = demangler().filter(|_| name.to_bytes().starts_with(b"_Z")) else {
        return plain();
    };
    let mut status = 0;
    // SAFETY: the signature is the C++ ABI's; given no memory, it allocates the result,
    // which is copied and freed.
    unsafe {
        let text = demangle(
            name.as_ptr(),
            ptr::null_mut(),
            ptr::null_mut(),
            &raw mut status,
        );
        if text.is_null() {
            return plain();
        }
        let copied = CString::from(CStr::from_ptr(text));
        free(text.cast());
        copied.to_string_lossy().into_owned()
    }
}

fn demangler() -> Option<Demangle> {
    static DEMANGLE: OnceLock<Option<Demangle>> = OnceLock::new();
    *DEMANGLE.get_or_init(|| {
        let found = [
            Library::open(c"libstdc++.so.6"),
            Library::open(c"libc++abi.so.1"),
        ];
        let mut found = found.into_iter().flatten();
        let address = found.find_map(|library| library.symbol(&[c"__cxa_demangle"]).ok())?;
        // SAFETY: the Itanium C++ ABI gives the symbol this signature.
        Some(unsafe { std::mem::transmute::<*mut c_void, Demangle>(address) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mangled_names_are_read_where_there_is_a_c_plus_plus_library() {
        let expected = match demangler() {
            Some(_) => "void flash::fwd<64, true>(float*)",
            None => "_ZN5flash3fwdILi64ELb1EEEvPf",
        };
        assert_eq!(demangled(c"_ZN5flash3fwdILi64ELb1EEEvPf"), expected);
    }
}
