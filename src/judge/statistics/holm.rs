//! Holm's correction for several tests at once.

/// Each p as it must be read when all of them are tested together: the chance of
/// even one false alarm stays below `alpha` when those at most `alpha` are called
/// (Holm, Scandinavian Journal of Statistics 6, 1979).
pub fn holm_adjusted(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&a, &b| p[a].total_cmp(&p[b]));
    let mut adjusted = vec![1.0; p.len()];
    let mut largest: f64 = 0.0;
    for (place, &index) in order.iter().enumerate() {
        let raised = p[index] * (p.len() - place) as f64;
        // A NaN sorts last and stays 1: never called.
        largest = largest.max(if raised.is_nan() { 1.0 } else { raised });
        adjusted[index] = largest.min(1.0);
    }
    adjusted
}
