//! Products whose right operand is one sequence of numbers seen from many places: what a convolution
//! multiplies, read where it lies.
//!
//! Row `k` of the right operand begins at `offsets[k]`, so that neighbouring rows may overlap and
//! nothing has to be gathered; when many rows of the left operand pass by, what one tile's columns read is
//! still copied together first, since it is then read in the order of memory. Sums are chains of fused multiply-adds in the order of `k`, as in every
//! product here; longer ones than `chain` are added up chain by chain.

use std::ops::Range;

use super::simd::{Simd, Task, VECTORS};
use super::strips::Strips;
use super::with_simd;
use super::{Epilogue, PackedLeft};

/// The right operand: column `p` of row `k` is `data[offsets[k] + p]`.
#[derive(Clone, Copy, Debug)]
pub struct Shifted<'a> {
    pub data: &'a [f32],
    pub offsets: &'a [usize],
    /// Products summed in one chain.
    pub chain: usize,
}

/// Numbers past the last column that are read, if not used.
pub const OVERREAD: usize = 64;

/// Some rows and columns of a product.
pub struct Tile<'a> {
    /// The first row, and how many.
    pub row: usize,
    pub n_rows: usize,
    /// The first column, and how many.
    pub column: usize,
    pub n_columns: usize,
    /// The rows, this far apart.
    pub width: usize,
    pub sums: &'a mut [f32],
}

impl Tile<'_> {
    pub fn row_mut(&mut self, i: usize) -> &mut [f32] {
        &mut self.sums[i * self.width..][..self.n_columns]
    }
}

/// Computes columns `columns` of `left * right` a tile at a time, finished by `epilogue` (whose bias is
/// by row), and hands each to `done`.
///
/// # Panics
/// When the data ends less than [`OVERREAD`] numbers after the last column of the last row.
pub fn multiply_shifted(
    left: &PackedLeft,
    right: Shifted,
    columns: Range<usize>,
    epilogue: &Epilogue,
    done: &mut dyn FnMut(Tile<'_>),
) {
    assert_eq!(left.0.depth, right.offsets.len(), "both operands have the same depth");
    let last = right.offsets.iter().copied().max().unwrap_or(0);
    assert!(last + columns.end + OVERREAD <= right.data.len(), "the data goes far enough");
    with_simd(All { left: &left.0, right, columns, epilogue, done });
}

struct All<'a, 'd> {
    left: &'a Strips,
    right: Shifted<'a>,
    columns: Range<usize>,
    epilogue: &'a Epilogue<'a>,
    done: &'d mut dyn FnMut(Tile<'_>),
}

/// What the columns of one tile read, row after row.
struct Panel {
    memory: Vec<f32>,
    /// Where the first cache line begins.
    start: usize,
    offsets: Vec<usize>,
}

/// Numbers in a cache line.
const CACHE_LINE: usize = 16;

impl Panel {
    fn new(depth: usize, width: usize) -> Panel {
        let memory = vec![0.0; depth * width + CACHE_LINE];
        let start = memory.as_ptr().align_offset(4 * CACHE_LINE).min(CACHE_LINE);
        Panel { memory, start, offsets: (0..depth).map(|k| k * width).collect() }
    }

    #[inline(always)]
    fn fill<S: Simd>(&mut self, simd: S, right: Shifted, first: usize, width: usize) {
        let rows = self.memory[self.start..].chunks_exact_mut(width);
        for (to, &offset) in rows.zip(right.offsets) {
            // Registers, since a call of memcpy costs more than these copies.
            let from = S::lanes(&right.data[offset + first..][..width]);
            let registers = S::lanes_mut(to).iter_mut().zip(from);
            registers.for_each(|(to, from)| simd.store(simd.load(from), to));
        }
    }
}

/// The sums of a tile.
#[repr(align(64))]
struct Sums([f32; ROWS_MAX * WIDTH_MAX]);

const ROWS_MAX: usize = 8;
const WIDTH_MAX: usize = 48;

