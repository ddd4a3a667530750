//! Ops that read or write elements at indices; one outside of its axis is an error.

use russet_ir::Value;
use russet_ir::ops::{
    GatherAlongAxis, GatherNd, Scatter, ScatterAlongAxis, ScatterMode, ScatterNd, SliceUpdate,
};

use super::places::{each_index, place, separable};
use super::{Operands, checked_len};
use crate::kernels::binary::Binary;
use crate::kernels::strided;
use crate::{Array, ExecError, Numbers};

/// Where the slices begin that rows of `depth` indices name, on axes of these extents.
fn slices(
    x: &Operands<'_>,
    indices: &[i32],
    depth: usize,
    extents: &[usize],
) -> Result<Vec<usize>, ExecError> {
    let strides = strided::strides(extents);
    let at = |row: &[i32]| {
        let axes = row.iter().zip(extents).zip(&strides);
        axes.map(|((&i, &n), s)| Ok(x.index(i.into(), n)? * s)).sum::<Result<usize, ExecError>>()
    };
    match depth {
        0 => Ok(Vec::new()),
        _ => indices.chunks(depth).map(at).collect(),
    }
}

pub(super) fn gather_nd(x: &Operands<'_>, op: &GatherNd) -> Result<Array, ExecError> {
    let (a, indices) = (x.array(op.x)?, x.array(op.indices)?);
    let at = indices.as_i32().ok_or_else(|| x.fail("its indices are not integers"))?;
    let batch = usize::try_from(op.batch_dims).ok().filter(|&b| b < indices.shape.len());
    let batch = batch.filter(|&b| a.shape.get(..b) == Some(&indices.shape[..b]));
    let batch = batch.ok_or_else(|| x.fail(format!("batch_dims {}", op.batch_dims)))?;
    let (rows, depth) =
        (&indices.shape[..indices.shape.len() - 1], indices.shape[indices.shape.len() - 1]);
    let rest = a.shape.get(batch + depth..);
    let rest = rest.ok_or_else(|| x.fail(format!("{depth} indices into {:?}", a.shape)))?;
    let shape = [rows, rest].concat();
    let mut places = Vec::with_capacity(checked_len(&shape)?);
    let inner: usize = rest.iter().product();
    let n_rows: usize = rows.iter().product();
    let n_batches: usize = a.shape[..batch].iter().product();
    let named = &a.shape[batch..batch + depth];
    let whole = inner * named.iter().product::<usize>();
    let starts = match depth {
        0 => vec![0; n_rows],
        _ => slices(x, at, depth, named)?,
    };
    let rows_each = n_rows.checked_div(n_batches).unwrap_or(0);
    for (i, start) in starts.into_iter().enumerate() {
        let first = i.checked_div(rows_each).unwrap_or(0) * whole + start * inner;
        places.extend(first..first + inner);
    }
    if places.iter().any(|&p| p >= a.n_elements()) {
        return Err(x.fail(format!("indices of {:?} into {:?}", indices.shape, a.shape)));
    }
    Ok(Array { shape, data: a.data.pick(&places) })
}

/// For every index along `axis`, the place it names in a tensor of this shape.
fn along(
    x: &Operands<'_>,
    indices: &Array,
    shape: &[usize],
    axis: usize,
) -> Result<Vec<usize>, ExecError> {
    let at = indices.as_i32().ok_or_else(|| x.fail("its indices are not integers"))?;
    let same = (0..shape.len()).all(|i| i == axis || indices.shape.get(i) == Some(&shape[i]));
    if !same || indices.shape.len() != shape.len() {
        return Err(x.fail(format!("indices of {:?} for {shape:?}", indices.shape)));
    }
    let strides = strided::strides(shape);
    let mut places = Vec::with_capacity(at.len());
    each_index(&indices.shape, |index| {
        places.push(place(index, &strides) - index[axis] * strides[axis]);
    });
    let n = shape[axis];
    let placed = places.iter().zip(at).map(|(p, &i)| Ok(p + x.index(i.into(), n)? * strides[axis]));
    placed.collect()
}

pub(super) fn gather_along_axis(
    x: &Operands<'_>,
    op: &GatherAlongAxis,
) -> Result<Array, ExecError> {
    let (a, indices) = (x.array(op.x)?, x.array(op.indices)?);
    let axis = x.axis(op.axis, a.shape.len())?;
    let places = along(x, &indices, &a.shape, axis)?;
    Ok(Array { shape: indices.shape.clone(), data: a.data.pick(&places) })
}

/// `data` with the element at each place combined with an update, one after the other.
fn scattered(
    x: &Operands<'_>,
    data: Value,
    updates: Value,
    places: &[usize],
    mode: ScatterMode,
) -> Result<Array, ExecError> {
    let (a, updates) = (x.array(data)?, x.array(updates)?);
    if updates.n_elements() != places.len() || places.iter().any(|&p| p >= a.n_elements()) {
        return Err(x.fail(format!("updates of {:?} for {} places", updates.shape, places.len())));
    }
    let shape = a.shape.clone();
    match (&a.data, &updates.data) {
        (Numbers::F32(old), Numbers::F32(new)) => {
            let mut out = old.clone();
            places.iter().zip(new).for_each(|(&p, &v)| out[p] = combined(mode, out[p], v));
            Ok(x.stored(shape, out))
        }
        (Numbers::I32(old), Numbers::I32(new)) => {
            let mut out = old.clone();
            places.iter().zip(new).for_each(|(&p, &v)| out[p] = combined_ints(mode, out[p], v));
            Ok(Array::i32(shape, out))
        }
        _ => Err(x.fail("its data and updates are of different kinds")),
    }
}

