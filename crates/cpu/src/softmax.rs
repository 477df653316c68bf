//! The elementwise half of attention: row maxima, exponentials, softmax gradients.
//!
//! Bodies are plain loops over sixteen lanes, which the compiler vectorises. Each is compiled three
//! times: for AVX-512, for AVX2 with FMA, and for the target's baseline. The best one that the
//! machine supports is chosen at run time.

use std::fmt;

/// The instruction set that the kernels use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isa {
    /// 512-bit vectors.
    Avx512,
    /// 256-bit vectors with fused multiply-add.
    Avx2,
    /// The instructions of the compiler's target.
    Portable,
}

impl Isa {
    /// The best instruction set that this machine supports.
    pub fn detect() -> Isa {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            return if is_x86_feature_detected!("avx512f") {
                Isa::Avx512
            } else {
                Isa::Avx2
            };
        }
        Isa::Portable
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Isa::Avx512 => "avx512",
            Isa::Avx2 => "avx2",
            Isa::Portable => "portable",
        })
    }
}

const LANES: usize = 16;

/// `a · b + c`, fused if the instruction exists. Otherwise `mul_add` would be a call into the C
/// library.
#[inline(always)]
fn multiply_add<const FUSED: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FUSED { a.mul_add(b, c) } else { a * b + c }
}

/// 2ˣ for `x < 128`, with an error of 3e-7. Values of x below -126 give 2⁻¹²⁶.
///
/// Rounds `x` to the nearest integer by adding 1.5 · 2²³, and evaluates the polynomial of Cephes'
/// `exp2f` (S. Moshier) for the rest in `[-½, ½]`.
#[inline(always)]
fn exp2<const FUSED: bool>(x: f32) -> f32 {
    const ROUND: f32 = 12_582_912.0;
    // Not `max`, which would turn NaN into a number and hide it.
    let x = if x < -126.0 { -126.0 } else { x };
    let shifted = x + ROUND;
    let f = x - (shifted - ROUND);
    let mut y = 1.535_336_2e-4;
    for c in [
        1.339_887_4e-3,
        9.618_437e-3,
        5.550_332_5e-2,
        2.402_264_8e-1,
        6.931_472e-1,
        1.0,
    ] {
        y = multiply_add::<FUSED>(y, f, c);
    }
    let exponent = shifted.to_bits().wrapping_sub(ROUND.to_bits());
    y * f32::from_bits(exponent.wrapping_add(127) << 23)
}

#[inline(always)]
fn maximum_body<const FUSED: bool>(row: &[f32]) -> f32 {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let chunks = row.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (lane, &x) in lanes.iter_mut().zip(chunk) {
            *lane = larger(*lane, x);
        }
    }
    lanes.iter().chain(rest).copied().fold(lanes[0], larger)
}

#[inline(always)]
fn exponentiate_body<const FUSED: bool>(row: &mut [f32], max: f32) -> f32 {
    let mut lanes = [0.0; LANES];
    let mut chunks = row.chunks_exact_mut(LANES);
    for chunk in &mut chunks {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            *x = exp2::<FUSED>(*x - max);
            *lane += *x;
        }
    }
    let mut sum: f32 = lanes.iter().sum();
    for x in chunks.into_remainder() {
        *x = exp2::<FUSED>(*x - max);
        sum += *x;
    }
    sum
}

#[inline(always)]
fn gradient_body<const FUSED: bool>(scores: &mut [f32], dp: &mut [f32], lse: f32, delta: f32) {
    for (p, ds) in scores.iter_mut().zip(dp) {
        *p = exp2::<FUSED>(*p - lse);
        *ds = *p * (*ds - delta);
    }
}

#[inline(always)]
fn scale_body<const FUSED: bool>(row: &mut [f32], factor: f32) {
    for x in row {
        *x *= factor;
    }
}

#[inline(always)]
fn dot_body<const FUSED: bool>(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0; LANES];
    let (a, b) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let rest = a.remainder().iter().zip(b.remainder());
    let rest: f32 = rest.map(|(a, b)| a * b).sum();
    for (a, b) in a.zip(b) {
        for (lane, (&a, &b)) in lanes.iter_mut().zip(a.iter().zip(b)) {
            *lane = multiply_add::<FUSED>(a, b, *lane);
        }
    }
    lanes.iter().sum::<f32>() + rest
}

/// Compiles a body for each [`Isa`], and chooses one at run time.
macro_rules! dispatched {
    ($($(#[$doc:meta])* $name:ident = $body:ident($($arg:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        $($(#[$doc])*
        pub fn $name($($arg: $type),*) $(-> $result)? {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx2,fma")]
                fn avx512($($arg: $type),*) $(-> $result)? {
                    $body::<true>($($arg),*)
                }
                #[target_feature(enable = "avx2,fma")]
                fn avx2($($arg: $type),*) $(-> $result)? {
                    $body::<true>($($arg),*)
                }
                match Isa::detect() {
                    // SAFETY: `detect` found that this machine has the instructions.
                    Isa::Avx512 => return unsafe { avx512($($arg),*) },
                    // SAFETY: as above.
                    Isa::Avx2 => return unsafe { avx2($($arg),*) },
                    Isa::Portable => {}
                }
            }
            $body::<false>($($arg),*)
        })*
    };
}

dispatched! {
    /// The largest element; -∞ for an empty row.
    maximum = maximum_body(row: &[f32]) -> f32;
    /// Replaces each score `s` (in units of log₂) by `2^(s - max)`; returns the sum.
    exponentiate = exponentiate_body(row: &mut [f32], max: f32) -> f32;
    /// Softmax and its gradient for one row: scores `s` become `p = 2^(s - lse)`, and `dp` becomes
    /// `ds = p (dp - delta)`. `s` and `lse` are in units of log₂.
    softmax_gradient = gradient_body(scores: &mut [f32], dp: &mut [f32], lse: f32, delta: f32);
    /// Multiplies every element.
    scale = scale_body(row: &mut [f32], factor: f32);
    /// Σ aᵢ bᵢ.
    dot = dot_body(a: &[f32], b: &[f32]) -> f32;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponentials_of_every_instruction_set_are_right() {
        let row: Vec<f32> = (0..1999).map(|i| -(i as f32) * 0.0631).collect();
        let mut vectorised = row.clone();
        let sum = exponentiate(&mut vectorised, 0.5);
        let mut portable = row.clone();
        exponentiate_body::<false>(&mut portable, 0.5);
        for ((&x, &a), &b) in row.iter().zip(&vectorised).zip(&portable) {
            let right = f64::from(x - 0.5).exp2().max(2f64.powi(-126));
            for value in [a, b] {
                let error = (f64::from(value) / right - 1.0).abs();
                assert!(error < 3e-7, "{x} {value} {right} {error}");
            }
        }
        let total: f64 = vectorised.iter().copied().map(f64::from).sum();
        assert!((f64::from(sum) / total - 1.0).abs() < 1e-6);
    }

    #[test]
    fn a_number_that_is_none_stays_visible() {
        let mut row = vec![0.0; 40];
        row[3] = f32::NAN;
        assert!(exponentiate(&mut row, 0.0).is_nan());
    }
}
