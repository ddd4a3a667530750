//! Layer normalisation along an axis.

use super::{lanes, parallel};

/// What follows the normalisation, and what keeps it finite.
#[derive(Clone, Copy, Debug)]
pub struct Affine<'a> {
    /// One factor for each place along the axis.
    pub gamma: Option<&'a [f32]>,
    /// One summand for each place along the axis.
    pub beta: Option<&'a [f32]>,
    /// Added to the variance.
    pub epsilon: f32,
}

/// Layer normalisation of one row, the definition, in f64: mean, variance around it, scale.
pub fn layer_norm_plainly(row: &mut [f32], affine: &Affine) {
    let n = row.len() as f64;
    let mean = row.iter().map(|x| *x as f64).sum::<f64>() / n;
    let variance = row.iter().map(|x| (*x as f64 - mean).powi(2)).sum::<f64>() / n;
    let scale = 1.0 / (variance + affine.epsilon as f64).sqrt();
    for (i, x) in row.iter_mut().enumerate() {
        let gamma = affine.gamma.map_or(1.0, |gamma| gamma[i] as f64);
        let beta = affine.beta.map_or(0.0, |beta| beta[i] as f64);
        *x = ((*x as f64 - mean) * scale * gamma + beta) as f32;
    }
}

/// Layer normalisation in place along the middle axis of `(outer, n, inner)`.
///
/// With `inner` above one this is the channels-first layout `(B, C, 1, S)`: `n` is C, `inner` is S.
/// Each result is the same in either layout.
pub fn layer_norm(x: &mut [f32], n: usize, inner: usize, affine: &Affine) {
    for part in [affine.gamma, affine.beta].into_iter().flatten() {
        assert_eq!(part.len(), n, "one factor and summand for each place along the axis");
    }
    match (n, inner) {
        (0, _) | (_, 0) => {}
        (_, 1) => parallel::pieces(x, n, |_, x| rows(x, n, affine)),
        _ => parallel::column_blocks(x, (n, inner), lanes::SIDE, |rows| columns(rows, affine)),
    }
}

per_isa! {
    fn rows(x: &mut [f32], n: usize, affine: &Affine) = rows_with
}

per_isa! {
    fn columns(rows: &mut [&mut [f32]], affine: &Affine) = columns_with
}

#[inline(always)]
fn rows_with(x: &mut [f32], n: usize, affine: &Affine) {
    for row in x.chunks_exact_mut(n) {
        let mean = lanes::sum(row, |x| x) / n as f32;
        let variance = lanes::sum(row, |x| (x - mean) * (x - mean)) / n as f32;
        let scale = 1.0 / (variance + affine.epsilon).sqrt();
        match (affine.gamma, affine.beta) {
            (Some(gamma), Some(beta)) => {
                for ((x, gamma), beta) in row.iter_mut().zip(gamma).zip(beta) {
                    *x = (*x - mean) * (scale * gamma) + beta;
                }
            }
            (gamma, beta) => {
                for (i, x) in row.iter_mut().enumerate() {
                    let gamma = gamma.map_or(1.0, |gamma| gamma[i]);
                    let beta = beta.map_or(0.0, |beta| beta[i]);
                    *x = (*x - mean) * (scale * gamma) + beta;
                }
            }
        }
    }
}

/// The same of columns side by side, with the same bits.
#[inline(always)]
fn columns_with(rows: &mut [&mut [f32]], affine: &Affine) {
    let n = rows.len() as f32;
    let mean = lanes::column_sums(rows, |_, x| x).map(|sum| sum / n);
    let squares = lanes::column_sums(rows, |c, x| (x - mean[c]) * (x - mean[c]));
    let scale = squares.map(|sum| 1.0 / (sum / n + affine.epsilon).sqrt());
    for (i, row) in rows.iter_mut().enumerate() {
        let gamma = affine.gamma.map_or(1.0, |gamma| gamma[i]);
        let beta = affine.beta.map_or(0.0, |beta| beta[i]);
        for ((x, mean), scale) in row.iter_mut().zip(&mean).zip(&scale) {
            *x = (*x - mean) * (scale * gamma) + beta;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::strided::transpose;

    #[test]
    fn close_to_the_definition_along_both_axes() {
        for (outer, n, inner) in [(3, 1, 1), (5, 7, 1), (4, 384, 1), (2, 9, 3), (2, 96, 70)] {
            let len = outer * n * inner;
            let x: Vec<f32> = (0..len).map(|i| ((i * 7919) % 1013) as f32 / 100.0 + 3.0).collect();
            let gamma: Vec<f32> = (0..n).map(|i| 1.0 - i as f32 / n as f32).collect();
            let beta: Vec<f32> = (0..n).map(|i| i as f32 / n as f32).collect();
            let both = Affine { gamma: Some(&gamma), beta: Some(&beta), epsilon: 1e-5 };
            for affine in [both, Affine { gamma: None, beta: None, epsilon: 1e-5 }] {
                let mut found = x.clone();
                layer_norm(&mut found, n, inner, &affine);
                let mut expected = vec![0.0; len];
                transpose(&x, &[outer, n, inner], &[0, 2, 1], &mut expected);
                expected.chunks_exact_mut(n).for_each(|row| layer_norm_plainly(row, &affine));
                let mut turned = vec![0.0; len];
                transpose(&found, &[outer, n, inner], &[0, 2, 1], &mut turned);
                let mut by_rows = vec![0.0; len];
                transpose(&x, &[outer, n, inner], &[0, 2, 1], &mut by_rows);
                layer_norm(&mut by_rows, n, 1, &affine);
                assert_eq!(turned, by_rows, "the layout does not show");
                for (found, expected) in turned.iter().zip(&expected) {
                    assert!((found - expected).abs() <= 2e-6, "{found} {expected}");
                }
            }
        }
    }
}
