//! What a sample costs the host with each run-up and stagger, on the first GPU, natively:
//!
//! ```sh
//! cargo run --release -p regatta-probe --example host_cost
//! ```

use regatta_probe::host_cost::{Metered, Step, host_cost};
use regatta_probe::{Cache, Clock, Cuda, Result, Settings};

/// Run-up and stagger.
const SETTINGS: [(u32, u32); 8] = [
    (0, 0),
    (1, 0),
    (2, 0),
    (4, 0),
    (8, 0),
    (1, 3),
    (1, 7),
    (2, 3),
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
    println!("microseconds a sample: beside is all but flush and synchronise");
    print!("run-up stagger  beside   total");
    for step in Step::ALL {
        print!(" {:>11}", step.name());
    }
    println!();
    for (run_up, stagger) in SETTINGS {
        clock.configure(Settings {
            run_up,
            stagger,
            ..Settings::default()
        })?;
        host_cost(&mut clock, Cache::Cold, 50)?;
        let found = host_cost(&mut clock, Cache::Cold, 300)?;
        print!(
            "{run_up:>6} {stagger:>7} {:>7.2} {:>7.2}",
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
