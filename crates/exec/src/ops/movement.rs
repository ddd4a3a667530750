//! Shape changes, slices, gathers and concatenation on arrays of any kind.

use russet_ir::ops::{
    Concat, ExpandDims, Gather, Reshape, SliceAxis, SliceByIndex, SliceBySize, Split, Squeeze,
    Transpose,
};
use russet_ir::{Tensor, resolve_axis};

use super::{Operands, checked_len, moved};
use crate::ane::{Rule, special};
use crate::kernels::strided::{self, Part};
use crate::{Array, ExecError, Numbers};

pub(super) fn reshape_op(x: &Operands<'_>, op: &Reshape) -> Result<Array, ExecError> {
    let target = x.ints(op.shape)?;
    let a = x.array(op.x)?.into_owned();
    let shape = reshape(&a.shape, &target);
    let shape = shape.ok_or_else(|| x.fail(format!("{:?} has no shape {target:?}", a.shape)))?;
    Ok(Array { shape, ..a })
}

/// `target` with each 0 replaced by the extent at that place, counted from the last axis, and its -1
/// by what is left. Of nothing, a zero may be meant.
pub(crate) fn reshape(from: &[usize], target: &[i64]) -> Option<Vec<usize>> {
    let n: usize = if from.contains(&0) { 0 } else { from.iter().product() };
    let copied = |(i, &d): (usize, &i64)| match (d, (from.len() + i).checked_sub(target.len())) {
        (0, Some(axis)) => from[axis] as i64,
        (0, None) => 1,
        _ => d,
    };
    let copied: Vec<i64> = target.iter().enumerate().map(copied).collect();
    filled_in(n, &copied).or_else(|| filled_in(n, target))
}

/// `target` with its -1 replaced, for `n` elements.
fn filled_in(n: usize, target: &[i64]) -> Option<Vec<usize>> {
    let given = target.iter().filter(|&&d| d != -1);
    let given = given.map(|&d| usize::try_from(d).ok());
    let product = given.clone().try_fold(1usize, |n, d| n.checked_mul(d?))?;
    let unknown = target.len() - given.count();
    if unknown > 1 || (unknown == 1 && product == 0) {
        return None;
    }
    let rest = if unknown == 1 { n / product } else { 1 };
    let dim = |&d: &i64| if d == -1 { rest } else { d as usize };
    (product * rest == n).then(|| target.iter().map(dim).collect())
}

pub(super) fn expand_dims(x: &Operands<'_>, op: &ExpandDims) -> Result<Array, ExecError> {
    let a = x.array(op.x)?.into_owned();
    let rank = a.shape.len() + op.axes.len();
    let at: Vec<usize> = op.axes.iter().map(|&i| x.axis(i, rank)).collect::<Result<_, _>>()?;
    let mut rest = a.shape.iter().copied();
    let dim = |i| if at.contains(&i) { Some(1) } else { rest.next() };
    let shape = (0..rank).map_while(dim).collect();
    Ok(Array { shape, ..a })
}

pub(super) fn squeeze(x: &Operands<'_>, op: &Squeeze) -> Result<Array, ExecError> {
    let a = x.array(op.x)?.into_owned();
    let rank = a.shape.len();
    let axes: Vec<usize> = match &op.axes {
        Some(axes) => axes.iter().map(|&i| x.axis(i, rank)).collect::<Result<_, _>>()?,
        None => (0..rank).filter(|&i| a.shape[i] == 1).collect(),
    };
    if axes.iter().any(|&i| a.shape[i] != 1) {
        return Err(x.fail(format!("axes {axes:?} of {:?} are not all 1", a.shape)));
    }
    let kept = a.shape.iter().enumerate().filter(|(i, _)| !axes.contains(i));
    let shape = kept.map(|(_, &d)| d).collect();
    Ok(Array { shape, ..a })
}

/// `perm` counted from the front.
pub(crate) fn transpose_axes(perm: &[i32], rank: usize) -> Option<Vec<usize>> {
    let axes: Option<Vec<usize>> = perm.iter().map(|&p| resolve_axis(p, rank)).collect();
    axes.filter(|a| a.len() == rank)
}

pub(super) fn transpose(x: &Operands<'_>, op: &Transpose) -> Result<Array, ExecError> {
    let a = x.array(op.x)?;
    let perm = transpose_axes(&op.perm, a.shape.len());
    let perm = perm.ok_or_else(|| x.fail(format!("perm {:?} of {:?}", op.perm, a.shape)))?;
    let shape: Vec<usize> = perm.iter().map(|&p| a.shape[p]).collect();
    let data = moved(&a.data, a.n_elements(), |from, to| {
        strided::transpose(from, &a.shape, &perm, to);
        Ok(())
    })?;
    Ok(Array { shape, data })
}

