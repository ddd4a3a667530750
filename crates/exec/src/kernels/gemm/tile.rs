//! The multiply-add loop: one tile of the product in registers, and the walk over tiles.

use super::matrix::View;
use super::simd::{Simd, Task, VECTORS};
use super::strips::Strips;
use std::ops::Range;

/// Steps along the depth between two visits of the output.
///
/// A right strip of this depth stays in the second-level cache while all rows pass by (192 would
/// stay in the first, and is 3 % slower: the output is visited twice as often). The sum continues from the stored f32, so the value does not depend on this number.
const DEPTH: usize = 384;

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

/// Writes strip `strip_idx` of the product into columns `cols` of `out`, whose first row is row
/// `first_row` of the product. Sums start at `start`.
#[inline(always)]
pub(super) fn strip<S: Simd>(
    simd: S,
    left: Left,
    right: &Strips,
    strip_idx: usize,
    first_row: usize,
    out: &mut [&mut [f32]],
    (cols, start): (Range<usize>, f32),
) {
    match right.width_of(strip_idx) / S::LANES {
        1 => strip_of::<S, 1>(simd, left, right, (strip_idx, first_row), out, cols, start),
        2 => strip_of::<S, 2>(simd, left, right, (strip_idx, first_row), out, cols, start),
        VECTORS => {
            strip_of::<S, VECTORS>(simd, left, right, (strip_idx, first_row), out, cols, start)
        }
        n => unreachable!("a strip of {n} registers"),
    }
}

#[inline(always)]
fn strip_of<S: Simd, const N: usize>(
    simd: S,
    left: Left,
    right: &Strips,
    (strip_idx, first_row): (usize, usize),
    out: &mut [&mut [f32]],
    cols: Range<usize>,
    start: f32,
) {
    for from in (0..right.depth).step_by(DEPTH) {
        let len = DEPTH.min(right.depth - from);
        let b = right.strip(strip_idx, from, len);
        // Weights come from far away: while this strip is used, the next one is fetched.
        let next = right.after(strip_idx, from + len);
        let step = (N * S::LANES).div_ceil(out.len().div_ceil(S::ROWS).max(1));
        for (i, rows) in out.chunks_mut(S::ROWS).enumerate() {
            let at = (first_row + i * S::ROWS, from);
            let next = &next[(i * len * step).min(next.len())..];
            let b = Right { b, next, step, continued: from > 0, start };
            match rows.len() {
                1 => tile::<S, 1, N>(simd, left, at, b, rows, cols.clone()),
                2..=4 => tile::<S, 4, N>(simd, left, at, b, rows, cols.clone()),
                _ if S::ROWS == 8 => tile::<S, 8, N>(simd, left, at, b, rows, cols.clone()),
                n => unreachable!("a tile of {n} rows"),
            }
        }
    }
}

/// What a tile reads of the right operand, and what it fetches for a later one.
#[derive(Clone, Copy)]
struct Right<'a> {
    b: &'a [f32],
    next: &'a [f32],
    /// Numbers fetched at each step, so that all tiles together fetch one strip.
    step: usize,
    /// Whether the sums are those of the steps before; otherwise they begin with `start`.
    continued: bool,
    start: f32,
}

/// One tile from row `at.0`, continued from depth `at.1`: chooses how the left side is read.
#[inline(always)]
fn tile<S: Simd, const M: usize, const N: usize>(
    simd: S,
    left: Left,
    at: (usize, usize),
    b: Right,
    out: &mut [&mut [f32]],
    cols: Range<usize>,
) {
    let (row, from) = at;
    let len = b.b.len() / (N * S::LANES);
    match left {
        Left::View(view) if view.col_stride == 1 => {
            // Rows past the end repeat the last one; their sums are not stored.
            let row = |i: usize| view.row((row + i).min(view.rows - 1), from, len);
            accumulate::<S, M, N>(simd, ByRows(std::array::from_fn(row)), b, out, cols);
        }
        Left::View(view) if view.row_stride == 1 && row + M <= view.rows => {
            let columns = ByColumns { data: view.cols_from(row, from), stride: view.col_stride };
            accumulate::<S, M, N>(simd, columns, b, out, cols);
        }
        Left::View(view) => {
            let any = Anywhere { view, row, from };
            accumulate::<S, M, N>(simd, any, b, out, cols);
        }
        Left::Strips(strips) => {
            // A strip has `S::ROWS >= M` lines, and a tile begins where a strip does.
            let data = strips.strip(row / S::ROWS, from, len);
            accumulate::<S, M, N>(simd, ByColumns { data, stride: S::ROWS }, b, out, cols);
        }
    }
}

/// `M` rows of the left operand, read one column after another.
trait Columns<const M: usize> {
    /// The same, when `n` columns will be read: what is checked here is not checked for each.
    fn limited_to(self, n: usize) -> Self;
    /// Column `k`, as a function of the row: an array would be built and taken apart again.
    fn column(&self, k: usize) -> impl Fn(usize) -> f32;
}

