//! Ops that make arrays of a shape: repetition, filling, ranges, one-hot rows, stacking.

use russet_ir::Value;
use russet_ir::ops::{Fill, FillLike, Flatten2d, OneHot, Range1d, ReshapeLike, Stack, Tile};

use super::movement::concat;
use super::places::separable;
use super::{Operands, checked_len};
use crate::{Array, ExecError, Numbers};

pub(super) fn tile(x: &Operands<'_>, op: &Tile) -> Result<Array, ExecError> {
    let (a, reps) = (x.array(op.x)?, x.extents(op.reps)?);
    if reps.len() != a.shape.len() || reps.contains(&0) {
        return Err(x.fail(format!("{:?} repeated {reps:?} times", a.shape)));
    }
    let shape: Vec<usize> = a.shape.iter().zip(&reps).map(|(n, r)| n.saturating_mul(*r)).collect();
    checked_len(&shape)?;
    let axis = |(&n, &to): (&usize, &usize)| (0..to).map(|i| Some(i % n)).collect();
    let chosen: Vec<Vec<Option<usize>>> = a.shape.iter().zip(&shape).map(axis).collect();
    let places: Vec<usize> = separable(&a.shape, &chosen).into_iter().flatten().collect();
    Ok(Array { shape, data: a.data.pick(&places) })
}

pub(super) fn stack(x: &Operands<'_>, op: &Stack) -> Result<Array, ExecError> {
    let arrays = op.values.iter().map(|&v| Ok(x.array(v)?.into_owned()));
    let mut arrays: Vec<Array> = arrays.collect::<Result<_, ExecError>>()?;
    let rank = arrays.first().map_or(0, |a| a.shape.len()) + 1;
    let axis = x.axis(op.axis, rank)?;
    if arrays.iter().any(|a| a.shape.len() + 1 != rank || a.shape != arrays[0].shape) {
        return Err(x.fail("its operands are not all of one shape"));
    }
    arrays.iter_mut().for_each(|a| a.shape.insert(axis, 1));
    let arrays: Vec<&Array> = arrays.iter().collect();
    concat(&arrays, axis, false).ok_or_else(|| x.fail("its operands do not fit together"))
}

/// One element everywhere; fp32 zero when there is none.
fn filled(x: &Operands<'_>, shape: Vec<usize>, value: Option<Value>) -> Result<Array, ExecError> {
    let n = checked_len(&shape)?;
    let Some(value) = value else { return Ok(Array::f32(shape, vec![0.0; n])) };
    let value = x.array(value)?;
    if value.n_elements() != 1 {
        return Err(x.fail("its value is not a single element"));
    }
    Ok(Array { shape, data: value.data.pick(&vec![0; n]) })
}

pub(super) fn fill(x: &Operands<'_>, op: &Fill) -> Result<Array, ExecError> {
    filled(x, x.extents(op.shape)?, op.value)
}

pub(super) fn fill_like(x: &Operands<'_>, op: &FillLike) -> Result<Array, ExecError> {
    filled(x, x.array(op.ref_tensor)?.shape.clone(), op.value)
}

pub(super) fn range_1d(x: &Operands<'_>, op: &Range1d) -> Result<Array, ExecError> {
    let number = |v: Value| -> Result<f64, ExecError> {
        let a = x.array(v)?;
        let one = match &a.data {
            Numbers::F32(f) => f.first().map(|&f| f64::from(f)),
            Numbers::I32(i) => i.first().map(|&i| f64::from(i)),
            Numbers::Bool(_) => None,
        };
        one.filter(|_| a.n_elements() == 1).ok_or_else(|| x.fail("an end is not a number"))
    };
    let (end, start, step) = (number(op.end)?, number(op.start)?, number(op.step)?);
    let n = Range1d::count(end, start, step).and_then(|n| usize::try_from(n).ok());
    let n = n.ok_or_else(|| x.fail(format!("{start} to {end} by {step}")))?;
    let shape = vec![checked_len(&[n])?];
    let all = (0..n).map(|i| start + i as f64 * step);
    match &x.array(op.end)?.data {
        Numbers::I32(_) => Ok(Array::i32(shape, all.map(|v| v as i32).collect())),
        _ => Ok(x.stored(shape, all.map(|v| v as f32).collect())),
    }
}

/// An index that is not in the row, a negative one too, leaves the whole row off.
pub(super) fn one_hot(x: &Operands<'_>, op: &OneHot) -> Result<Array, ExecError> {
    let indices = x.array(op.indices)?;
    let at = indices.as_i32().ok_or_else(|| x.fail("its indices are not integers"))?;
    let size = x.one_int(op.one_hot_vector_size)?;
    let size = usize::try_from(size).map_err(|_| x.fail(format!("rows of {size}")))?;
    let axis = x.axis(op.axis, indices.shape.len() + 1)?;
    let mut shape = indices.shape.clone();
    shape.insert(axis, size);
    let mut places = Vec::with_capacity(checked_len(&shape)?);
    let inner: usize = indices.shape[axis..].iter().product();
    for row in at.chunks(inner.max(1)) {
        for i in 0..size {
            places.extend(row.iter().map(|&k| usize::from(usize::try_from(k) != Ok(i))));
        }
    }
    let value = |v: Option<Value>, absent: i32| match v {
        Some(v) => Ok(Array { shape: vec![1], ..x.array(v)?.into_owned() }),
        None => Ok::<_, ExecError>(Array::i32(vec![1], vec![absent])),
    };
    let (on, off) = (value(op.on_value, 1)?, value(op.off_value, 0)?);
    let both = concat(&[&on, &off], 0, false);
    let both = both.ok_or_else(|| x.fail("on and off are of different kinds"))?;
    Ok(Array { shape, data: both.data.pick(&places) })
}

pub(super) fn flatten2d(x: &Operands<'_>, op: &Flatten2d) -> Result<Array, ExecError> {
    let a = x.array(op.x)?.into_owned();
    let at = op.at(a.shape.len());
    let at = at.ok_or_else(|| x.fail(format!("axis {} of {:?}", op.axis, a.shape)))?;
    let shape = vec![a.shape[..at].iter().product(), a.shape[at..].iter().product()];
    Ok(Array { shape, ..a })
}

pub(super) fn reshape_like(x: &Operands<'_>, op: &ReshapeLike) -> Result<Array, ExecError> {
    let a = x.array(op.x)?.into_owned();
    let mut shape = Vec::new();
    for (i, &reference) in op.ref_tensors.iter().enumerate() {
        let of =
            |all: &[Value]| all.get(i).copied().ok_or_else(|| x.fail("a begin or end is missing"));
        let mask = x.array(of(&op.end_masks)?)?;
        let masked = mask.as_bool().and_then(|b| b.first().copied());
        let masked = masked.ok_or_else(|| x.fail("an end mask is not boolean"))?;
        let begin = x.one_int(of(&op.begins)?)?;
        let end = if masked { None } else { Some(x.one_int(of(&op.ends)?)?) };
        let from = x.array(reference)?;
        shape.extend_from_slice(&from.shape[ReshapeLike::run(begin, end, from.shape.len())]);
    }
    if checked_len(&shape)? != a.n_elements() {
        return Err(x.fail(format!("{:?} has no shape {shape:?}", a.shape)));
    }
    Ok(Array { shape, ..a })
}
