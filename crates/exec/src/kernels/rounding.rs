//! What becomes of a result that is stored: nothing, bf16, or what the rules of an engine say.

use super::half::round_each;
use super::parallel;
use crate::ane::{Ane, Family, Rule, RuleSet};

/// How the result of an op is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rounding {
    /// As the f32 it is.
    #[default]
    F32,
    /// Rounded to the nearest bf16.
    Bf16,
    /// As the Neural Engine does, by these rules.
    Ane(RuleSet),
}

/// Where outputs of matrix products and convolutions on the Neural Engine become infinite.
pub const PRODUCT_LIMIT: f32 = 32_768.0;

/// The smallest fp16 that is not subnormal.
const SMALLEST_NORMAL: f32 = 6.103_515_6e-5;

/// What a sum in steps of 2^-16 begins with: the f32 between 128 and 256 lie that far apart, so each
/// multiply-add rounds its product to whole steps. Sums beyond 64 have coarser steps, far below the
/// fp16 they are stored as.
const FIXED_POINT: f32 = 192.0;

impl Rounding {
    /// The engine of the default family.
    pub const ANE: Rounding = Rounding::Ane(Ane::of(Family::H16).rules);
    /// fp16 storage alone.
    pub const FP16: Rounding = Rounding::Ane(Ane::fp16().rules);

    /// Is it the engine's, with this rule?
    #[inline(always)]
    pub fn has(self, rule: Rule) -> bool {
        matches!(self, Rounding::Ane(rules) if rules.has(rule))
    }

    /// Stores the results of an op that is no matrix product.
    pub fn store(self, x: &mut [f32]) {
        if self != Rounding::F32 {
            parallel::pieces(x, 1, |_, x| store_piece(x, self));
        }
    }

    /// Stores the results of a matrix product or convolution.
    pub fn store_product(self, x: &mut [f32]) {
        if self != Rounding::F32 {
            parallel::pieces(x, 1, |_, x| store_product_piece(x, self));
        }
    }

    /// Stores results of a reduction that adds.
    pub fn store_sums(self, x: &mut [f32]) {
        if self.has(Rule::HalfUpSums) && self.has(Rule::Fp16Storage) {
            x.iter_mut().for_each(|x| *x = away_from_tie(*x));
        }
        self.store(x);
    }

    /// Stores numbers that come from outside.
    pub fn store_input(self, x: &mut [f32]) {
        if self.has(Rule::NanIsInfinity) {
            x.iter_mut().filter(|x| x.is_nan()).for_each(|x| *x = f32::INFINITY);
        }
        self.store(x);
    }

    /// Stores a weight.
    pub fn store_weight(self, x: &mut [f32], compressed: bool) {
        match self {
            Rounding::Ane(rules) if compressed && !rules.has(Rule::Fp16Weights) => {
                Rounding::Ane(rules.without(Rule::Fp16Storage)).store_input(x);
            }
            _ => self.store_input(x),
        }
    }

    /// What the sums of a product begin with, to be taken off when they are whole.
    #[inline(always)]
    pub fn sums_from(self) -> f32 {
        if self.has(Rule::FixedAccumulator) { FIXED_POINT } else { 0.0 }
    }

    /// Sums that begin as these do, and are not stored yet.
    pub fn unstored(self) -> Rounding {
        match self {
            Rounding::Ane(rules) => {
                let kept = [Rule::FixedAccumulator, Rule::Fp16Tiles, Rule::FlushDenormals];
                let kept = kept.into_iter().filter(|&r| rules.has(r));
                Rounding::Ane(kept.fold(RuleSet::NONE, RuleSet::with))
            }
            _ => Rounding::F32,
        }
    }

    /// How a residual sum that is taken along is stored.
    #[inline(always)]
    pub(super) fn of_residual(self) -> Rounding {
        match self {
            Rounding::Ane(rules) if !rules.has(Rule::Fp16Residual) => {
                Rounding::Ane(rules.without(Rule::Fp16Storage))
            }
            other => other,
        }
    }

    /// Are products added in a way that multiply-adds do not have?
    pub fn adds_in_tiles(self) -> bool {
        self.has(Rule::Fp16Tiles) || self.has(Rule::FlushDenormals)
    }

    /// [`Rounding::store`] of a short slice, within a kernel.
    #[inline(always)]
    pub(super) fn store_each(self, x: &mut [f32]) {
        match self {
            Rounding::F32 => {}
            Rounding::Bf16 => x.iter_mut().for_each(|x| *x = nearest_bf16(*x)),
            Rounding::Ane(rules) => {
                if rules.has(Rule::Fp16Storage) {
                    round_each(x);
                }
                clean_each(x, rules, f32::INFINITY);
            }
        }
    }

    /// [`Rounding::store_product`] of a short slice, within a kernel.
    #[inline(always)]
    pub(super) fn store_product_each(self, x: &mut [f32]) {
        let Rounding::Ane(rules) = self else { return self.store_each(x) };
        if rules.has(Rule::Fp16Storage) {
            round_each(x);
        }
        let limited = rules.has(Rule::ProductLimit);
        clean_each(x, rules, if limited { PRODUCT_LIMIT } else { f32::INFINITY });
        if rules.has(Rule::FlushDenormals) {
            x.iter_mut().for_each(|x| *x = flushed(*x));
        }
    }
}

