//! Moving numbers: every layout op is one copy of a strided view into contiguous memory.
//!
//! An axis of a view is a length and a stride in the source; a stride of zero repeats, a negative
//! one walks backwards. Transposing, slicing, broadcasting and tiling only choose the axes.

use super::parallel;

/// One axis of a view of some numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    /// How many places it has.
    pub len: usize,
    /// From one place to the next, in the source.
    pub stride: isize,
}

/// The strides of contiguous memory.
pub fn strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i] * shape[i];
    }
    strides
}

/// The axes of contiguous memory.
pub fn axes(shape: &[usize]) -> Vec<Axis> {
    shape.iter().zip(strides(shape)).map(|(&len, s)| Axis { len, stride: s as isize }).collect()
}

/// The output's axis `i` is the source's axis `permutation[i]`.
pub fn transpose(x: &[f32], shape: &[usize], permutation: &[usize], out: &mut [f32]) {
    let from = axes(shape);
    copy(x, 0, permutation.iter().map(|&p| from[p]).collect(), out);
}

/// Along each axis `count` places from `begin`, every `step`; a step may be negative.
pub fn slice(x: &[f32], shape: &[usize], parts: &[Part], out: &mut [f32]) {
    let from = axes(shape);
    let start = parts.iter().zip(&from).map(|(p, axis)| p.begin * axis.stride as usize).sum();
    let to = parts.iter().zip(&from);
    let to = to.map(|(p, axis)| Axis { len: p.count, stride: axis.stride * p.step }).collect();
    copy(x, start, to, out);
}

/// What [`slice`] takes of one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The first place.
    pub begin: usize,
    /// How many places.
    pub count: usize,
    /// From one place to the next.
    pub step: isize,
}

/// Repeats the axes of length one, and leading axes, until the shape is `to`.
pub fn broadcast(x: &[f32], shape: &[usize], to: &[usize], out: &mut [f32]) {
    copy(x, 0, broadcast_axes(shape, to), out);
}

/// The axes of `shape` as seen from the wider shape `to`, after numpy's rule.
pub fn broadcast_axes(shape: &[usize], to: &[usize]) -> Vec<Axis> {
    let n_new = to.len().checked_sub(shape.len()).expect("a broadcast keeps every axis");
    let from = axes(shape);
    let axis = |(i, &len): (usize, &usize)| match i.checked_sub(n_new).map(|i| from[i]) {
        Some(axis) if axis.len == len => axis,
        Some(axis) => {
            assert_eq!(axis.len, 1, "{shape:?} broadcasts to {to:?}");
            Axis { len, stride: 0 }
        }
        None => Axis { len, stride: 0 },
    };
    to.iter().enumerate().map(axis).collect()
}

/// Repeats the whole of each axis `times` times.
pub fn tile(x: &[f32], shape: &[usize], times: &[usize], out: &mut [f32]) {
    let again = times.iter().map(|&len| Axis { len, stride: 0 });
    copy(x, 0, again.zip(axes(shape)).flat_map(|(again, axis)| [again, axis]).collect(), out);
}

/// Writes the view with these axes, whose first number is `x[start]`, one number after another.
pub fn copy(x: &[f32], start: usize, axes: Vec<Axis>, out: &mut [f32]) {
    let len: usize = axes.iter().map(|axis| axis.len).product();
    assert_eq!(len, out.len(), "the output is as large as the view");
    if len == 0 {
        return;
    }
    let mut axes = merged(axes);
    let last = axes.pop().unwrap_or(Axis { len: 1, stride: 1 });
    let unit = axes.iter().position(|axis| axis.stride == 1);
    if let (Some(unit), true) = (unit, last.stride != 1 && last.stride != 0) {
        return copy_swapped(x, start, &axes, unit, last, out);
    }
    parallel::pieces(out, last.len, |first, out| {
        for (row, out) in (first / last.len..).zip(out.chunks_exact_mut(last.len)) {
            copy_row(x, offset(start, &axes, row), last.stride, out);
        }
    });
}

fn copy_row(x: &[f32], at: usize, stride: isize, out: &mut [f32]) {
    match stride {
        1 => out.copy_from_slice(&x[at..][..out.len()]),
        0 => out.fill(x[at]),
        s if s > 0 => {
            out.iter_mut().zip(x[at..].iter().step_by(s as usize)).for_each(|(o, x)| *o = *x)
        }
        s => {
            let back = x[..=at].iter().rev().step_by(s.unsigned_abs());
            out.iter_mut().zip(back).for_each(|(o, x)| *o = *x);
        }
    }
}

/// Places on either side of a block; a block of the source and of the output fit the first cache.
const BLOCK: usize = 16;

/// [`copy`] where the source is contiguous along `axes[unit]` and the output along `last`: in
/// blocks, so that each cache line is read and written whole.
fn copy_swapped(x: &[f32], start: usize, axes: &[Axis], unit: usize, last: Axis, out: &mut [f32]) {
    // One slab: everything from axis `unit` inwards.
    let (outer, inner) = axes.split_at(unit);
    let n_unit = inner[0].len;
    let between = &inner[1..];
    let n_between: usize = between.iter().map(|axis| axis.len).product();
    let row = n_between * last.len;
    // Pieces are whole blocks of rows, and never span two slabs when they need not.
    parallel::pieces(out, row, |first, out| {
        let mut rows = out;
        let mut at = first / row;
        while !rows.is_empty() {
            let u = at % n_unit;
            let n = BLOCK.min(n_unit - u).min(rows.len() / row);
            let (block, rest) = rows.split_at_mut(n * row);
            let slab = offset(start, outer, at / n_unit) + u;
            for b in 0..n_between {
                let from = offset(slab, between, b);
                copy_block(x, from, last, &mut block[b * last.len..], row, n);
            }
            (rows, at) = (rest, at + n);
        }
    });
}

