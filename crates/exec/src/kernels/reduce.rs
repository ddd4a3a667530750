//! Reductions over any set of axes.
//!
//! Sums are taken in f64 (sum, mean, the norm), so their order cannot be seen in the f32 result but
//! for the rarest of roundings; the order is fixed all the same.

use super::strided::{self, axes};
use super::{lanes, parallel};

/// What is made of all numbers along the reduced axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// Their sum.
    Sum,
    /// Their sum over their number.
    Mean,
    /// The largest; NaN when one is.
    Max,
    /// The smallest; NaN when one is.
    Min,
    /// The square root of the sum of their squares.
    L2Norm,
    /// The sum of their magnitudes.
    L1Norm,
    /// The logarithm of their sum.
    LogSum,
    /// The logarithm of the sum of their exponentials.
    LogSumExp,
    /// Their product.
    Product,
    /// The sum of their squares.
    SumSquare,
}

impl Reduction {
    /// The definition: `row` has the numbers of one result.
    ///
    /// Nothing sums to zero, has a NaN mean, and the extremes that any number would replace.
    pub fn of_plainly(self, row: &[f32]) -> f32 {
        let sum = |f: fn(f64) -> f64| row.iter().map(|x| f(*x as f64)).sum::<f64>();
        match self {
            Reduction::Sum => sum(|x| x) as f32,
            Reduction::Mean => (sum(|x| x) / row.len() as f64) as f32,
            Reduction::Max => row.iter().copied().fold(f32::NEG_INFINITY, lanes::larger),
            Reduction::Min => row.iter().copied().fold(f32::INFINITY, lanes::smaller),
            Reduction::L2Norm => sum(|x| x * x).sqrt() as f32,
            Reduction::L1Norm => sum(f64::abs) as f32,
            Reduction::LogSum => sum(|x| x).ln() as f32,
            Reduction::LogSumExp => log_sum_exp(row),
            Reduction::Product => row.iter().map(|x| *x as f64).product::<f64>() as f32,
            Reduction::SumSquare => sum(|x| x * x) as f32,
        }
    }

    #[inline(always)]
    fn of(self, row: &[f32]) -> f32 {
        match self {
            Reduction::Sum => lanes::wide_sum(row, |x| x) as f32,
            Reduction::Mean => (lanes::wide_sum(row, |x| x) / row.len() as f64) as f32,
            Reduction::Max => lanes::pick(row, f32::NEG_INFINITY, lanes::larger),
            Reduction::Min => lanes::pick(row, f32::INFINITY, lanes::smaller),
            Reduction::L2Norm => lanes::wide_sum(row, |x| x * x).sqrt() as f32,
            Reduction::L1Norm => lanes::wide_sum(row, |x| x.abs()) as f32,
            Reduction::LogSum => lanes::wide_sum(row, |x| x).ln() as f32,
            Reduction::SumSquare => lanes::wide_sum(row, |x| x * x) as f32,
            Reduction::LogSumExp | Reduction::Product => self.of_plainly(row),
        }
    }
}

/// The largest is taken out first, so that no exponential overflows; if it is infinite, it is the
/// result.
fn log_sum_exp(row: &[f32]) -> f32 {
    let max = row.iter().copied().fold(f32::NEG_INFINITY, lanes::larger);
    if !max.is_finite() {
        return max;
    }
    let sum: f64 = row.iter().map(|x| (f64::from(*x) - f64::from(max)).exp()).sum();
    (f64::from(max) + sum.ln()) as f32
}