/// Rows that are each contiguous.
struct ByRows<'a, const M: usize>([&'a [f32]; M]);

impl<const M: usize> Columns<M> for ByRows<'_, M> {
    #[inline(always)]
    fn limited_to(self, n: usize) -> Self {
        // A loop, since LLVM does not inline `map` and then forgets the lengths.
        let mut rows = self.0;
        for row in &mut rows {
            *row = &row[..n];
        }
        ByRows(rows)
    }

    #[inline(always)]
    fn column(&self, k: usize) -> impl Fn(usize) -> f32 {
        move |i| self.0[i][k]
    }
}

/// Columns that are each contiguous, one every `stride`.
struct ByColumns<'a> {
    data: &'a [f32],
    stride: usize,
}

impl<const M: usize> Columns<M> for ByColumns<'_> {
    #[inline(always)]
    fn limited_to(self, _: usize) -> Self {
        self
    }

    #[inline(always)]
    fn column(&self, k: usize) -> impl Fn(usize) -> f32 {
        let column: &[f32; M] = self.data[k * self.stride..].first_chunk().expect("M rows");
        move |i| column[i]
    }
}

/// Any strides, and rows past the end, which repeat the last one.
struct Anywhere<'a> {
    view: View<'a>,
    row: usize,
    from: usize,
}

impl<const M: usize> Columns<M> for Anywhere<'_> {
    #[inline(always)]
    fn limited_to(self, _: usize) -> Self {
        self
    }

    #[inline(always)]
    fn column(&self, k: usize) -> impl Fn(usize) -> f32 {
        move |i| self.view.at((self.row + i).min(self.view.rows - 1), self.from + k)
    }
}

/// A tile that hangs over the output's edge, whole.
#[repr(align(64))]
struct Sums([f32; SUMS_MAX]);

/// Numbers in the largest tile, 8 x 48.
const SUMS_MAX: usize = 8 * 48;

/// Adds the products of column `k` and `b[k]` to the sums in `out`, in the order of `k`.
#[inline(always)]
fn accumulate<S: Simd, const M: usize, const N: usize>(
    simd: S,
    columns: impl Columns<M>,
    b: Right,
    out: &mut [&mut [f32]],
    cols: Range<usize>,
) {
    let (width, continued) = (N * S::LANES, b.continued);
    if let Some(out) = out.first_chunk_mut::<M>()
        && cols.len() == width
    {
        let mut rows = out.iter_mut();
        let sums = std::array::from_fn(|_| &mut rows.next().expect("M rows")[cols.clone()]);
        simd.call(MultiplyAdd::<_, M, N> { columns, b, sums, continued });
        return;
    }
    let mut whole = Sums([0.0; SUMS_MAX]);
    for (sums, row) in whole.0.chunks_exact_mut(width).zip(out.iter()) {
        sums[..cols.len()].copy_from_slice(&row[cols.clone()]);
    }
    let mut rows = whole.0.chunks_exact_mut(width);
    let sums = std::array::from_fn(|_| rows.next().expect("room for M rows"));
    simd.call(MultiplyAdd::<_, M, N> { columns, b, sums, continued });
    for (sums, row) in whole.0.chunks_exact(width).zip(out) {
        row[cols.clone()].copy_from_slice(&sums[..cols.len()]);
    }
}

/// The hot loop, in a function of its own: inlined, it would share its registers and spill them.
struct MultiplyAdd<'a, C, const M: usize, const N: usize> {
    columns: C,
    b: Right<'a>,
    sums: [&'a mut [f32]; M],
    /// Whether the sums hold those of the steps before; otherwise they begin anew.
    continued: bool,
}

impl<C: Columns<M>, const M: usize, const N: usize> Task for MultiplyAdd<'_, C, M, N> {
    type Output = ();

    // Indices, since a constant index is what keeps `acc` in registers.
    #[expect(clippy::needless_range_loop)]
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let (b, next) = (S::lanes(self.b.b).as_chunks::<N>().0, self.b.next);
        let columns = self.columns.limited_to(b.len());
        let sums = self.sums.map(|row| S::lanes_mut(row).first_chunk_mut().expect("N registers"));
        let sums: [&mut [S::Lanes; N]; M] = sums;
        let mut acc = [[simd.splat(self.b.start); N]; M];
        if self.continued {
            for i in 0..M {
                for j in 0..N {
                    acc[i][j] = simd.load(&sums[i][j]);
                }
            }
        }
        let step = self.b.step;
        for k in 0..b.len() {
            simd.prefetch(next, k * step);
            let b: [S::V; N] = std::array::from_fn(|j| simd.load(&b[k][j]));
            let a = columns.column(k);
            for i in 0..M {
                let a = simd.splat(a(i));
                for j in 0..N {
                    acc[i][j] = simd.fma(a, b[j], acc[i][j]);
                }
            }
        }
        for i in 0..M {
            for j in 0..N {
                simd.store(acc[i][j], &mut sums[i][j]);
            }
        }
    }
}
