//! Constants, and tensors made of a shape.

use russet_ir::ops::*;
use russet_ir::{DType, Tensor};

use super::super::cx::{Cx, Import, Outs};
use super::super::data;
use super::super::elem::Elem;
use super::super::importer::{Out, Why};
use super::super::lit::{Data, Lit, N_MAX};

pub fn find(op: &str) -> Option<Import> {
    Some(match op {
        "Constant" => constant,
        "Shape" => shape,
        "Size" => size,
        "ConstantOfShape" => constant_of_shape,
        "Range" => range,
        "EyeLike" => eye_like,
        _ => return None,
    })
}

fn constant(cx: &mut Cx<'_, '_>) -> Outs {
    let (tensor, elem) = if let Some(t) = cx.attrs.tensor("value") {
        data::tensor(t, cx.im.files)?
    } else if let Some(i) = cx.attrs.int("value_int") {
        (int64(vec![], &[i])?, Elem::I64)
    } else if let Some(v) = cx.attrs.ints("value_ints") {
        (int64(vec![v.len()], v)?, Elem::I64)
    } else if let Some(x) = cx.attrs.float("value_float") {
        (Tensor::f32(vec![], &[x]), Elem::F32)
    } else if let Some(v) = cx.attrs.floats("value_floats") {
        (Tensor::f32(vec![v.len() as u64], v), Elem::F32)
    } else if let Some(s) = cx.attrs.text("value_string") {
        (Tensor::string(s), Elem::Str)
    } else if let Some(v) = cx.attrs.texts("value_strings") {
        let t = Tensor::strings(vec![v.len() as u64], v);
        (t.map_err(|e| Why(e.to_string()))?, Elem::Str)
    } else if let Some(s) =
        cx.attrs.attribute("sparse_value").and_then(|a| a.sparse_tensor.as_ref())
    {
        data::sparse(s, cx.im.files)?
    } else {
        return Err(Why::from("it has no value"));
    };
    Ok(vec![Out::Constant(tensor, elem)])
}

/// A constant of int64, as shapes are.
pub fn int64(shape: Vec<usize>, values: &[i64]) -> Result<Tensor, Why> {
    let lit = Lit::ints(Elem::I64, shape, values.to_vec());
    lit.tensor().ok_or_else(|| Why::from("a constant that has no form"))
}

fn shape(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.raw_first()?;
    let rank = cx.rank(x) as i64;
    let end = |i: i64| (if i < 0 { i.saturating_add(rank) } else { i }).clamp(0, rank);
    let (start, stop) = (end(cx.int_attr("start", 0)), end(cx.int_attr("end", rank)));
    let stop = stop.max(start);
    if let Some(fixed) = cx.fixed_shape(x) {
        let fixed: Vec<i64> = fixed.iter().map(|&d| d as i64).collect();
        let part = &fixed[start as usize..stop as usize];
        return Ok(vec![Out::Constant(int64(vec![part.len()], part)?, Elem::I64)]);
    }
    let mut y = cx.push(Shape { x })?;
    if (start, stop) != (0, rank) {
        y = cx.slice(y, 0, start, Some(stop))?;
    }
    cx.one(y, Elem::I64)
}

fn size(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.raw_first()?;
    if let Some(fixed) = cx.fixed_shape(x) {
        let n = fixed.iter().product::<u64>() as i64;
        return Ok(vec![Out::Constant(int64(vec![], &[n])?, Elem::I64)]);
    }
    let shape = cx.push(Shape { x })?;
    let y = cx.push(ReduceProd { x: shape, axes: None, keep_dims: false })?;
    cx.one(y, Elem::I64)
}

fn constant_of_shape(cx: &mut Cx<'_, '_>) -> Outs {
    let (value, elem) = match cx.attrs.tensor("value") {
        Some(t) => data::tensor(t, cx.im.files)?,
        None => (Tensor::f32(vec![1], &[0.0]), Elem::F32),
    };
    if value.n_elements() != 1 {
        return Err(Why(format!("its value has {} elements", value.n_elements())));
    }
    let known = cx.lit(0).and_then(|l| l.as_ints().map(<[i64]>::to_vec));
    if let (Some(shape), Some(one)) = (&known, Lit::of(&value, elem)) {
        let shape: Option<Vec<usize>> = shape.iter().map(|&d| usize::try_from(d).ok()).collect();
        let shape = shape.ok_or_else(|| Why(format!("a shape of {known:?}")))?;
        let n = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
        if let Some(n) = n.filter(|&n| n <= N_MAX) {
            let data = match one.data {
                Data::Ints(v) => Data::Ints(vec![v[0]; n]),
                Data::Floats(v) => Data::Floats(vec![v[0]; n]),
            };
            if let Some(t) = (Lit { elem, shape, data }).tensor() {
                return Ok(vec![Out::Constant(t, elem)]);
            }
        }
    }
    let shape = cx.x(0)?;
    let value = data::computed(&value, elem)?.reshaped(vec![]);
    let value = Some(cx.constant(value)?);
    let y = cx.push(Fill { shape, value })?;
    cx.one(y, elem)
}

fn range(cx: &mut Cx<'_, '_>) -> Outs {
    let mut ends = Vec::new();
    for i in 0..3 {
        let v = cx.x(i)?;
        let rank = cx.rank(v);
        ends.push(cx.squeeze(v, &(0..rank).collect::<Vec<_>>())?);
    }
    let y = cx.push(Range1d { end: ends[1], start: ends[0], step: ends[2] })?;
    cx.same(y)
}

fn eye_like(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.x(0)?;
    let elem = match cx.attrs.int("dtype") {
        Some(code) => Elem::from_code(i32::try_from(code).unwrap_or(0))?,
        None => cx.elem(0),
    };
    let shape = cx.need_shape(x, "an identity matrix")?;
    let [rows, columns] = shape[..] else { return Err(Why::from("a matrix is expected")) };
    if rows.saturating_mul(columns) > 1 << 24 {
        return Err(Why(format!("a matrix of {rows} by {columns}")));
    }
    let k = cx.int_attr("k", 0);
    let one = |i: u64, j: u64| f32::from(u8::from(j as i64 - i as i64 == k));
    let values: Vec<f32> = (0..rows).flat_map(|i| (0..columns).map(move |j| one(i, j))).collect();
    let y = cx.floats(shape, &values, DType::F32)?;
    let y = super::logic::to_elem(cx, y, elem)?;
    cx.one(y, elem)
}