/// Reduces the axes of `x` that `over` marks; `out` has the others, in order.
pub fn reduce(op: Reduction, x: &[f32], shape: &[usize], over: &[bool], out: &mut [f32]) {
    assert_eq!(shape.len(), over.len(), "every axis is kept or reduced");
    let n = shape.iter().zip(over).filter(|(_, over)| **over).map(|(n, _)| *n).product();
    if out.is_empty() {
        return;
    }
    let last_kept = over.iter().rposition(|over| !over).map_or(0, |i| i + 1);
    if over[..last_kept].iter().all(|over| !over) {
        return reduce_rows(op, x, n, out);
    }
    // Any other set becomes rows by moving the reduced axes inwards.
    let all = axes(shape);
    let some = |wanted: bool| all.iter().zip(over).filter(move |(_, over)| **over == wanted);
    let moved = some(false).chain(some(true)).map(|(axis, _)| *axis).collect();
    let mut rows = vec![0.0; x.len()];
    strided::copy(x, 0, moved, &mut rows);
    reduce_rows(op, &rows, n, out);
}

/// Reduces rows of `n` numbers.
fn reduce_rows(op: Reduction, x: &[f32], n: usize, out: &mut [f32]) {
    assert_eq!(x.len(), n * out.len(), "one row for each result");
    if x.len() < ROWS_LEN_MIN {
        return rows(op, x, n, out);
    }
    let n_results = out.len().div_ceil(2 * rayon::current_num_threads());
    parallel::each_chunk(out, n_results, |i, out| {
        rows(op, &x[i * n_results * n..][..out.len() * n], n, out);
    });
}

/// Numbers below which one thread is faster.
const ROWS_LEN_MIN: usize = 1 << 16;

per_isa! {
    fn rows(op: Reduction, x: &[f32], n: usize, out: &mut [f32]) = rows_with
}

#[inline(always)]
fn rows_with(op: Reduction, x: &[f32], n: usize, out: &mut [f32]) {
    for (i, out) in out.iter_mut().enumerate() {
        *out = op.of(&x[i * n..][..n]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPS: [Reduction; 10] = [
        Reduction::Sum,
        Reduction::Mean,
        Reduction::Max,
        Reduction::Min,
        Reduction::L2Norm,
        Reduction::L1Norm,
        Reduction::LogSum,
        Reduction::LogSumExp,
        Reduction::Product,
        Reduction::SumSquare,
    ];

    #[test]
    fn every_set_of_axes_agrees_with_the_definition() {
        let shape = [3, 4, 5, 7];
        let x: Vec<f32> = (0..420).map(|i| ((i * 7919) % 1013) as f32 / 100.0 - 4.0).collect();
        for set in 0..16usize {
            let over: Vec<bool> = (0..4).map(|axis| set >> axis & 1 == 1).collect();
            let mut rows = std::collections::BTreeMap::<usize, Vec<f32>>::new();
            for (i, x) in x.iter().enumerate() {
                let places = [i / 140, i / 35 % 4, i / 7 % 5, i % 7];
                let kept = (0..4).filter(|axis| !over[*axis]);
                let result = kept.fold(0, |at, axis| at * shape[axis] + places[axis]);
                rows.entry(result).or_default().push(*x);
            }
            for op in OPS {
                let mut out = vec![f32::NAN; rows.len()];
                reduce(op, &x, &shape, &over, &mut out);
                for (found, row) in out.iter().zip(rows.values()) {
                    let expected = op.of_plainly(row);
                    assert!(
                        found.is_nan() && expected.is_nan()
                            || *found == expected
                            || (found - expected).abs() <= 1e-6 * expected.abs().max(1e-3),
                        "{op:?} {over:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn nothing_and_nan() {
        let mut out = [0.0];
        let (none, all) = (f32::NEG_INFINITY, f32::INFINITY);
        let of_nothing = [0.0, f32::NAN, none, all, 0.0, 0.0, none, none, 1.0, 0.0];
        for (op, expected) in OPS.into_iter().zip(of_nothing) {
            reduce(op, &[], &[0], &[true], &mut out);
            assert!(out[0] == expected || out[0].is_nan() && expected.is_nan(), "{op:?}");
            reduce(op, &[1.0, f32::NAN, 2.0], &[3], &[true], &mut out);
            assert!(out[0].is_nan(), "{op:?}");
        }
    }
}
