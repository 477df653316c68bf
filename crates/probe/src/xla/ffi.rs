//! The parts of XLA's foreign function interface that the marker needs.
//!
//! Reference: `xla/ffi/api/c_api.h` of OpenXLA, which is part of jaxlib (`jax.ffi.include_dir()`).
//! Every struct is declared up to the last field that is used here. Within a major version, XLA
//! only appends fields to structs, and each struct begins with its size; `field` reads nothing
//! beyond that size.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::offset_of;
use std::ptr;

/// The version of the interface that this file is written for: the first one with the metadata
/// query, and the oldest that XLA accepts.
pub const VERSION: (c_int, c_int) = (0, 1);

/// `XLA_FFI_Extension_Metadata`.
pub const METADATA: c_int = 1;

/// `XLA_FFI_ExecutionStage_EXECUTE`.
pub const EXECUTE: c_int = 3;

/// `XLA_FFI_Error`, which only XLA creates and reads.
pub type ErrorHandle = *mut c_void;

/// `XLA_FFI_Extension_Base`: the head of a list of extensions of a call.
#[repr(C)]
pub struct Extension {
    pub struct_size: usize,
    pub kind: c_int,
    pub next: *mut Extension,
}

/// `XLA_FFI_Api_Version`.
#[repr(C)]
pub struct ApiVersion {
    pub struct_size: usize,
    pub extension_start: *mut Extension,
    pub major: c_int,
    pub minor: c_int,
}

/// `XLA_FFI_Metadata`: describes the interface for which a handler was built.
#[repr(C)]
pub struct Metadata {
    pub struct_size: usize,
    pub api_version: ApiVersion,
    /// `XLA_FFI_Handler_TraitsBits`.
    pub traits: u32,
}

/// `XLA_FFI_Metadata_Extension`: a call with it only asks for [`Metadata`].
#[repr(C)]
pub struct MetadataExtension {
    pub base: Extension,
    pub metadata: *mut Metadata,
}

/// `XLA_FFI_Stream_Get_Args`.
#[repr(C)]
pub struct StreamGet {
    pub struct_size: usize,
    pub extension_start: *mut Extension,
    pub context: *mut c_void,
    pub stream: *mut c_void,
}

/// `XLA_FFI_Error_GetMessage_Args`.
#[repr(C)]
pub struct ErrorMessage {
    pub struct_size: usize,
    pub extension_start: *mut Extension,
    pub error: ErrorHandle,
    pub message: *const c_char,
}

/// `XLA_FFI_Error_Destroy_Args`.
#[repr(C)]
pub struct ErrorDestroy {
    pub struct_size: usize,
    pub extension_start: *mut Extension,
    pub error: ErrorHandle,
}

/// `XLA_FFI_Api`: the functions that a handler may call.
#[repr(C)]
pub struct XlaApi {
    pub struct_size: usize,
    pub extension_start: *mut Extension,
    pub api_version: ApiVersion,
    pub internal_api: *const c_void,
    pub error_create: *const c_void,
    pub error_get_message: Option<unsafe extern "C" fn(*mut ErrorMessage)>,
    pub error_destroy: Option<unsafe extern "C" fn(*mut ErrorDestroy)>,
    pub handler_register: *const c_void,
    pub stream_get: Option<unsafe extern "C" fn(*mut StreamGet) -> ErrorHandle>,
}

/// `XLA_FFI_CallFrame`, without arguments, results and attributes.
#[repr(C)]
pub struct CallFrame {
    pub struct_size: usize,
    pub extension_start: *mut Extension,
    pub api: *const XlaApi,
    pub context: *mut c_void,
    pub stage: c_int,
}

/// A field of a struct from XLA, if the struct's size includes it.
macro_rules! field {
    ($pointer:expr, $type:ty, $field:ident) => {{
        let pointer: *const $type = $pointer;
        let end = offset_of!($type, $field) + field_size(|it: &$type| &it.$field);
        (!pointer.is_null() && (*pointer).struct_size >= end)
            .then(|| ptr::read(&raw const (*pointer).$field))
    }};
}

const fn field_size<T, F>(_: fn(&T) -> &F) -> usize {
    size_of::<F>()
}

/// Answers a metadata query. Returns false if the call is not one.
///
/// It claims no traits. In particular, the handler is not compatible with command buffers: XLA must
/// never record it into a CUDA graph, where it would run only once.
///
/// # Safety
/// `frame` is null, or comes from XLA's call of a handler.
pub unsafe fn answer_metadata(frame: *const CallFrame) -> bool {
    // SAFETY: required of the caller. `field!` checks each pointer for null and for the struct's
    // size.
    unsafe {
        let Some(extension) = field!(frame, CallFrame, extension_start) else {
            return false;
        };
        if field!(extension, Extension, kind) != Some(METADATA) {
            return false;
        }
        let extension = extension.cast::<MetadataExtension>();
        let whole = (*extension).base.struct_size >= size_of::<MetadataExtension>();
        if whole
            && let metadata = (*extension).metadata
            && field!(metadata, Metadata, traits).is_some()
        {
            (*metadata).api_version.major = VERSION.0;
            (*metadata).api_version.minor = VERSION.1;
            (*metadata).traits = 0;
        }
    }
    true
}

/// The stream on which XLA queues this computation's work, as an address (`CUstream`).
///
/// # Errors
/// XLA's message (a processor has no stream), or the missing part of the call.
///
/// # Safety
/// As [`answer_metadata`].
pub unsafe fn stream(frame: *const CallFrame) -> Result<usize, String> {
    // SAFETY: as in `answer_metadata`. The arguments of each call are live variables.
    unsafe {
        if field!(frame, CallFrame, stage) != Some(EXECUTE) {
            return Err("XLA called the marker at another stage than execution".to_owned());
        }
        let api = (*frame).api;
        let version = field!(api, XlaApi, api_version)
            .map(|version| (version.major, version.minor))
            .filter(|version| version.0 == VERSION.0);
        let (Some(_), Some(Some(stream_get))) = (version, field!(api, XlaApi, stream_get)) else {
            return Err(format!(
                "XLA's foreign function interface is not of version {}",
                VERSION.0
            ));
        };
        let mut asked = StreamGet {
            struct_size: size_of::<StreamGet>(),
            extension_start: ptr::null_mut(),
            context: (*frame).context,
            stream: ptr::null_mut(),
        };
        let error = stream_get(&raw mut asked);
        if error.is_null() {
            Ok(asked.stream.expose_provenance())
        } else {
            Err(take_message(&*api, error))
        }
    }
}

/// The message of an error, which is then freed.
///
/// # Safety
/// `error` comes from a function of `api` and is not used again.
unsafe fn take_message(api: &XlaApi, error: ErrorHandle) -> String {
    let mut asked = ErrorMessage {
        struct_size: size_of::<ErrorMessage>(),
        extension_start: ptr::null_mut(),
        error,
        message: ptr::null(),
    };
    let mut freed = ErrorDestroy {
        struct_size: size_of::<ErrorDestroy>(),
        extension_start: ptr::null_mut(),
        error,
    };
    // SAFETY: required of the caller. The message lives as long as the error, and is copied before
    // the error is freed.
    unsafe {
        if let Some(get_message) = api.error_get_message {
            get_message(&raw mut asked);
        }
        let words = if asked.message.is_null() {
            "XLA gives no stream, and no reason".to_owned()
        } else {
            CStr::from_ptr(asked.message).to_string_lossy().into_owned()
        };
        if let Some(destroy) = api.error_destroy {
            destroy(&raw mut freed);
        }
        words
    }
}
