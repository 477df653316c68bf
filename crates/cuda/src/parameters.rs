//! What an entry point takes, as the driver tells it, held beside what a contract lists.
//!
//! A launch is handed addresses alone, and reads as many and as much as the kernel has
//! parameters: one that is missing is read from beyond the list, and half of a `long` from
//! beyond an `int`.

use cudarc::driver::sys::{self, CUresult};

use super::error::CudaError;
use super::plan::Given;

/// More parameters than any kernel has: CUDA C++ has 32764 bytes of them.
const MOST: usize = 32_764;

/// Sizes of a kernel's parameters in bytes, in their order; `None` where the driver does not
/// tell: `cuFuncGetParamInfo` came with CUDA 12.4.
///
/// # Safety
/// The function is loaded.
pub unsafe fn sizes(function: sys::CUfunction) -> Option<Vec<usize>> {
    // SAFETY: asked for by name alone, and not called by this type.
    let known = unsafe { sys::culib().get::<unsafe extern "C" fn()>(b"cuFuncGetParamInfo") };
    known.ok()?;
    let mut found = Vec::new();
    while found.len() < MOST {
        let (mut offset, mut size) = (0, 0);
        // SAFETY: the function is loaded, and both places outlive the call.
        let told = unsafe {
            sys::cuFuncGetParamInfo(function, found.len(), &raw mut offset, &raw mut size)
        };
        match told {
            CUresult::CUDA_SUCCESS => found.push(size),
            // There is no parameter of this number. Without a first one nothing is read.
            CUresult::CUDA_ERROR_INVALID_VALUE if !found.is_empty() => return Some(found),
            _ => return None,
        }
    }
    None
}

/// Holds what a contract lists to the sizes of what the kernel takes.
///
/// # Errors
/// How many there are of each, or the first that has another size.
pub fn check(entry: &str, listed: &[(Given, usize)], taken: &[usize]) -> Result<(), CudaError> {
    if listed.len() != taken.len() {
        return Err(CudaError::Build(format!(
            "{entry} takes {} arguments, and `arguments` of its contract lists {}",
            taken.len(),
            listed.len()
        )));
    }
    let mut each = listed.iter().zip(taken).enumerate();
    match each.find(|(_, ((given, size), taken))| !fits(*given, *size, **taken)) {
        None => Ok(()),
        Some((at, ((given, size), taken))) => Err(CudaError::Build(format!(
            "{entry} takes {taken} bytes as argument {}, and {} of its contract has {size}; write \
             the type that the kernel has: `int`, `unsigned`, `long`, `float` or `double`",
            at + 1,
            word(*given)
        ))),
    }
}

/// A `bool` or a `short` is read from the low bytes of an `int`.
fn fits(given: Given, size: usize, taken: usize) -> bool {
    let whole = matches!(given, Given::Int(_) | Given::Unsigned(_));
    size == taken || (whole && taken < size)
}

fn word(given: Given) -> &'static str {
    match given {
        Given::Problem => "the `problem`",
        Given::Pointer(_) => "the tensor",
        Given::Int(_) => "the `int`",
        Given::Unsigned(_) => "the `unsigned`",
        Given::Long(_) => "the `long`",
        Given::Float(_) => "the `float`",
        Given::Double(_) => "the `double`",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Pointer;

    fn told(taken: &[usize]) -> Result<(), String> {
        let listed = [
            (Given::Pointer(Pointer::Q), 8),
            (Given::Int(1), 4),
            (Given::Float(0.5), 4),
        ];
        check("mine", &listed, taken).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_listed_is_what_is_taken() {
        assert_eq!(told(&[8, 4, 4]), Ok(()));
        // A bool, and a short.
        assert_eq!(told(&[8, 1, 4]), Ok(()));
        assert_eq!(told(&[8, 2, 4]), Ok(()));
        for (taken, words) in [
            (
                &[8, 4][..],
                "mine takes 2 arguments, and `arguments` of its contract lists 3",
            ),
            (
                &[8, 8, 4],
                "8 bytes as argument 2, and the `int` of its contract has 4",
            ),
            (
                &[4, 4, 4],
                "4 bytes as argument 1, and the tensor of its contract has 8",
            ),
        ] {
            let error = told(taken).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }
}
