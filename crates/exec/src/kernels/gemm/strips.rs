//! An operand laid out the way the tiles read it.

use super::matrix::View;
use super::simd::{Simd, VECTORS};

/// An operand cut into strips of `width` lines: rows of a left operand, columns of a right one.
///
/// A strip is contiguous: for each step along the depth (the summed axis), one number per line.
/// The last strip is as narrow as `grain` allows, its missing lines are zero.
#[derive(Clone, Debug, Default)]
pub(super) struct Strips {
    data: Vec<f32>,
    /// Where the first cache line begins in `data`: loads that straddle lines cost twice.
    start: usize,
    pub lines: usize,
    pub depth: usize,
    pub width: usize,
    grain: usize,
}

/// Numbers in a cache line.
const CACHE_LINE: usize = 16;

impl Strips {
    /// The rows of `view`, for the left side of products by `S`.
    #[inline(always)]
    pub fn of_rows<S: Simd>(view: View) -> Strips {
        Strips::default().refilled::<S>(view, S::ROWS, S::ROWS)
    }

    /// The columns of `view`, for the right side of products by `S`, in the memory of `self`.
    #[inline(always)]
    pub fn refilled_with_cols<S: Simd>(self, view: View) -> Strips {
        self.refilled::<S>(view.transposed(), S::LANES * VECTORS, S::LANES)
    }

    #[inline(always)]
    fn refilled<S: Simd>(mut self, view: View, width: usize, grain: usize) -> Strips {
        (self.lines, self.depth, self.width, self.grain) = (view.rows, view.cols, width, grain);
        let len = self.lines.next_multiple_of(grain) * self.depth;
        if self.data.len() < len + CACHE_LINE {
            self.data = vec![0.0; len + CACHE_LINE];
        }
        // Under Miri the alignment may be unknown; any start is correct.
        self.start = self.data.as_ptr().align_offset(4 * CACHE_LINE).min(CACHE_LINE);
        let mut rest = &mut self.data[self.start..][..len];
        let firsts = (0..self.lines).step_by(width);
        let strips = firsts.map(|first| {
            let wide = strip_width(self.lines - first, width, grain);
            (first, wide, rest.split_off_mut(..wide * self.depth).expect("room for every strip"))
        });
        for (first, wide, strip) in strips {
            fill::<S>(strip, wide, view, first, width.min(view.rows - first));
        }
        self
    }

    /// The width of strip `idx`.
    #[inline(always)]
    pub fn width_of(&self, idx: usize) -> usize {
        strip_width(self.lines - idx * self.width, self.width, self.grain)
    }

    /// Strip `idx`, `len` steps from step `from`.
    #[inline(always)]
    pub fn strip(&self, idx: usize, from: usize, len: usize) -> &[f32] {
        let width = self.width_of(idx);
        let begin = self.start + idx * self.width * self.depth + from * width;
        &self.data[begin..][..len * width]
    }

    /// What follows step `to` of strip `idx` in memory: its next steps, then the next strip.
    #[inline(always)]
    pub fn after(&self, idx: usize, to: usize) -> &[f32] {
        let begin = self.start + idx * self.width * self.depth + to * self.width_of(idx);
        self.data.get(begin..).unwrap_or_default()
    }
}

fn strip_width(lines_left: usize, width: usize, grain: usize) -> usize {
    width.min(lines_left.next_multiple_of(grain))
}

/// Writes lines `first..first + n` of `view` side by side, `width` apart.
#[inline(always)]
fn fill<S: Simd>(strip: &mut [f32], width: usize, view: View, first: usize, n: usize) {
    if view.row_stride == 1 {
        for (d, to) in strip.chunks_exact_mut(width).enumerate() {
            // Whole registers first: a call of memcpy costs more than these copies.
            let from = view.col(first, d, n);
            let (whole, rest) = to.split_at_mut(n - n % S::LANES);
            S::lanes_mut(whole).iter_mut().zip(S::lanes(from)).for_each(|(to, from)| *to = *from);
            let (copied, missing) = rest.split_at_mut(n % S::LANES);
            copied.copy_from_slice(&from[n - n % S::LANES..]);
            missing.fill(0.0);
        }
        return;
    }
    let mut l = 0;
    if view.col_stride == 1 {
        while l + BLOCK <= n {
            let rows = std::array::from_fn(|i| view.row(first + l + i, 0, view.cols));
            interleave(strip, width, l, rows);
            l += BLOCK;
        }
    }
    for (d, to) in strip.chunks_exact_mut(width).enumerate() {
        for (i, x) in to[l..].iter_mut().enumerate() {
            *x = if l + i < n { view.at(first + l + i, d) } else { 0.0 };
        }
    }
}

/// Lines interleaved at once: small enough for LLVM to transpose in registers.
const BLOCK: usize = 4;

/// Writes `rows` as columns `at..at + BLOCK` of the strip.
fn interleave(strip: &mut [f32], width: usize, at: usize, rows: [&[f32]; BLOCK]) {
    let blocks = rows.map(|row| row.as_chunks::<BLOCK>().0);
    let n_blocks = blocks[0].len();
    let mut to = strip.chunks_exact_mut(width);
    for b in 0..n_blocks {
        let block = blocks.map(|row| row[b]);
        for i in 0..BLOCK {
            if let Some(to) = to.next() {
                to[at..at + BLOCK].copy_from_slice(&block.map(|row| row[i]));
            }
        }
    }
    for (d, to) in (n_blocks * BLOCK..).zip(to) {
        to[at..at + BLOCK].copy_from_slice(&rows.map(|row| row[d]));
    }
}
