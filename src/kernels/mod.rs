//! Our CUDA kernels as sources: what is there, how each entry point is launched, and
//! how a file becomes code for a device.

pub mod contract;