pub(super) fn concat_op(x: &Operands<'_>, op: &Concat) -> Result<Array, ExecError> {
    let arrays: Vec<_> = op.values.iter().map(|&v| x.array(v)).collect::<Result<_, _>>()?;
    let arrays: Vec<&Array> = arrays.iter().map(AsRef::as_ref).collect();
    let first = arrays.first().ok_or_else(|| x.fail("nothing to concatenate"))?;
    let axis = x.axis(op.axis, first.shape.len())?;
    concat(&arrays, axis, op.interleave).ok_or_else(|| x.fail("its operands do not fit together"))
}

/// Arrays one after another along `axis`, or taking turns along it; `None` when they do not fit.
pub(super) fn concat(arrays: &[&Array], axis: usize, interleave: bool) -> Option<Array> {
    let mut shape = arrays.first()?.shape.clone();
    let others = |s: &[usize]| (s[..axis].to_vec(), s[axis + 1..].to_vec());
    if arrays.iter().any(|a| a.shape.len() != shape.len() || others(&a.shape) != others(&shape)) {
        return None;
    }
    if interleave && arrays.iter().any(|a| a.shape[axis] != shape[axis]) {
        return None;
    }
    shape[axis] = arrays.iter().map(|a| a.shape[axis]).sum();
    let inner: usize = shape[axis + 1..].iter().product();
    let n = checked_len(&shape).ok()?;
    fn joined<T: Copy>(parts: &[(&[T], usize)], n: usize) -> Vec<T> {
        let row: usize = parts.iter().map(|p| p.1).sum();
        let n_rows = n.checked_div(row).unwrap_or(0);
        let mut out = Vec::with_capacity(n);
        for r in 0..n_rows {
            parts.iter().for_each(|(x, run)| out.extend_from_slice(&x[r * run..(r + 1) * run]));
        }
        out
    }
    // What one array adds before the next has its turn.
    let run = |a: &Array| if interleave { inner } else { a.shape[axis] * inner };
    let data = match &arrays[0].data {
        Numbers::F32(_) => {
            let parts: Option<Vec<_>> =
                arrays.iter().map(|a| Some((a.as_f32()?, run(a)))).collect();
            Numbers::F32(joined(&parts?, n))
        }
        Numbers::I32(_) => {
            let parts: Option<Vec<_>> =
                arrays.iter().map(|a| Some((a.as_i32()?, run(a)))).collect();
            Numbers::I32(joined(&parts?, n))
        }
        Numbers::Bool(_) => {
            let parts: Option<Vec<_>> =
                arrays.iter().map(|a| Some((a.as_bool()?, run(a)))).collect();
            Numbers::Bool(joined(&parts?, n))
        }
    };
    Some(Array { shape, data })
}

/// Extents of the parts of a split along an axis of extent `n`.
pub(crate) fn split_sizes(op: &Split, n: usize) -> Option<Vec<usize>> {
    Some(op.sizes(n as u64)?.into_iter().map(|s| s as usize).collect())
}

pub(super) fn split(x: &Operands<'_>, op: &Split) -> Result<Vec<Array>, ExecError> {
    let a = x.array(op.x)?;
    let axis = x.axis(op.axis, a.shape.len())?;
    let sizes = split_sizes(op, a.shape[axis]);
    let sizes = sizes.ok_or_else(|| x.fail(format!("{:?} does not split so", a.shape)))?;
    let mut begin = 0;
    let mut parts = Vec::new();
    for size in sizes {
        let mut ranges: Vec<SliceAxis> = a.shape.iter().map(|&n| whole(n)).collect();
        ranges[axis] = SliceAxis { start: begin as u64, n: size as u64, ..ranges[axis] };
        parts.push(slice(&a, &ranges)?);
        begin += size;
    }
    Ok(parts)
}

fn whole(n: usize) -> SliceAxis {
    SliceAxis { start: 0, step: 1, n: n as u64, squeezed: false }
}

/// The elements that `axes` choose; all of them lie in `a`.
fn slice(a: &Array, axes: &[SliceAxis]) -> Result<Array, ExecError> {
    let parts: Vec<Part> = axes
        .iter()
        .map(|s| Part { begin: s.start as usize, count: s.n as usize, step: s.step as isize })
        .collect();
    let n = parts.iter().map(|p| p.count).product();
    let data = moved(&a.data, n, |from, to| {
        if n > 0 {
            strided::slice(from, &a.shape, &parts, to);
        }
        Ok(())
    })?;
    let kept = axes.iter().filter(|s| !s.squeezed);
    Ok(Array { shape: kept.map(|s| s.n as usize).collect(), data })
}

pub(super) fn slice_by_index(x: &Operands<'_>, op: &SliceByIndex) -> Result<Array, ExecError> {
    let a = x.array(op.x)?;
    let axes = slice_axes(x, op, &a.shape)?;
    Ok(cropped(x, slice(&a, &axes)?, &axes))
}