/// Takes away what the engine never holds: NaN, the sign of a zero, numbers from `limit` on.
#[inline(always)]
fn clean_each(x: &mut [f32], rules: RuleSet, limit: f32) {
    let invalid = if rules.has(Rule::InvalidIsZero) { 0.0 } else { f32::NAN };
    // Adding zero takes its sign from a zero; adding a negative one changes nothing.
    let zero = if rules.has(Rule::UnsignedZero) { 0.0 } else { -0.0 };
    for x in x {
        let y = if x.abs() >= limit { f32::INFINITY.copysign(*x) } else { *x };
        *x = if y.is_nan() { invalid } else { y + zero };
    }
}

/// Zero for a number that fp16 holds as subnormal.
#[inline(always)]
pub(super) fn flushed(x: f32) -> f32 {
    if x.abs() < SMALLEST_NORMAL { 0.0 } else { x }
}

/// The bf16 nearest to `x`, ties to even; NaN stays NaN.
#[inline(always)]
pub fn nearest_bf16(x: f32) -> f32 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) & 0xffff_0000;
    f32::from_bits(if x.is_nan() { bits | 0x0040_0000 } else { rounded })
}

/// `a + b` as an adder has it that keeps twelve bits of the larger: ties to even.
///
/// Adding and taking away a number 2^12 times as large drops the bits below.
#[inline(always)]
pub(super) fn twelve_bit_sum(a: f32, b: f32) -> f32 {
    const EXPONENT: u32 = 0x7f80_0000;
    let larger = if a.abs() > b.abs() { a } else { b };
    let magnet = ((larger.to_bits() & EXPONENT) + (12 << 23)) | 0x0040_0000;
    let sum = a + b;
    let kept = (sum + f32::from_bits(magnet)) - f32::from_bits(magnet);
    // Products of fp16 are far below; what is not, is infinite.
    if larger.abs() < 1e30 { kept } else { sum }
}

/// A number in the middle of two fp16 moved to the larger in magnitude; any other as it is.
fn away_from_tie(x: f32) -> f32 {
    let is_tie = x.to_bits() & 0x1fff == 0x1000 && x.abs() >= SMALLEST_NORMAL && x.is_finite();
    if is_tie { f32::from_bits(x.to_bits() + 0x1000) } else { x }
}

per_isa! {
    fn store_piece(x: &mut [f32], rounding: Rounding) = store_with
}

per_isa! {
    fn store_product_piece(x: &mut [f32], rounding: Rounding) = store_product_with
}

#[inline(always)]
fn store_with(x: &mut [f32], rounding: Rounding) {
    rounding.store_each(x);
}

#[inline(always)]
fn store_product_with(x: &mut [f32], rounding: Rounding) {
    rounding.store_product_each(x);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::half::nearest_fp16;

    #[test]
    fn products_end_at_the_limit() {
        let numbers = [32_752.0, 32_759.9, 32_760.0, -32_768.0, -1.0, f32::NAN];
        let mut x = numbers;
        Rounding::ANE.store_product(&mut x);
        assert_eq!(x, [32_752.0, 32_752.0, f32::INFINITY, f32::NEG_INFINITY, -1.0, 0.0]);
        let mut x = numbers;
        Rounding::FP16.store_product(&mut x);
        assert_eq!(x[..5], [32_752.0, 32_752.0, 32_768.0, -32_768.0, -1.0]);
        assert!(x[5].is_nan());
    }

    #[test]
    fn bf16_is_the_upper_half_of_a_float() {
        let one = 1.0f32.to_bits();
        let cases = [(one, one), (one + 0x8000, one), (one + 0x8001, one + 0x10000)];
        for (from, to) in cases {
            assert_eq!(nearest_bf16(f32::from_bits(from)).to_bits(), to);
        }
        assert_eq!(nearest_bf16(f32::from_bits(one + 0x18000)).to_bits(), one + 0x20000);
        assert_eq!(nearest_bf16(f32::MAX), f32::INFINITY);
        assert!(nearest_bf16(f32::from_bits(0x7f80_0001)).is_nan());
    }

    #[test]
    fn ties_of_sums_go_up() {
        let mut x = [2049.0, -2049.0, 2050.9, 4098.0, 2048.5, 1.0, f32::INFINITY];
        Rounding::ANE.store_sums(&mut x);
        assert_eq!(x, [2050.0, -2050.0, 2050.0, 4100.0, 2048.0, 1.0, f32::INFINITY]);
    }

    #[test]
    fn what_is_stored_are_the_bits_of_the_definition() {
        let step = if cfg!(miri) { 40_000_003 } else { 4_001 };
        let x: Vec<f32> = (0..u32::MAX).step_by(step).map(f32::from_bits).collect();
        let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        // 61 is no multiple of a register: the last numbers go through the definition.
        for x in x.chunks(61) {
            let mut stored = x.to_vec();
            Rounding::ANE.store_product(&mut stored);
            let expected: Vec<f32> = x.iter().map(|x| nearest_fp16(*x)).collect();
            let expected: Vec<f32> = expected
                .iter()
                .map(|x| match x.abs() >= PRODUCT_LIMIT {
                    true => f32::INFINITY.copysign(*x),
                    false if x.is_nan() || *x == 0.0 => 0.0,
                    false => *x,
                })
                .collect();
            assert_eq!(bits(&stored), bits(&expected));
        }
    }
}