impl Task for All<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let All { left, right, columns, epilogue, done } = self;
        let width = S::LANES * VECTORS;
        let start = epilogue.rounding.sums_from();
        let mut whole = Sums([0.0; ROWS_MAX * WIDTH_MAX]);
        let mut part = Sums([0.0; ROWS_MAX * WIDTH_MAX]);
        let mut panel = match left.lines > 4 * S::ROWS {
            true => Some(Panel::new(right.offsets.len(), width)),
            false => None,
        };
        for first in columns.clone().step_by(width) {
            let n = width.min(columns.end - first);
            let (data, all_offsets, begin) = match &mut panel {
                Some(panel) => {
                    panel.fill(simd, right, first, width);
                    (&panel.memory[panel.start..], &panel.offsets[..], 0)
                }
                None => (right.data, right.offsets, first),
            };
            for (strip, row) in (0..left.lines).step_by(S::ROWS).enumerate() {
                let n_rows = S::ROWS.min(left.lines - row);
                for from in (0..right.offsets.len()).step_by(right.chain) {
                    let len = right.chain.min(right.offsets.len() - from);
                    let a = left.strip(strip, from, len);
                    let offsets = &all_offsets[from..from + len];
                    let to = if len == right.offsets.len() { &mut whole } else { &mut part };
                    let n_vectors = n.div_ceil(S::LANES);
                    let sums = (&mut to.0[..], start);
                    tile::<S>(simd, (n_rows, n_vectors), a, data, offsets, begin, sums);
                    if len < right.offsets.len() {
                        if from == 0 {
                            whole.0.fill(0.0);
                        }
                        whole.0.iter_mut().zip(&part.0).for_each(|(y, x)| *y += x);
                    }
                }
                if right.offsets.is_empty() {
                    whole.0.fill(0.0);
                }
                let sums = &mut whole.0[..];
                for (i, sums) in sums.chunks_exact_mut(width).take(n_rows).enumerate() {
                    epilogue.apply(&mut [sums], 0..n, (row + i, 0));
                }
                done(Tile { row, n_rows, column: first, n_columns: n, width, sums });
            }
        }
    }
}

/// A tile of so many rows and registers, or a little more.
#[inline(always)]
fn tile<S: Simd>(
    simd: S,
    (n_rows, n_vectors): (usize, usize),
    a: &[f32],
    data: &[f32],
    offsets: &[usize],
    first: usize,
    to: (&mut [f32], f32),
) {
    match (n_rows > 4 && S::ROWS == 8, n_vectors) {
        (true, 1) => one::<S, 8, 1>(simd, a, data, offsets, first, to),
        (true, 2) => one::<S, 8, 2>(simd, a, data, offsets, first, to),
        (true, _) => one::<S, 8, VECTORS>(simd, a, data, offsets, first, to),
        (false, 1) => one::<S, 4, 1>(simd, a, data, offsets, first, to),
        (false, 2) => one::<S, 4, 2>(simd, a, data, offsets, first, to),
        (false, _) => one::<S, 4, VECTORS>(simd, a, data, offsets, first, to),
    }
}

#[inline(always)]
fn one<S: Simd, const M: usize, const N: usize>(
    simd: S,
    a: &[f32],
    data: &[f32],
    offsets: &[usize],
    first: usize,
    (to, start): (&mut [f32], f32),
) {
    simd.call(MultiplyAdd::<M, N> { a, data, offsets, first, to, start });
    if start != 0.0 {
        to.iter_mut().for_each(|x| *x -= start);
    }
}

/// The hot loop, in a function of its own as in [`super::tile`].
struct MultiplyAdd<'a, const M: usize, const N: usize> {
    /// `S::ROWS` numbers for each step.
    a: &'a [f32],
    data: &'a [f32],
    offsets: &'a [usize],
    first: usize,
    to: &'a mut [f32],
    /// What sums begin with.
    start: f32,
}

impl<const M: usize, const N: usize> Task for MultiplyAdd<'_, M, N> {
    type Output = ();

    // Indices, since a constant index is what keeps `acc` in registers.
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let mut acc = [[simd.splat(self.start); N]; M];
        for (a, &offset) in self.a.chunks_exact(S::ROWS).zip(self.offsets) {
            let b = &self.data[offset + self.first..][..N * S::LANES];
            let b: &[S::Lanes; N] = S::lanes(b).first_chunk().expect("N registers");
            let b: [S::V; N] = std::array::from_fn(|j| simd.load(&b[j]));
            let a: &[f32; M] = a.first_chunk().expect("M rows");
            for i in 0..M {
                let a = simd.splat(a[i]);
                for j in 0..N {
                    acc[i][j] = simd.fma(a, b[j], acc[i][j]);
                }
            }
        }
        let rows = self.to.chunks_exact_mut(VECTORS * S::LANES);
        for (acc, row) in acc.iter().zip(rows) {
            let row: &mut [S::Lanes; N] = S::lanes_mut(row).first_chunk_mut().expect("N registers");
            for j in 0..N {
                simd.store(acc[j], &mut row[j]);
            }
        }
    }
}