/// A slice as the engine passes it on: one that begins inside a row has a limit on some chips.
fn cropped(x: &Operands<'_>, mut made: Array, axes: &[SliceAxis]) -> Array {
    if let Numbers::F32(numbers) = &mut made.data
        && x.rounding.has(Rule::OffsetSlice)
        && axes.last().is_some_and(|axis| axis.start > 0)
    {
        special::cropped(numbers);
    }
    made
}

/// What a slice takes along each axis of a shape.
pub(super) fn slice_axes(
    x: &Operands<'_>,
    op: &SliceByIndex,
    shape: &[usize],
) -> Result<Vec<SliceAxis>, ExecError> {
    let (begin, end) = (x.ints(op.begin)?, x.ints(op.end)?);
    if begin.len() != shape.len() || end.len() != shape.len() {
        return Err(x.fail("a begin and an end per axis are expected"));
    }
    let axis = |i: usize| {
        let chosen = op.axis(i, shape[i] as u64, begin[i], end[i]);
        let why =
            || x.fail(format!("{}..{} of axis {i}, which has {}", begin[i], end[i], shape[i]));
        chosen.ok_or_else(why)
    };
    (0..shape.len()).map(axis).collect()
}

pub(super) fn slice_by_size(x: &Operands<'_>, op: &SliceBySize) -> Result<Array, ExecError> {
    let (begin, size) = (x.ints(op.begin)?, x.ints(op.size)?);
    let a = x.array(op.x)?;
    if begin.len() != a.shape.len() || size.len() != a.shape.len() {
        return Err(x.fail("a begin and a size per axis are expected"));
    }
    let axis = |i: usize| {
        let n = a.shape[i] as i64;
        let taken = if size[i] == -1 { n - begin[i] } else { size[i] };
        let inside = begin[i] >= 0 && taken >= 0 && begin[i] + taken <= n;
        let chosen =
            SliceAxis { start: begin[i] as u64, step: 1, n: taken as u64, squeezed: false };
        inside
            .then_some(chosen)
            .ok_or_else(|| x.fail(format!("{taken} from {} of axis {i}, which has {n}", begin[i])))
    };
    let axes = (0..a.shape.len()).map(axis).collect::<Result<Vec<_>, _>>()?;
    Ok(cropped(x, slice(&a, &axes)?, &axes))
}

pub(super) fn gather(x: &Operands<'_>, op: &Gather) -> Result<Array, ExecError> {
    let (a, indices) = (x.array(op.x)?, x.array(op.indices)?);
    let axis = x.axis(op.axis, a.shape.len())?;
    let at = indices.as_i32().ok_or_else(|| x.fail("its indices are not integers"))?;
    let (len, inner) = (a.shape[axis], a.shape[axis + 1..].iter().product());
    // Each place of the leading axes has indices of its own.
    let batch = usize::try_from(op.batch_dims).ok().filter(|&b| b <= axis);
    let batch = batch.filter(|&b| indices.shape.get(..b) == Some(&a.shape[..b]));
    let batch = batch.ok_or_else(|| x.fail(format!("batch_dims {}", op.batch_dims)))?;
    let mut shape = a.shape[..axis].to_vec();
    shape.extend(&indices.shape[batch..]);
    shape.extend(&a.shape[axis + 1..]);
    let n: usize = a.shape[..batch].iter().product();
    let data = moved(&a.data, checked_len(&shape)?, |from, to| {
        let (n_from, n_at, n_to) = match n {
            0 => return Ok(()),
            n => (from.len() / n, at.len() / n, to.len() / n),
        };
        (0..n).try_for_each(|i| {
            let (from, to) = (&from[i * n_from..][..n_from], &mut to[i * n_to..][..n_to]);
            strided::gather(from, (len, inner), &at[i * n_at..][..n_at], to)
                .map_err(|e| x.fail(e.to_string()))
        })
    })?;
    Ok(Array { shape, data })
}

/// Rows of a constant table, decoded one by one: the table is never held as floats.
pub(crate) fn gather_rows(table: &Tensor, indices: &Array) -> Result<Array, ExecError> {
    let fail = |why: String| ExecError::unsupported("gather", why);
    let at = indices.as_i32().ok_or_else(|| fail("its indices are not integers".into()))?;
    let n_rows = table.shape[0];
    let mut shape = indices.shape.clone();
    shape.extend(table.shape[1..].iter().map(|&d| d as usize));
    let mut out = Vec::with_capacity(checked_len(&shape)?);
    for &i in at {
        let row = if i < 0 { i64::from(i) + n_rows as i64 } else { i.into() };
        let row = u64::try_from(row).ok().filter(|&r| r < n_rows);
        let row = row.ok_or_else(|| fail(format!("index {i} of a table of {n_rows} rows")))?;
        out.extend(table.rows(row, 1).to_f32());
    }
    Ok(Array::f32(shape, out))
}
