//! The multiply-add loop: one tile of the product in registers, and the walk over tiles.

use super::matrix::{Rows, View};
use super::simd::{Simd, VECTORS};
use super::strips::Strips;

/// Steps along the depth between two visits of the output.
///
/// A right strip of this depth (36 KiB on AVX-512) stays in the first-level cache while all rows
/// pass by. The sum continues from the stored f32, so the value does not depend on this number.
const DEPTH: usize = 192;

/// The left operand as the tiles read it.
#[derive(Clone, Copy)]
pub(super) enum Left<'a> {
    View(View<'a>),
    Strips(&'a Strips),
}

impl Left<'_> {
    pub fn n_rows(&self) -> usize {
        match self {
            Left::View(view) => view.rows,
            Left::Strips(strips) => strips.lines,
        }
    }

    pub fn depth(&self) -> usize {
        match self {
            Left::View(view) => view.cols,
            Left::Strips(strips) => strips.depth,
        }
    }
}

/// Writes into `out`, whose first row is row `first_row` of the product, what `strip_idx` gives.
///
/// `out` has the columns of the strip and no others.
#[inline(always)]
pub(super) fn strip<S: Simd>(
    simd: S,
    left: Left,
    right: &Strips,
    strip_idx: usize,
    first_row: usize,
    out: &mut [&mut [f32]],
) {
    match right.width_of(strip_idx) / S::LANES {
        1 => strip_of::<S, 1>(simd, left, right, strip_idx, first_row, out),
        2 => strip_of::<S, 2>(simd, left, right, strip_idx, first_row, out),
        VECTORS => strip_of::<S, VECTORS>(simd, left, right, strip_idx, first_row, out),
        n => unreachable!("a strip of {n} registers"),
    }
}

#[inline(always)]
fn strip_of<S: Simd, const N: usize>(
    simd: S,
    left: Left,
    right: &Strips,
    strip_idx: usize,
    first_row: usize,
    out: &mut [&mut [f32]],
) {
    for from in (0..right.depth).step_by(DEPTH) {
        let len = DEPTH.min(right.depth - from);
        let b = S::lanes(right.strip(strip_idx, from, len)).as_chunks::<N>().0;
        for (i, rows) in out.chunks_mut(S::ROWS).enumerate() {
            let at = (first_row + i * S::ROWS, from);
            match rows.len() {
                1 => tile::<S, 1, N>(simd, left, at, b, rows),
                2..=4 => tile::<S, 4, N>(simd, left, at, b, rows),
                _ if S::ROWS == 8 => tile::<S, 8, N>(simd, left, at, b, rows),
                n => unreachable!("a tile of {n} rows"),
            }
        }
    }
}

/// One tile from row `at.0`, continued from depth `at.1`: chooses how the left side is read.
#[inline(always)]
fn tile<S: Simd, const M: usize, const N: usize>(
    simd: S,
    left: Left,
    at: (usize, usize),
    b: &[[S::Lanes; N]],
    out: &mut [&mut [f32]],
) {
    let (row, from) = at;
    match left {
        Left::View(view) if view.col_stride == 1 => {
            // Rows past the end repeat the last one; their sums are not stored.
            let rows: [&[f32]; M] =
                std::array::from_fn(|i| view.row((row + i).min(view.rows - 1), from, b.len()));
            accumulate::<S, M, N>(simd, |k| std::array::from_fn(|i| rows[i][k]), from, b, out);
        }
        Left::View(view) if view.row_stride == 1 && row + M <= view.rows => {
            let column = |k| *view.col(row, from + k, M).first_chunk().expect("M rows");
            accumulate::<S, M, N>(simd, column, from, b, out);
        }
        Left::View(view) => {
            let at = |i: usize, k| view.at((row + i).min(view.rows - 1), from + k);
            let column = |k| std::array::from_fn(|i| at(i, k));
            accumulate::<S, M, N>(simd, column, from, b, out);
        }
        Left::Strips(strips) => {
            // A strip has `S::ROWS >= M` lines, and a tile begins where a strip does.
            let a = strips.strip(row / S::ROWS, from, b.len());
            let column = |k| *a[k * S::ROWS..][..S::ROWS].first_chunk().expect("a tile per strip");
            accumulate::<S, M, N>(simd, column, from, b, out);
        }
    }
}

/// Adds the products of `column(k)` and `b[k]` to the sums in `out`, in the order of `k`.
#[inline(always)]
fn accumulate<S: Simd, const M: usize, const N: usize>(
    simd: S,
    column: impl Fn(usize) -> [f32; M],
    from: usize,
    b: &[[S::Lanes; N]],
    out: &mut [&mut [f32]],
) {
    let mut sums = [[simd.splat(0.0); N]; M];
    if from > 0 {
        for (sums, row) in sums.iter_mut().zip(out.iter()) {
            *sums = load_row(simd, row);
        }
    }
    for (k, b) in b.iter().enumerate() {
        let b: [S::V; N] = std::array::from_fn(|j| simd.load(&b[j]));
        let a = column(k);
        for i in 0..M {
            let a = simd.splat(a[i]);
            for j in 0..N {
                sums[i][j] = simd.fma(a, b[j], sums[i][j]);
            }
        }
    }
    for (sums, row) in sums.iter().zip(out.iter_mut()) {
        store_row(simd, sums, row);
    }
}

#[inline(always)]
fn load_row<S: Simd, const N: usize>(simd: S, row: &[f32]) -> [S::V; N] {
    let mut lanes = S::lanes(row).iter();
    std::array::from_fn(|j| match lanes.next() {
        Some(lanes) => simd.load(lanes),
        None => {
            let mut padded = S::ZERO;
            let tail = &row[(j * S::LANES).min(row.len())..];
            padded.as_mut()[..tail.len()].copy_from_slice(tail);
            simd.load(&padded)
        }
    })
}

#[inline(always)]
fn store_row<S: Simd, const N: usize>(simd: S, sums: &[S::V; N], row: &mut [f32]) {
    if row.len() == N * S::LANES {
        for (v, to) in sums.iter().zip(S::lanes_mut(row)) {
            simd.store(*v, to);
        }
        return;
    }
    for (v, to) in sums.iter().zip(row.chunks_mut(S::LANES)) {
        let mut lanes = S::ZERO;
        simd.store(*v, &mut lanes);
        to.copy_from_slice(&lanes.as_ref()[..to.len()]);
    }
}

/// The columns of strip `idx` leave `out`.
pub(super) fn take_strip<'a>(out: &mut Rows<'a>, right: &Strips, idx: usize) -> Rows<'a> {
    out.take_cols(right.width.min(right.lines - idx * right.width))
}
