//! What the C interface answers to misuse, with or without a GPU.

use super::*;
use crate::error::BAD_ARGUMENT;
use std::ptr::null_mut;

#[test]
fn null_pointers_are_answered() {
    let none = null_mut::<Probe>();
    let (figure, count) = (null_mut::<f64>(), null_mut::<u32>());
    // SAFETY: null is allowed everywhere here.
    unsafe {
        for status in [
            regatta_probe_open(0, null_mut(), null_mut()),
            regatta_probe_configure(none, 1, 1, 8, 1, 50.0),
            regatta_probe_calibrate(none, figure, figure, figure),
            regatta_probe_sample_begin(none, 1),
            regatta_probe_sample_end(none, figure, figure, figure, count),
            regatta_probe_sample_cancel(none),
            regatta_probe_null_kernel(none),
            regatta_probe_state(none, null_mut()),
        ] {
            assert_eq!(status, BAD_ARGUMENT);
        }
        regatta_probe_close(none);
    }
}
