//! Matrix products: `out = left * right`, then an [`Epilogue`].
//!
//! The definition is three loops: every number of the product is a chain of fused multiply-adds in
//! the order of the depth, starting at zero ([`multiply_plainly`]). The fast path keeps exactly
//! this order for each number and only shares loads between them, so it gives the same bits on
//! every processor and for every number of threads.
//!
//! The right operand is read from strips as wide as a tile, prepared once for constant weights
//! ([`PackedRight`]) or on the fly. The left operand is read where it lies, rows or columns; when
//! it is the constant one ([`PackedLeft`]), its strips save a few percent.

mod engine;
mod epilogue;
mod matrix;
mod shifted;
mod simd;
mod strips;
mod tile;

pub use epilogue::{Activation, Bias, Epilogue};
pub use matrix::{Rows, View};
pub use shifted::{OVERREAD, Shifted, Tile, multiply_shifted};

use crate::kernels::Isa;
use rayon::prelude::*;
use simd::{Simd, Task};
use std::cell::RefCell;
use strips::Strips;
use tile::Left;

/// A left operand prepared for many products.
#[derive(Clone, Debug)]
pub struct PackedLeft(Strips);

/// A right operand prepared for many products.
#[derive(Clone, Debug)]
pub struct PackedRight(Strips);

impl PackedLeft {
    /// Copies `view` into the order this processor's tiles read.
    pub fn new(view: View) -> PackedLeft {
        PackedLeft(with_simd(PackRows(view)))
    }
}

impl PackedRight {
    /// Copies `view` into the order this processor's tiles read.
    pub fn new(view: View) -> PackedRight {
        PackedRight(with_simd(PackCols { view, memory: Strips::default() }))
    }
}

/// An operand: a matrix where it lies, or a prepared one.
#[derive(Clone, Copy, Debug)]
pub enum Operand<'a, P> {
    /// Read where it lies, or packed on the fly.
    View(View<'a>),
    /// Packed before.
    Packed(&'a P),
}

impl<'a, P> From<View<'a>> for Operand<'a, P> {
    fn from(view: View<'a>) -> Self {
        Operand::View(view)
    }
}

impl<'a> From<&'a PackedLeft> for Operand<'a, PackedLeft> {
    fn from(packed: &'a PackedLeft) -> Self {
        Operand::Packed(packed)
    }
}

impl<'a> From<&'a PackedRight> for Operand<'a, PackedRight> {
    fn from(packed: &'a PackedRight) -> Self {
        Operand::Packed(packed)
    }
}

/// The definition of a matrix product, without its epilogue.
pub fn multiply_plainly(left: View, right: View, out: &mut Rows) {
    for (r, row) in out.rows.iter_mut().enumerate() {
        for (c, x) in row.iter_mut().enumerate() {
            *x = (0..left.cols).fold(0.0, |sum, k| left.at(r, k).mul_add(right.at(k, c), sum));
        }
    }
}

/// Writes `left * right`, finished by `epilogue`, into `out`; uses the current rayon pool.
pub fn multiply<'a>(
    left: impl Into<Operand<'a, PackedLeft>>,
    right: impl Into<Operand<'a, PackedRight>>,
    out: Rows,
    epilogue: &Epilogue,
) {
    let left = match left.into() {
        Operand::View(view) => Left::View(view),
        Operand::Packed(PackedLeft(strips)) => Left::Strips(strips),
    };
    let right = match right.into() {
        Operand::View(view) => Right::View(view),
        Operand::Packed(PackedRight(strips)) => Right::Strips(strips),
    };
    divide(left, right, out, epilogue);
}

/// The right operand as the parts of a product get it.
#[derive(Clone, Copy)]
enum Right<'a> {
    /// Each part packs what it reads: a strip packed by one core is slow to read for another.
    View(View<'a>),
    Strips(&'a Strips),
}

impl Right<'_> {
    fn n_cols(&self) -> usize {
        match self {
            Right::View(view) => view.cols,
            Right::Strips(strips) => strips.lines,
        }
    }

    fn depth(&self) -> usize {
        match self {
            Right::View(view) => view.rows,
            Right::Strips(strips) => strips.depth,
        }
    }
}

/// One product among many: its operands and where it goes.
#[derive(Debug)]
pub struct Product<'a> {
    /// The left operand.
    pub left: View<'a>,
    /// The right operand.
    pub right: View<'a>,
    /// The output.
    pub out: Rows<'a>,
}