fn combined(mode: ScatterMode, old: f32, new: f32) -> f32 {
    match mode {
        ScatterMode::Update => new,
        ScatterMode::Add => old + new,
        ScatterMode::Sub => old - new,
        ScatterMode::Mul => old * new,
        ScatterMode::Div => old / new,
        ScatterMode::Max => Binary::Max.of(old, new),
        ScatterMode::Min => Binary::Min.of(old, new),
    }
}

/// Quotients are taken towards zero; division by zero is 0.
fn combined_ints(mode: ScatterMode, old: i32, new: i32) -> i32 {
    match mode {
        ScatterMode::Update => new,
        ScatterMode::Add => old.wrapping_add(new),
        ScatterMode::Sub => old.wrapping_sub(new),
        ScatterMode::Mul => old.wrapping_mul(new),
        ScatterMode::Div if new == 0 => 0,
        ScatterMode::Div => old.wrapping_div(new),
        ScatterMode::Max => old.max(new),
        ScatterMode::Min => old.min(new),
    }
}

pub(super) fn scatter(x: &Operands<'_>, op: &Scatter) -> Result<Array, ExecError> {
    let shape = x.array(op.data)?.shape.clone();
    let axis = x.axis(op.axis, shape.len())?;
    let at = x.ints(op.indices)?;
    let at = at.iter().map(|&i| x.index(i, shape[axis])).collect::<Result<Vec<_>, _>>()?;
    let whole = |n: usize| (0..n).map(Some).collect::<Vec<_>>();
    let mut chosen: Vec<Vec<Option<usize>>> = shape.iter().map(|&n| whole(n)).collect();
    chosen[axis] = at.into_iter().map(Some).collect();
    checked_len(&chosen.iter().map(Vec::len).collect::<Vec<_>>())?;
    let places: Vec<usize> = separable(&shape, &chosen).into_iter().flatten().collect();
    scattered(x, op.data, op.updates, &places, op.mode)
}

pub(super) fn scatter_along_axis(
    x: &Operands<'_>,
    op: &ScatterAlongAxis,
) -> Result<Array, ExecError> {
    let shape = x.array(op.data)?.shape.clone();
    let axis = x.axis(op.axis, shape.len())?;
    let places = along(x, x.array(op.indices)?.as_ref(), &shape, axis)?;
    scattered(x, op.data, op.updates, &places, op.mode)
}

pub(super) fn scatter_nd(x: &Operands<'_>, op: &ScatterNd) -> Result<Array, ExecError> {
    let shape = x.array(op.data)?.shape.clone();
    let indices = x.array(op.indices)?;
    let at = indices.as_i32().ok_or_else(|| x.fail("its indices are not integers"))?;
    let (depth, rows) =
        indices.shape.split_last().ok_or_else(|| x.fail("its indices have no rows"))?;
    let named = shape.get(..*depth);
    let named = named.ok_or_else(|| x.fail(format!("{depth} indices into {shape:?}")))?;
    let starts = match depth {
        0 => vec![0; rows.iter().product()],
        _ => slices(x, at, *depth, named)?,
    };
    let inner: usize = shape[*depth..].iter().product();
    checked_len(&[starts.len(), inner])?;
    let places: Vec<usize> = starts.into_iter().flat_map(|s| s * inner..(s + 1) * inner).collect();
    scattered(x, op.data, op.updates, &places, op.mode)
}

pub(super) fn slice_update(x: &Operands<'_>, op: &SliceUpdate) -> Result<Array, ExecError> {
    let shape = x.array(op.x)?.shape.clone();
    let axes = super::movement::slice_axes(x, &op.slice(), &shape)?;
    let axis = |s: &russet_ir::ops::SliceAxis| {
        (0..s.n as i64).map(|k| Some((s.start as i64 + k * s.step) as usize)).collect()
    };
    let chosen: Vec<Vec<Option<usize>>> = axes.iter().map(axis).collect();
    let places: Vec<usize> = separable(&shape, &chosen).into_iter().flatten().collect();
    let (a, update) = (x.array(op.x)?, x.array(op.update)?);
    if update.n_elements() != places.len() {
        return Err(x.fail(format!("an update of {:?} for {} places", update.shape, places.len())));
    }
    fn replaced<T: Copy>(old: &[T], new: &[T], places: &[usize]) -> Vec<T> {
        let mut out = old.to_vec();
        places.iter().zip(new).for_each(|(&p, &v)| out[p] = v);
        out
    }
    let data = match (&a.data, &update.data) {
        (Numbers::F32(old), Numbers::F32(new)) => Numbers::F32(replaced(old, new, &places)),
        (Numbers::I32(old), Numbers::I32(new)) => Numbers::I32(replaced(old, new, &places)),
        (Numbers::Bool(old), Numbers::Bool(new)) => Numbers::Bool(replaced(old, new, &places)),
        _ => return Err(x.fail("its update is of another kind")),
    };
    Ok(Array { shape, data })
}
