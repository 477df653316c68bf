//! How the device was, in the protocol's words.

use regatta_worker::protocol::{DeviceState, throttle_words};

/// The clock's words for what a device was doing, as the protocol has them.
pub fn state_of(state: regatta_probe::NvmlState) -> DeviceState {
    DeviceState {
        sm_mhz: state.sm_mhz.map(f64::from),
        memory_mhz: state.memory_mhz.map(f64::from),
        throttle_bits: state.throttle_reasons,
        throttle_reasons: state
            .throttle_reasons
            .map(throttle_words)
            .unwrap_or_default(),
        power_w: state.power_mw.map(|milliwatts| f64::from(milliwatts) / 1e3),
        temperature_c: state.temperature_c.map(f64::from),
        other_processes: state.other_processes,
    }
}