/// Writes many products, each finished by `epilogue`: the heads of an attention.
///
/// Products run side by side when there are enough of them, otherwise one after another on all
/// threads.
pub fn multiply_each(mut products: Vec<Product>, epilogue: &Epilogue) {
    let one = |p: &mut Product| {
        let part = Part { out: std::mem::take(&mut p.out), row: 0, col: 0 };
        part.run(Left::View(p.left), Right::View(p.right), epilogue);
    };
    let work: usize = products.iter().map(|p| p.left.rows * p.left.cols * p.right.cols).sum();
    let n_threads = rayon::current_num_threads();
    if n_threads == 1 || work < 2 * PART_WORK_MIN {
        products.iter_mut().for_each(one);
    } else if products.len() >= 2 * n_threads || products.len().is_multiple_of(n_threads) {
        let together = products.len().div_ceil(4 * n_threads);
        products.par_chunks_mut(together).for_each(|some| some.iter_mut().for_each(one));
    } else {
        for p in products {
            multiply(p.left, p.right, p.out, epilogue);
        }
    }
}

/// Multiply-adds worth handing to another thread: about 30 microseconds of one core.
const PART_WORK_MIN: usize = 1 << 21;

/// Parts per thread, so that a thread slowed by other programs is helped out by the rest.
const PARTS_PER_THREAD: usize = 4;

/// Cuts the output into parts and runs them on all threads.
fn divide(left: Left, right: Right, out: Rows, epilogue: &Epilogue) {
    assert_eq!(left.depth(), right.depth(), "both operands have the same depth");
    assert_eq!(left.n_rows(), out.n_rows(), "the output has the left operand's rows");
    assert!(out.n_rows() == 0 || out.n_cols() == right.n_cols(), "and the right operand's columns");
    if let Some(residual) = epilogue.residual {
        let shape = (out.n_rows(), right.n_cols());
        assert_eq!((residual.rows, residual.cols), shape, "the residual is shaped like the output");
    }
    let n_threads = rayon::current_num_threads();
    let work = out.n_rows() * right.depth() * right.n_cols();
    let n_parts = (work / PART_WORK_MIN).min(n_threads * PARTS_PER_THREAD);
    let all = Part { out, row: 0, col: 0 };
    if n_threads == 1 || n_parts < 2 {
        return all.run(left, right, epilogue);
    }
    let parts = all.cut(right, n_parts, n_threads);
    parts.into_par_iter().with_max_len(1).for_each(|part| part.run(left, right, epilogue));
}

/// A rectangle of the output and where it lies.
struct Part<'a> {
    out: Rows<'a>,
    row: usize,
    /// A multiple of the width of a strip.
    col: usize,
}

impl<'a> Part<'a> {
    fn run(self, left: Left, right: Right, epilogue: &Epilogue) {
        match right {
            Right::Strips(right) => {
                let first = self.col / right.width;
                with_simd(Run { left, right, first, epilogue, part: self });
            }
            Right::View(view) => {
                with_packed_right(view.columns(self.col, self.out.n_cols()), |right| {
                    with_simd(Run { left, right: &right.0, first: 0, epilogue, part: self })
                })
            }
        }
    }

    /// About `n_parts` parts: along the axis that divides evenly among the threads, along the
    /// columns when both do, since the right operand is then read by one thread only.
    fn cut(self, right: Right, n_parts: usize, n_threads: usize) -> Vec<Part<'a>> {
        let width = with_simd(StripWidth);
        let n_strips = right.n_cols().div_ceil(width);
        let n_tiles = self.out.n_rows().div_ceil(TILE_ROWS);
        let uneven = |n: usize| n.div_ceil(n_threads) * n_threads * 1000 / n;
        if uneven(n_strips) <= uneven(n_tiles) {
            self.cut_cols(n_strips.div_ceil(n_parts.min(n_strips)) * width)
        } else {
            // Every part packs the whole right side, so there are no more of them than threads.
            let n_parts = if let Right::View(_) = right { n_threads } else { n_parts };
            self.cut_rows(n_tiles.div_ceil(n_parts.min(n_tiles)) * TILE_ROWS)
        }
    }

    fn cut_cols(mut self, share: usize) -> Vec<Part<'a>> {
        let mut parts = Vec::new();
        for col in (0..self.out.n_cols()).step_by(share) {
            let n_cols = share.min(self.out.n_cols());
            parts.push(Part { out: self.out.take_cols(n_cols), row: self.row, col });
        }
        parts
    }

    fn cut_rows(mut self, share: usize) -> Vec<Part<'a>> {
        let mut parts = Vec::new();
        for row in (0..self.out.n_rows()).step_by(share) {
            let n_rows = share.min(self.out.n_rows());
            parts.push(Part { out: self.out.take_rows(n_rows), row, col: self.col });
        }
        parts
    }
}

