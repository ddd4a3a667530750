//! Sums, means and extremes over axes, and what is made of exponentials along one.

use russet_ir::ops::*;
use russet_ir::{DType, Value};

use super::super::cx::{Cx, Import, Outs, Part, small};
use super::super::elem::Elem;
use super::super::importer::{Out, Why};
use super::movement::reversed;

pub fn find(op: &str) -> Option<Import> {
    Some(match op {
        "ReduceSum" | "ReduceMean" | "ReduceMax" | "ReduceMin" | "ReduceProd" | "ReduceL1"
        | "ReduceL2" | "ReduceLogSum" | "ReduceLogSumExp" | "ReduceSumSquare" => reduce,
        "ArgMax" | "ArgMin" => extreme,
        "Softmax" | "LogSoftmax" | "Hardmax" => softmax,
        "CumSum" => cumsum,
        "CumProd" => cumprod,
        _ => return None,
    })
}

fn reduce(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.x(0)?;
    // Sums have had their axes as an operand for longer.
    let since = if cx.op == "ReduceSum" { 13 } else { 18 };
    let axes = cx.ints_either("axes", 1, since)?.filter(|a| !a.is_empty());
    let keep_dims = cx.flag("keepdims", true);
    let axes = match axes {
        Some(axes) => cx.axes(x, &axes)?,
        None if cx.flag("noop_with_empty_axes", false) => {
            let y = of_each(cx, x)?;
            return if y == x { Ok(vec![Out::Same(cx.val(0)?)]) } else { cx.same(y) };
        }
        None => (0..cx.rank(x)).collect(),
    };
    if axes.is_empty() {
        return Ok(vec![Out::Same(cx.val(0)?)]);
    }
    let axes = Some(small(&axes));
    let bool = cx.dtype(x) == DType::Bool;
    let x = if bool { cx.cast(x, DType::I32)? } else { x };
    let y = match cx.op {
        "ReduceSum" => cx.push(ReduceSum { x, axes, keep_dims })?,
        "ReduceMean" => cx.push(ReduceMean { x, axes, keep_dims })?,
        "ReduceMax" => cx.push(ReduceMax { x, axes, keep_dims })?,
        "ReduceMin" => cx.push(ReduceMin { x, axes, keep_dims })?,
        "ReduceProd" => cx.push(ReduceProd { x, axes, keep_dims })?,
        "ReduceL1" => cx.push(ReduceL1Norm { x, axes, keep_dims })?,
        "ReduceL2" => cx.push(ReduceL2Norm { x, axes, keep_dims })?,
        "ReduceLogSum" => cx.push(ReduceLogSum { x, axes, keep_dims })?,
        "ReduceLogSumExp" => cx.push(ReduceLogSumExp { x, axes, keep_dims })?,
        _ => cx.push(ReduceSumSquare { x, axes, keep_dims })?,
    };
    let y = if bool { cx.cast(y, DType::Bool)? } else { y };
    cx.same(y)
}

/// A reduction over no axis: what it does to each element by itself.
fn of_each(cx: &mut Cx<'_, '_>, x: Value) -> Result<Value, Why> {
    match cx.op {
        "ReduceL1" | "ReduceL2" => cx.push(Abs { x }),
        "ReduceSumSquare" => cx.push(Square { x }),
        "ReduceLogSum" => cx.push(Log { x, epsilon: 1e-45 }),
        _ => Ok(x),
    }
}

fn extreme(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.x(0)?;
    let axis = cx.axis(x, cx.int_attr("axis", 0))?;
    let keep_dims = cx.flag("keepdims", true);
    let last = cx.flag("select_last_index", false);
    let from = if last { reversed(cx, x, axis)? } else { x };
    let (axis_i, output_dtype) = (axis as i32, IndexDType::I32);
    let mut y = match cx.op {
        "ArgMax" => cx.push(ReduceArgmax { x: from, axis: axis_i, keep_dims, output_dtype })?,
        _ => cx.push(ReduceArgmin { x: from, axis: axis_i, keep_dims, output_dtype })?,
    };
    if last {
        let n = cx.need_extent(x, axis, "the last of several places")?;
        let end = cx.int_like(n as i32 - 1)?;
        y = cx.sub(end, y)?;
    }
    cx.one(y, Elem::I64)
}