/// `n` rows of the output, `row` apart, whose sources lie next to each other.
fn copy_block(x: &[f32], from: usize, last: Axis, out: &mut [f32], row: usize, n: usize) {
    for begin in (0..last.len).step_by(BLOCK) {
        for c in begin..last.len.min(begin + BLOCK) {
            let at = from.wrapping_add_signed(c as isize * last.stride);
            for (i, x) in x[at..][..n].iter().enumerate() {
                out[i * row + c] = *x;
            }
        }
    }
}

/// Where place `index` of `axes`, counted in their order, lies.
pub fn offset(start: usize, axes: &[Axis], mut index: usize) -> usize {
    let mut at = start;
    for axis in axes.iter().rev() {
        at = at.wrapping_add_signed((index % axis.len) as isize * axis.stride);
        index /= axis.len;
    }
    at
}

/// The axes of the same numbers in the same order under another shape, unless they would have to be
/// moved. Both shapes have as many numbers.
pub fn reshaped(axes: &[Axis], shape: &[usize]) -> Option<Vec<Axis>> {
    if shape.contains(&0) {
        return Some(self::axes(shape));
    }
    let mut runs = merged(axes.to_vec()).into_iter();
    // What is left of the current run: each new axis takes its outermost part.
    let mut run = Axis { len: 1, stride: 1 };
    let axis = |&len: &usize| {
        if run.len == 1 && len > 1 {
            run = runs.next()?;
        }
        if !run.len.is_multiple_of(len) {
            return None;
        }
        run.len /= len;
        Some(Axis { len, stride: run.stride * run.len as isize })
    };
    shape.iter().map(axis).collect()
}

/// Without axes of length one, and with neighbours that are one axis joined.
fn merged(axes: Vec<Axis>) -> Vec<Axis> {
    let mut merged: Vec<Axis> = Vec::with_capacity(axes.len());
    for axis in axes.into_iter().filter(|axis| axis.len != 1) {
        match merged.last_mut() {
            Some(outer) if outer.stride == axis.stride * axis.len as isize => {
                *outer = Axis { len: outer.len * axis.len, stride: axis.stride };
            }
            _ => merged.push(axis),
        }
    }
    merged
}

/// Joins `parts` along an axis: each is its numbers and how many lie inside one place of the outer
/// axes (its length along the axis times the inner axes).
pub fn concat(parts: &[(&[f32], usize)], out: &mut [f32]) {
    let row: usize = parts.iter().map(|(_, run)| run).sum();
    let mut at = 0;
    for &(x, run) in parts.iter().filter(|(_, run)| *run > 0) {
        for (out, x) in out.chunks_exact_mut(row).zip(x.chunks_exact(run)) {
            out[at..at + run].copy_from_slice(x);
        }
        at += run;
    }
}

/// The reverse of [`concat`].
pub fn split(x: &[f32], parts: &mut [(&mut [f32], usize)]) {
    let row: usize = parts.iter().map(|(_, run)| run).sum();
    let mut at = 0;
    for (out, run) in parts.iter_mut().filter(|(_, run)| *run > 0) {
        for (out, x) in out.chunks_exact_mut(*run).zip(x.chunks_exact(row)) {
            out.copy_from_slice(&x[at..at + *run]);
        }
        at += *run;
    }
}

/// An index outside of the axis it selects from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexError {
    /// The index as given.
    pub index: i32,
    /// Which of the indices it is.
    pub position: usize,
    /// The length of the axis.
    pub len: usize,
}

impl std::fmt::Display for IndexError {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let IndexError { index, position, len } = self;
        write!(f, "index {index} (number {position}) is outside of an axis of {len}")
    }
}

impl std::error::Error for IndexError {}

/// For each place of the outer axes, the runs of `inner` numbers that `indices` name along an axis
/// of `len`; a negative index counts from the end.
///
/// Nothing is written when an index is out of range.
pub fn gather(
    x: &[f32],
    (len, inner): (usize, usize),
    indices: &[i32],
    out: &mut [f32],
) -> Result<(), IndexError> {
    let place = |(position, &index): (usize, &i32)| {
        let place = if index < 0 { index as i64 + len as i64 } else { index as i64 };
        let found = usize::try_from(place).ok().filter(|place| *place < len);
        found.ok_or(IndexError { index, position, len })
    };
    let places: Vec<usize> = indices.iter().enumerate().map(place).collect::<Result<_, _>>()?;
    if out.is_empty() {
        return Ok(());
    }
    for (x, out) in x.chunks_exact(len * inner).zip(out.chunks_exact_mut(places.len() * inner)) {
        for (place, out) in places.iter().zip(out.chunks_exact_mut(inner)) {
            out.copy_from_slice(&x[place * inner..][..inner]);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