/// Rows are cut at multiples of this, a multiple of every tile's height.
const TILE_ROWS: usize = 8;

/// Packs `view` as the right operand of a few products on this thread, in memory that is kept.
pub(super) fn with_packed_right<R>(view: View, f: impl FnOnce(&PackedRight) -> R) -> R {
    thread_local! {
        /// More than one while calls are nested, or while one waits and its thread runs another.
        static MEMORY: RefCell<Vec<Strips>> = RefCell::default();
    }
    let memory = MEMORY.with_borrow_mut(Vec::pop).unwrap_or_default();
    let packed = PackedRight(with_simd(PackCols { view, memory }));
    let result = f(&packed);
    MEMORY.with_borrow_mut(|kept| kept.push(packed.0));
    result
}

/// [`multiply`] on this thread alone.
pub(super) fn multiply_here(left: View, right: &PackedRight, out: Rows, epilogue: &Epilogue) {
    Part { out, row: 0, col: 0 }.run(Left::View(left), Right::Strips(&right.0), epilogue);
}

struct PackRows<'a>(View<'a>);

impl Task for PackRows<'_> {
    type Output = Strips;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> Strips {
        Strips::of_rows::<S>(self.0)
    }
}

struct PackCols<'a> {
    view: View<'a>,
    memory: Strips,
}

impl Task for PackCols<'_> {
    type Output = Strips;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> Strips {
        self.memory.refilled_with_cols::<S>(self.view)
    }
}

struct StripWidth;

impl Task for StripWidth {
    type Output = usize;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> usize {
        S::LANES * simd::VECTORS
    }
}

/// One part of a product, on one thread.
struct Run<'a> {
    left: Left<'a>,
    right: &'a Strips,
    /// The strip that has the part's first column.
    first: usize,
    epilogue: &'a Epilogue<'a>,
    part: Part<'a>,
}

impl Task for Run<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Run { left, right, first, epilogue, part: Part { mut out, row, col } } = self;
        let n_cols = out.n_cols();
        let rounding = epilogue.rounding;
        let start = rounding.sums_from();
        for (strip, begin) in (first..).zip((0..n_cols).step_by(right.width)) {
            let cols = begin..n_cols.min(begin + right.width);
            if rounding.adds_in_tiles() || right.depth == 0 {
                out.rows.iter_mut().for_each(|row| row[cols.clone()].fill(start));
            }
            if rounding.adds_in_tiles() {
                let sums = (&mut out.rows[..], cols.clone());
                engine::strip(left, right, strip, (row, S::ROWS), sums, rounding);
            } else {
                let cols = (cols.clone(), start);
                tile::strip(simd, left, right, strip, row, &mut out.rows, cols);
            }
            if start != 0.0 {
                for row in out.rows.iter_mut() {
                    row[cols.clone()].iter_mut().for_each(|x| *x -= start);
                }
            }
            epilogue.apply(&mut out.rows, cols, (row, col + begin));
        }
    }
}

/// Runs `task` with the best instructions this processor has.
fn with_simd<T: Task>(task: T) -> T::Output {
    with_isa(Isa::best(), task)
}

fn with_isa<T: Task>(isa: Isa, task: T) -> T::Output {
    assert!(isa <= Isa::best(), "this processor lacks {isa:?}");
    match isa {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the assertion above: all these features were detected.
        Isa::Avx512 => unsafe { simd::Avx512::new() }.call(task),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the assertion above: all these features were detected.
        Isa::Avx2 => unsafe { simd::Avx2::new() }.call(task),
        #[cfg(all(target_arch = "aarch64", not(miri)))]
        // SAFETY: NEON is part of the aarch64 baseline.
        _ => unsafe { simd::Neon::new() }.call(task),
        #[cfg(not(all(target_arch = "aarch64", not(miri))))]
        _ => simd::Portable.call(task),
    }
}

#[cfg(test)]
mod tests;
