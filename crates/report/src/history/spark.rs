//! A series in a line of blocks.

use regatta_core::record::side::median;
use regatta_judge::history::Series;
use regatta_worker::units::{Nanoseconds, Share};

const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Ranges smaller than this part of the middle do not fill the height: noise is no mountain.
const LEAST: Share = Share(0.04);

/// The times of a history of so many runs in so many columns or fewer, runs that share a
/// column by their median; a gap where none of them has a time.
pub(super) fn spark(series: &Series, runs: usize, columns: usize) -> String {
    let columns = columns.min(runs);
    let mut of: Vec<Vec<Nanoseconds>> = vec![Vec::new(); columns];
    for (run, time) in series.runs.iter().zip(&series.times) {
        if let Some(column) = of.get_mut(*run as usize * columns / runs.max(1)) {
            column.push(*time);
        }
    }
    let levels: Vec<Option<f64>> = of.iter().map(|times| Some(median(times)?.0.ln())).collect();
    let found = || levels.iter().flatten().copied();
    let (low, high) = (
        found().fold(f64::INFINITY, f64::min),
        found().fold(f64::NEG_INFINITY, f64::max),
    );
    let spread = LEAST.0.max(high - low);
    let floor = (low + high - spread) / 2.0;
    let block = |level: &Option<f64>| match level {
        Some(level) => {
            let height = (level - floor) / spread * (BLOCKS.len() - 1) as f64;
            BLOCKS[(height.round().max(0.0) as usize).min(BLOCKS.len() - 1)]
        }
        None => ' ',
    };
    levels.iter().map(block).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use regatta_worker::units::quantities;

    fn series(times: &[f64]) -> Series {
        Series {
            runs: (0..times.len() as u32).collect(),
            times: quantities(times.iter().copied()),
        }
    }

    #[test]
    fn a_step_is_seen_and_noise_is_flat() {
        let step = series(&[1.0, 1.0, 1.0, 2.0, 2.0, 2.0]);
        assert_eq!(spark(&step, 6, 6), "▁▁▁███");
        assert_eq!(spark(&step, 6, 2), "▁█");
        let noise = series(&[1.0, 1.004, 1.0, 0.998]);
        assert!(spark(&noise, 4, 8).chars().all(|c| "▄▅▆".contains(c)));
        let mut gap = series(&[1.0, 1.0, 3.0]);
        gap.runs = vec![0, 1, 3];
        assert_eq!(spark(&gap, 4, 4), "▁▁ █");
        assert_eq!(spark(&Series::default(), 4, 4), "    ");
        assert_eq!(spark(&Series::default(), 0, 4), "");
    }
}