fn softmax(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.x(0)?;
    let old = cx.version < 13;
    let axis = cx.int_attr("axis", if old { 1 } else { -1 });
    let rank = cx.rank(x);
    if rank == 0 {
        return Err(Why::from("it goes along an axis, of which there is none"));
    }
    let axis = if old && axis == rank as i64 { rank } else { cx.axis(x, axis)? };
    // Before opset 13: over all axes from there on.
    if old && axis + 1 != rank {
        let parts = cx.parts(x);
        let matrix = match cx.fixed_shape(x) {
            Some(shape) => {
                let n = |part: &[u64]| part.iter().product();
                cx.reshape_fixed(x, &[n(&shape[..axis]), n(&shape[axis..])])?
            }
            None => cx.push(Flatten2d { x, axis: axis as i32 })?,
        };
        let y = softmax_along(cx, matrix, 1)?;
        let y = cx.reshape(y, &parts)?;
        return cx.same(y);
    }
    let y = softmax_along(cx, x, axis)?;
    cx.same(y)
}

fn softmax_along(cx: &mut Cx<'_, '_>, x: Value, axis: usize) -> Result<Value, Why> {
    match cx.op {
        "Softmax" => cx.push(Softmax { x, axis: axis as i32 }),
        "LogSoftmax" => log_softmax(cx, x, axis),
        _ => {
            let place = cx.push(ReduceArgmax {
                x,
                axis: axis as i32,
                keep_dims: false,
                output_dtype: IndexDType::I32,
            })?;
            let size = cx.extent(x, axis)?;
            let size = cx.squeeze(size, &[0])?;
            let (one, zero) = (cx.number(1.0, x)?, cx.number(0.0, x)?);
            cx.push(OneHot {
                indices: place,
                one_hot_vector_size: size,
                axis: axis as i32,
                on_value: Some(one),
                off_value: Some(zero),
            })
        }
    }
}

/// `x - log(sum(exp(x)))`.
pub fn log_softmax(cx: &mut Cx<'_, '_>, x: Value, axis: usize) -> Result<Value, Why> {
    let axes = Some(small(&[axis]));
    let total = cx.push(ReduceLogSumExp { x, axes, keep_dims: true })?;
    cx.sub(x, total)
}

fn cumsum(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.x(0)?;
    let axis = cx.axis(x, cx.int(1, "axis")?)? as i32;
    let (exclusive, reverse) = (cx.flag("exclusive", false), cx.flag("reverse", false));
    let y = cx.push(Cumsum { x, axis, exclusive, reverse })?;
    cx.wrapped(y, cx.elem(0))
}

/// The product up to each element, by doubling the distance that is multiplied over.
fn cumprod(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.x(0)?;
    let axis = cx.axis(x, cx.int(1, "axis")?)?;
    let n = cx.need_extent(x, axis, "a running product")? as i64;
    let reverse = cx.flag("reverse", false);
    let mut y = if reverse { reversed(cx, x, axis)? } else { x };
    let shifted = |cx: &mut Cx<'_, '_>, y: Value, by: i64| -> Result<Value, Why> {
        let mut shape = cx.need_shape(y, "a running product")?;
        shape[axis] = by as u64;
        let one = cx.number(1.0, y)?;
        let parts: Vec<Part> = shape.into_iter().map(Part::N).collect();
        let dims = cx.shape_of(&parts, false)?;
        let ones = cx.push(Fill { shape: dims, value: Some(one) })?;
        let rest = cx.slice(y, axis, 0, Some(n - by))?;
        cx.concat(vec![ones, rest], axis)
    };
    if cx.flag("exclusive", false) && n > 0 {
        y = shifted(cx, y, 1)?;
    }
    let mut by = 1;
    while by < n {
        let before = shifted(cx, y, by)?;
        y = cx.mul(y, before)?;
        by *= 2;
    }
    let y = if reverse { reversed(cx, y, axis)? } else { y };
    cx.same(y)
}
