//! Softmax along an axis.

use super::{lanes, math, parallel};

/// Softmax of one row, always in this order: maximum, exponentials, sum, scale.
///
/// This is the definition, in f64. A row of `-inf` gives NaN, so a mask leaves at least one finite
/// entry.
pub fn softmax_plainly(row: &mut [f32]) {
    let max = row.iter().copied().fold(f32::NEG_INFINITY, lanes::larger);
    let exps: Vec<f64> = row.iter().map(|x| (*x as f64 - max as f64).exp()).collect();
    let sum: f64 = exps.iter().sum();
    row.iter_mut().zip(exps).for_each(|(x, e)| *x = (e / sum) as f32);
}

/// Softmax in place along the middle axis of `(outer, n, inner)`; the outer length is what `x` has.
///
/// Each result is the same in either layout.
pub fn softmax(x: &mut [f32], n: usize, inner: usize) {
    match (n, inner) {
        (0, _) | (_, 0) => {}
        (_, 1) => parallel::pieces(x, n, |_, x| rows(x, n)),
        _ => parallel::column_blocks(x, (n, inner), lanes::SIDE, columns),
    }
}

per_isa! {
    fn rows(x: &mut [f32], n: usize) = rows_with
}

per_isa! {
    fn columns(rows: &mut [&mut [f32]]) = columns_with
}

#[inline(always)]
fn rows_with(x: &mut [f32], n: usize) {
    // A loop: `for_each` would be compiled for the baseline, and the row within it.
    for row in x.chunks_exact_mut(n) {
        softmax_row(row);
    }
}

/// One row, within a kernel.
#[inline(always)]
pub(super) fn softmax_row(row: &mut [f32]) {
    let max = lanes::pick(row, f32::NEG_INFINITY, lanes::larger);
    row.iter_mut().for_each(|x| *x = math::exp(*x - max));
    let scale = 1.0 / lanes::sum(row, |x| x);
    row.iter_mut().for_each(|x| *x *= scale);
}

/// The same of columns side by side, with the same bits.
#[inline(always)]
fn columns_with(rows: &mut [&mut [f32]]) {
    let mut max = [f32::NEG_INFINITY; lanes::SIDE];
    for row in rows.iter() {
        max.iter_mut().zip(row.iter()).for_each(|(m, x)| *m = lanes::larger(*m, *x));
    }
    for row in rows.iter_mut() {
        row.iter_mut().zip(&max).for_each(|(x, max)| *x = math::exp(*x - *max));
    }
    let scale = lanes::column_sums(rows, |_, x| x).map(|sum| 1.0 / sum);
    for row in rows.iter_mut() {
        row.iter_mut().zip(&scale).for_each(|(x, scale)| *x *= scale);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::strided::transpose;

    #[test]
    fn close_to_the_definition_along_both_axes() {
        for (outer, n, inner) in [(3, 1, 1), (5, 7, 1), (4, 131, 1), (2, 9, 3), (2, 33, 70)] {
            let len = outer * n * inner;
            let x: Vec<f32> = (0..len).map(|i| ((i * 7919) % 1013) as f32 / 30.0 - 17.0).collect();
            let mut found = x.clone();
            softmax(&mut found, n, inner);
            let mut expected = vec![0.0; len];
            transpose(&x, &[outer, n, inner], &[0, 2, 1], &mut expected);
            expected.chunks_exact_mut(n).for_each(softmax_plainly);
            let mut turned = vec![0.0; len];
            transpose(&found, &[outer, n, inner], &[0, 2, 1], &mut turned);
            let mut by_rows = vec![0.0; len];
            transpose(&x, &[outer, n, inner], &[0, 2, 1], &mut by_rows);
            softmax(&mut by_rows, n, 1);
            assert_eq!(turned, by_rows, "the layout does not show");
            for (found, expected) in turned.iter().zip(&expected) {
                // The rounding of `x - max` (here up to 34) is a relative error of the exponential.
                assert!((found - expected).abs() <= 3e-6 * expected, "{found} {expected}");
            }
        }
    }

    #[test]
    fn masks_and_large_numbers() {
        let mut row = [f32::NEG_INFINITY, 3.0e38, 3.0e38, -3.0e38];
        softmax(&mut row, 4, 1);
        assert_eq!(row, [0.0, 0.5, 0.5, 0.0]);
        let mut row = [f32::NEG_INFINITY; 2];
        softmax(&mut row, 2, 1);
        assert!(row[0].is_nan() && row[1].is_nan());
    }
}
