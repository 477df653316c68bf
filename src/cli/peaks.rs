//! What `--set peak=true` found, said on standard error when it is known.

use std::collections::BTreeMap;

use super::note;
use regatta_worker::protocol::Peak;
use regatta_worker::units::Digits;

/// Says what each worker's device reaches.
pub(super) fn say(peaks: &BTreeMap<String, Peak>) {
    for (worker, peak) in peaks {
        note(told(worker, peak));
    }
}

/// A line of 80 columns; how it was measured is on the page.
fn told(worker: &str, peak: &Peak) -> String {
    let products = peak.tflops.iter();
    let products: Vec<String> = products
        .map(|(dtype, rate)| format!("{dtype} {rate}"))
        .collect();
    let products =
        (!products.is_empty()).then(|| format!("products {}FLOP/s", products.join(", ")));
    let copies = peak
        .gbps
        .map(|rate| format!("copies {} GB/s", Digits(rate)));
    let figures: Vec<String> = products.into_iter().chain(copies).collect();
    format!("{worker}: {}", figures.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use regatta_worker::attention::Dtype;
    use regatta_worker::units::Rate;

    #[test]
    fn figures_are_told_with_their_units() {
        let peak = Peak {
            tflops: BTreeMap::from([(Dtype::F32, Rate(0.1466)), (Dtype::Bf16, Rate(792.3))]),
            gbps: Some(4250.7),
            how: "a product".to_owned(),
        };
        assert_eq!(
            told("torch", &peak),
            "torch: products f32 146.6 G, bf16 792.3 TFLOP/s; copies 4251 GB/s"
        );
    }
}
