//! Lists of tensors of one shape: arrays with one axis more, the first.
//!
//! An extent of the elements that is not known before something is written is 0 until then. A list
//! grows when something is written behind its end; what was never written is zeros.

use std::borrow::Cow;

use russet_ir::DType;
use russet_ir::ops::{ListGather, ListRead, ListScatter, MakeList};

use super::{Operands, checked_len};
use crate::{Array, ExecError, Numbers};

/// Zeros of the kind that holds `dtype`.
fn zeros(dtype: DType, n: usize) -> Numbers {
    match dtype {
        DType::Bool => Numbers::Bool(vec![false; n]),
        d if d.is_float() => Numbers::F32(vec![0.0; n]),
        _ => Numbers::I32(vec![0; n]),
    }
}

pub(super) fn make_list(x: &Operands<'_>, op: &MakeList) -> Result<Array, ExecError> {
    let n = usize::try_from(op.init_length.unwrap_or(1)).ok();
    let mut shape = vec![n.ok_or_else(|| x.fail("a negative length"))?];
    for &v in &op.elem_shape {
        // A name stands for an extent that is not known yet.
        match x.array(v) {
            Ok(_) => {
                for n in x.ints(v)? {
                    shape.push(usize::try_from(n).map_err(|_| x.fail("a negative extent"))?);
                }
            }
            Err(ExecError::DType { .. }) => shape.push(0),
            Err(e) => return Err(e),
        }
    }
    let data = zeros(op.dtype, checked_len(&shape)?);
    Ok(Array { shape, data })
}

/// The place of a single index.
pub(crate) fn place(x: &Operands<'_>, v: russet_ir::Value) -> Result<usize, ExecError> {
    let at = x.ints(v)?;
    let one = at.first().filter(|_| at.len() == 1);
    let one = one.and_then(|&i| usize::try_from(i).ok());
    one.ok_or_else(|| x.fail(format!("index {at:?} of a list")))
}

/// Puts `rows`, which have the elements' shape, at these places of the list.
pub(crate) fn write(
    x: &Operands<'_>,
    list: &mut Array,
    places: &[usize],
    (shape, rows): (&[usize], &Numbers),
) -> Result<(), ExecError> {
    let n = places.iter().map(|&p| p.saturating_add(1)).max().unwrap_or(0).max(list.shape[0]);
    let mut whole = vec![n];
    whole.extend_from_slice(shape);
    let len = checked_len(&whole)?;
    if list.shape[1..] != *shape {
        if list.n_elements() > 0 {
            let held = &list.shape[1..];
            return Err(x.fail(format!("{shape:?} in a list of {held:?}")));
        }
        list.data = match rows {
            Numbers::F32(_) => zeros(DType::F32, len),
            Numbers::I32(_) => zeros(DType::I32, len),
            Numbers::Bool(_) => zeros(DType::Bool, len),
        };
    }
    list.shape = whole;
    let row: usize = shape.iter().product();
    fn put<T: Copy>(
        list: &mut Vec<T>,
        len: usize,
        fill: T,
        places: &[usize],
        rows: &[T],
        row: usize,
    ) {
        list.resize(len, fill);
        for (&p, from) in places.iter().zip(rows.chunks_exact(row.max(1))) {
            list[p * row..][..row].copy_from_slice(from);
        }
    }
    match (&mut list.data, rows) {
        (Numbers::F32(l), Numbers::F32(r)) => put(l, len, 0.0, places, r, row),
        (Numbers::I32(l), Numbers::I32(r)) => put(l, len, 0, places, r, row),
        (Numbers::Bool(l), Numbers::Bool(r)) => put(l, len, false, places, r, row),
        _ => return Err(x.fail("another kind of number than the list holds")),
    }
    Ok(())
}

/// The rows at these places.
fn rows(x: &Operands<'_>, list: &Array, places: &[usize]) -> Result<Array, ExecError> {
    if let Some(p) = places.iter().find(|&&p| p >= list.shape[0]) {
        return Err(x.fail(format!("index {p} of a list of {}", list.shape[0])));
    }
    let row: usize = list.shape[1..].iter().product();
    let mut shape = list.shape.clone();
    shape[0] = places.len();
    checked_len(&shape)?;
    fn pick<T: Copy>(from: &[T], places: &[usize], row: usize) -> Vec<T> {
        places.iter().flat_map(|&p| &from[p * row..][..row]).copied().collect()
    }
    let data = match &list.data {
        Numbers::F32(l) => Numbers::F32(pick(l, places, row)),
        Numbers::I32(l) => Numbers::I32(pick(l, places, row)),
        Numbers::Bool(l) => Numbers::Bool(pick(l, places, row)),
    };
    Ok(Array { shape, data })
}

fn places(x: &Operands<'_>, v: russet_ir::Value) -> Result<Vec<usize>, ExecError> {
    let place = |i: i64| usize::try_from(i).map_err(|_| x.fail(format!("index {i} of a list")));
    x.ints(v)?.into_iter().map(place).collect()
}

pub(super) fn read(x: &Operands<'_>, op: &ListRead) -> Result<Array, ExecError> {
    let list = x.array(op.ls)?;
    let mut one = rows(x, &list, &[place(x, op.index)?])?;
    one.shape.remove(0);
    Ok(one)
}

pub(super) fn gather(x: &Operands<'_>, op: &ListGather) -> Result<Array, ExecError> {
    rows(x, &*x.array(op.ls)?, &places(x, op.indices)?)
}

pub(super) fn scatter(x: &Operands<'_>, op: &ListScatter) -> Result<Array, ExecError> {
    let (value, places) = (x.array(op.value)?, places(x, op.indices)?);
    let Some((&n, shape)) = value.shape.split_first() else {
        return Err(x.fail("a single number for several places"));
    };
    if n != places.len() {
        return Err(x.fail(format!("{n} rows for {} places", places.len())));
    }
    let mut list = x.array(op.ls).map(Cow::into_owned)?;
    write(x, &mut list, &places, (shape, &value.data))?;
    Ok(list)
}
