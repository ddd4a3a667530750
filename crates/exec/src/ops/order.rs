//! Ops along one axis: places of extremes, sorting, running sums.

use std::cmp::Ordering;

use russet_ir::Value;
use russet_ir::ops::{Argsort, Cumsum, IndexDType, Topk};

use super::Operands;
use crate::{Array, ExecError, Numbers};

/// The lines of elements along one axis: `n` elements each, `inner` apart.
#[derive(Clone, Copy)]
pub(super) struct Lines {
    pub outer: usize,
    pub n: usize,
    pub inner: usize,
}

impl Lines {
    pub fn new(shape: &[usize], axis: usize) -> Lines {
        Lines {
            outer: shape[..axis].iter().product(),
            n: shape[axis],
            inner: shape[axis + 1..].iter().product(),
        }
    }

    /// Where each line begins, in the order of the results with one element for each.
    pub fn starts(self) -> impl Iterator<Item = usize> {
        let whole = self.n * self.inner;
        (0..self.outer).flat_map(move |o| (0..self.inner).map(move |i| o * whole + i))
    }

    /// Where the elements of the line that begins at `start` are.
    pub fn places(self, start: usize) -> impl Iterator<Item = usize> {
        (0..self.n).map(move |k| start + k * self.inner)
    }
}

/// How an order begins.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum First {
    Largest,
    Smallest,
}

/// The order of elements of any kind, from the smallest; NaN comes last.
fn compare(data: &Numbers, a: usize, b: usize) -> Ordering {
    match data {
        Numbers::F32(x) => match x[a].partial_cmp(&x[b]) {
            Some(order) => order,
            None => x[a].is_nan().cmp(&x[b].is_nan()),
        },
        Numbers::I32(x) => x[a].cmp(&x[b]),
        Numbers::Bool(x) => x[a].cmp(&x[b]),
    }
}

/// The places `0..n` of a line in order; of equal elements, the first comes first.
fn sorted(data: &Numbers, lines: Lines, start: usize, first: First) -> Vec<usize> {
    let mut order: Vec<usize> = (0..lines.n).collect();
    let at = |k: usize| start + k * lines.inner;
    order.sort_by(|&a, &b| match first {
        First::Smallest => compare(data, at(a), at(b)),
        // NaN comes last here too.
        First::Largest => match (is_nan(data, at(a)), is_nan(data, at(b))) {
            (false, false) => compare(data, at(b), at(a)),
            (a, b) => a.cmp(&b),
        },
    });
    order
}

fn is_nan(data: &Numbers, at: usize) -> bool {
    matches!(data, Numbers::F32(x) if x[at].is_nan())
}

/// The element type of a place: uint16 keeps its low bits.
fn stored_places(places: Vec<usize>, dtype: IndexDType) -> Vec<i32> {
    let narrowed = |i: usize| match dtype {
        IndexDType::I32 => i as i32,
        IndexDType::U16 => (i as u16).into(),
    };
    places.into_iter().map(narrowed).collect()
}

/// Where the first extreme of each line is; the first NaN if there is one.
pub(super) fn extreme(
    x: &Operands<'_>,
    v: Value,
    axis: i32,
    keep_dims: bool,
    (first, dtype): (First, IndexDType),
) -> Result<Array, ExecError> {
    let a = x.array(v)?;
    let axis = x.axis(axis, a.shape.len())?;
    let lines = Lines::new(&a.shape, axis);
    if lines.n == 0 {
        return Err(x.fail("it is the place of an extreme of nothing"));
    }
    let best = |start: usize| {
        let better = |k: usize, best: usize| {
            let (k, best) = (start + k * lines.inner, start + best * lines.inner);
            match (is_nan(&a.data, k), is_nan(&a.data, best), first) {
                (_, true, _) => false,
                (true, false, _) => true,
                (_, _, First::Largest) => compare(&a.data, k, best).is_gt(),
                (_, _, First::Smallest) => compare(&a.data, k, best).is_lt(),
            }
        };
        (1..lines.n).fold(0, |best, k| if better(k, best) { k } else { best })
    };
    let mut shape = a.shape.clone();
    match keep_dims {
        true => shape[axis] = 1,
        false => drop(shape.remove(axis)),
    }
    Ok(Array::i32(shape, stored_places(lines.starts().map(best).collect(), dtype)))
}

pub(super) fn argsort(x: &Operands<'_>, op: &Argsort) -> Result<Array, ExecError> {
    let a = x.array(op.x)?;
    let axis = x.axis(op.axis, a.shape.len())?;
    let lines = Lines::new(&a.shape, axis);
    let first = if op.ascending { First::Smallest } else { First::Largest };
    let mut out = vec![0; a.n_elements()];
    for start in lines.starts() {
        let order = sorted(&a.data, lines, start, first);
        lines.places(start).zip(order).for_each(|(at, k)| out[at] = k as i32);
    }
    Ok(Array::i32(a.shape.clone(), out))
}

/// Always sorted, which is one of the orders that are allowed unsorted.
pub(super) fn topk(x: &Operands<'_>, op: &Topk) -> Result<Vec<Array>, ExecError> {
    let a = x.array(op.x)?;
    let axis = x.axis(op.axis, a.shape.len())?;
    let lines = Lines::new(&a.shape, axis);
    let k = usize::try_from(op.k).ok().filter(|&k| k <= lines.n);
    let k = k.ok_or_else(|| x.fail(format!("k {} of {} elements", op.k, lines.n)))?;
    let first = if op.ascending { First::Smallest } else { First::Largest };
    let mut shape = a.shape.clone();
    shape[axis] = k;
    let n: usize = shape.iter().product();
    let (mut from, mut places) = (vec![0; n], vec![0; n]);
    let kept = Lines { n: k, ..lines };
    for (start, to) in lines.starts().zip(kept.starts()) {
        for (at, place) in kept.places(to).zip(sorted(&a.data, lines, start, first)) {
            (from[at], places[at]) = (start + place * lines.inner, place);
        }
    }
    let mut made = vec![Array { shape: shape.clone(), data: a.data.pick(&from) }];
    if op.return_indices {
        let dtype = op.output_indices_dtype.unwrap_or(IndexDType::I32);
        made.push(Array::i32(shape, stored_places(places, dtype)));
    }
    Ok(made)
}

/// Sums of floats stay in f64 along a line and are rounded where they are stored.
pub(super) fn cumsum(x: &Operands<'_>, op: &Cumsum) -> Result<Array, ExecError> {
    let a = x.array(op.x)?;
    let axis = x.axis(op.axis, a.shape.len())?;
    let lines = Lines::new(&a.shape, axis);
    let walk = |start: usize| -> Vec<usize> {
        let places = lines.places(start);
        if op.reverse {
            places.collect::<Vec<_>>().into_iter().rev().collect()
        } else {
            places.collect()
        }
    };
    if let Some(ints) = a.as_i32() {
        let mut out = vec![0i32; ints.len()];
        for start in lines.starts() {
            let mut sum = 0i32;
            for at in walk(start) {
                let after = sum.wrapping_add(ints[at]);
                out[at] = if op.exclusive { sum } else { after };
                sum = after;
            }
        }
        return Ok(Array::i32(a.shape.clone(), out));
    }
    let floats = x.floats(&a)?;
    let mut out = vec![0f32; floats.len()];
    for start in lines.starts() {
        let mut sum = 0f64;
        for at in walk(start) {
            let after = sum + f64::from(floats[at]);
            out[at] = if op.exclusive { sum } else { after } as f32;
            sum = after;
        }
    }
    Ok(x.stored(a.shape.clone(), out))
}
