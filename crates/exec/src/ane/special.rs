//! Functions that the engine has its own values for.

use super::Rule;
use crate::kernels::lanes;
use crate::kernels::rounding::{PRODUCT_LIMIT, Rounding};

/// log of zero on the engine.
pub(crate) const LOG_OF_ZERO: f32 = -45_440.0;

/// The largest magnitude that passes a slice with an offset.
pub(crate) const SLICE_LIMIT: f32 = 4_094.0;

/// The largest finite fp16.
const FP16_MAX: f64 = 65_504.0;

/// How far trigonometric functions are off at a seam, and how far a seam reaches.
const SEAM: (f64, f64) = (0.04, 0.1);

/// The natural logarithm of a number whose logarithm is `exact`.
pub(crate) fn log(of: f64, exact: f32, rounding: Rounding) -> f32 {
    if of == 0.0 && rounding.has(Rule::LogOfZero) { LOG_OF_ZERO } else { exact }
}

/// softplus, `exact` at `x`.
pub(crate) fn softplus(x: f64, exact: f32, rounding: Rounding) -> f32 {
    let collapses = rounding.has(Rule::SoftplusCollapse) && x.exp() + 1.0 >= PRODUCT_LIMIT.into();
    if collapses { 0.0 } else { exact }
}

/// Adds the error near a seam of an argument's reduction to a value, which is `distance` from it.
pub(crate) fn seam(exact: f64, distance: f64, rounding: Rounding) -> f64 {
    let (height, reach) = SEAM;
    match rounding.has(Rule::TrigSeams) && distance < reach {
        true => exact + height * (1.0 - distance / reach),
        false => exact,
    }
}

/// How far a number is from the nearest odd multiple of pi.
pub(crate) fn from_odd_pi(x: f64) -> f64 {
    let turn = 2.0 * std::f64::consts::PI;
    let x = x - turn / 2.0;
    (x - turn * (x / turn).round()).abs()
}

/// log(sum(exp)) without taking the largest out, each exponential an fp16.
pub(crate) fn log_sum_exp(row: &[f32]) -> f32 {
    let exps = row
        .iter()
        .map(|&x| f64::from(crate::kernels::half::nearest_fp16(f64::from(x).exp() as f32)));
    let sum: f64 = exps.sum();
    if sum > FP16_MAX { 0.0 } else { sum.ln() as f32 }
}

/// What a slice with an offset along the last axis makes of numbers.
pub(crate) fn cropped(x: &mut [f32]) {
    x.iter_mut().filter(|x| x.abs() > SLICE_LIMIT).for_each(|x| *x *= f32::INFINITY);
}

/// Prepares a row for softmax, where infinity minus infinity is zero: an infinite score takes all,
/// and a row of minus infinity is one of zeros.
#[inline(always)]
pub(crate) fn before_softmax(row: &mut [f32]) {
    let max = lanes::pick(row, f32::NEG_INFINITY, lanes::larger);
    if max.is_infinite() {
        let lowest = f32::NEG_INFINITY;
        row.iter_mut().for_each(|x| *x = if *x == max { 0.0 } else { lowest });
    }
}

/// [`before_softmax`] along the middle axis of `(outer, n, inner)`.
pub(crate) fn before_softmax_along(x: &mut [f32], n: usize, inner: usize, rounding: Rounding) {
    if !rounding.has(Rule::InvalidIsZero) || n * inner == 0 {
        return;
    }
    if inner == 1 {
        return x.chunks_exact_mut(n).for_each(before_softmax);
    }
    if !x.iter().any(|x| x.is_infinite()) {
        return;
    }
    let mut row = vec![0.0; n];
    for block in x.chunks_exact_mut(n * inner) {
        for i in 0..inner {
            (0..n).for_each(|k| row[k] = block[k * inner + i]);
            before_softmax(&mut row);
            (0..n).for_each(|k| block[k * inner + i] = row[k]);
        }
    }
}
