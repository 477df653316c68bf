//! What a sample costs the host with each run-up, on the first GPU, natively:
//!
//! ```sh
//! cargo run --release -p regatta-probe --example host_cost
//! ```

use regatta_probe::host_cost::{Metered, Step, host_cost};
use regatta_probe::{Cache, Clock, Cuda, Result, Settings};

/// Run-up, and whether it is queued ahead.
const SETTINGS: [(u32, bool); 8] = [
    (0, false),
    (1, false),
    (2, false),
    (4, false),
    (8, false),
    (1, true),
    (8, true),
    (12, true),
];

fn main() {
    if let Err(error) = measured() {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

fn measured() -> Result<()> {
    // SAFETY: the null stream is always there.
    let device = unsafe { Cuda::open(0, std::ptr::null_mut())? };
    println!(
        "the device's timer goes in steps of {} ns",
        device.timer_step_ns()?
    );
    let mut clock = Clock::new(Metered::new(device), Settings::default())?;
    println!("microseconds a sample: beside is all but flush and waiting");
    print!("run-up ahead  beside   total");
    for step in Step::ALL {
        print!(" {:>11}", step.name());
    }
    println!();
    for (run_up, ahead) in SETTINGS {
        clock.configure(Settings {
            run_up,
            ahead,
            ..Settings::default()
        })?;
        host_cost(&mut clock, Cache::Cold, 50)?;
        let found = host_cost(&mut clock, Cache::Cold, 300)?;
        print!(
            "{run_up:>6} {ahead:>5} {:>7.2} {:>7.2}",
            found.beside_ns / 1e3,
            found.total_ns / 1e3
        );
        for ns in found.steps_ns {
            print!(" {:>11.2}", ns / 1e3);
        }
        println!();
    }
    Ok(())
}
