//! How the device was, in the protocol's words.

use regatta_worker::protocol::{DeviceState, throttle_words};

/// The clock's words for what a device was doing, as the protocol has them.
pub fn state_of(state: regatta_probe::State) -> DeviceState {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clocks_state_is_the_protocols() {
        let state = state_of(regatta_probe::State {
            throttle_reasons: Some(0x1 | 0x4),
            power_mw: Some(690_500),
            ..regatta_probe::State::default()
        });
        assert_eq!((state.power_w, state.sm_mhz), (Some(690.5), None));
        assert_eq!(state.throttle_reasons, ["idle", "software power cap"]);
    }
}
