//! Products added as the first Neural Engine adds them: four at a time, with few bits.
//!
//! Four neighbouring products are added one after another, each sum kept to twelve bits, and enter
//! a wide sum together (`fp16-tiles`); subnormal operands count as zero (`flush-denormals`). It is a
//! loop over columns, which LLVM vectorises, several times slower than multiply-adds alone.

use std::ops::Range;

use super::strips::Strips;
use super::tile::Left;
use crate::ane::Rule;
use crate::kernels::rounding::{Rounding, flushed, twelve_bit_sum};

/// Products that are added before they enter the wide sum.
const TILE: usize = 4;

/// Columns in the widest strip.
const WIDTH_MAX: usize = 48;

/// Adds strip `strip_idx` of the product to columns of some rows, `first_row` the first; the left
/// operand is packed `rows_per_strip` together, if it is.
#[inline(always)]
pub(super) fn strip(
    left: Left<'_>,
    right: &Strips,
    strip_idx: usize,
    (first_row, rows_per_strip): (usize, usize),
    (out, cols): (&mut [&mut [f32]], Range<usize>),
    rounding: Rounding,
) {
    let (width, depth) = (right.width_of(strip_idx), right.depth);
    let right = right.strip(strip_idx, 0, depth);
    let flushes = rounding.has(Rule::FlushDenormals);
    let keep = |x: f32| if flushes { flushed(x) } else { x };
    let tiles = rounding.has(Rule::Fp16Tiles);
    let together = if tiles { TILE } else { 1 };
    for (i, out) in out.iter_mut().enumerate() {
        let row = first_row + i;
        let out = &mut out[cols.clone()];
        for first in (0..depth).step_by(together) {
            let mut sums = [0.0f32; WIDTH_MAX];
            for k in first..depth.min(first + together) {
                let a = keep(match left {
                    Left::View(view) => view.at(row, k),
                    Left::Strips(s) => s.strip(row / rows_per_strip, k, 1)[row % rows_per_strip],
                });
                let b = &right[k * width..][..width];
                for (sum, &b) in sums.iter_mut().zip(b) {
                    let b = keep(b);
                    *sum = if tiles { twelve_bit_sum(*sum, a * b) } else { a.mul_add(b, *sum) };
                }
            }
            out.iter_mut().zip(&sums).for_each(|(out, sum)| *out += sum);
        }
    }
}
