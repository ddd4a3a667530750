//! Integers that stand for floats, in the ops of ONNX Runtime's quantizer.
//!
//! Each operand is dequantized (constants stay compressed), the op computed in floats, and its
//! result quantized. ONNX Runtime multiplies integers; up to the last rounding that is the same.

use russet_ir::ops::*;
use russet_ir::{DType, Value};

use super::super::super::cx::{Cx, Import, Outs};
use super::super::super::elem::Elem;
use super::super::super::importer::{Out, Why};
use super::super::quantized::{dequantized, quantized, rounded, with_scale};
use super::attention::{Operands, attended};
use super::{Tables, embedded};

pub fn find(op: &str) -> Option<Import> {
    Some(match op {
        "DequantizeLinear" | "QuantizeLinear" => super::as_standard,
        "QLinearAdd" | "QLinearMul" => arithmetic,
        "QLinearSigmoid" | "QLinearLeakyRelu" | "QLinearSoftmax" => curve,
        "QLinearAveragePool" | "QLinearGlobalAveragePool" => pool,
        "QLinearReduceMean" => reduce_mean,
        "QLinearConcat" => concat,
        "QLinearWhere" => select,
        "QLinearConv" => conv,
        "QGemm" => gemm,
        "MatMulIntegerToFloat" => matmul_to_float,
        "DynamicQuantizeMatMul" => dynamic_matmul,
        "QAttention" => attention,
        "QEmbedLayerNormalization" => embed,
        "NhwcMaxPool" => max_pool,
        _ => return None,
    })
}

/// The only result: `y` in steps of operand `scale` from operand `zero`, in the type of that.
fn result(cx: &mut Cx<'_, '_>, y: Value, scale: usize, zero: usize) -> Outs {
    let elem = if cx.has(zero) { cx.elem(zero) } else { cx.elem(0) };
    let y = quantized(cx, y, (scale, zero), elem)?;
    cx.one(y, elem)
}

fn arithmetic(cx: &mut Cx<'_, '_>) -> Outs {
    let (a, b) = (dequantized(cx, 0, 1, 2)?, dequantized(cx, 3, 4, 5)?);
    let y = if cx.op == "QLinearAdd" { cx.add(a, b)? } else { cx.mul(a, b)? };
    result(cx, y, 6, 7)
}

fn curve(cx: &mut Cx<'_, '_>) -> Outs {
    let x = dequantized(cx, 0, 1, 2)?;
    let y = match cx.op {
        "QLinearSigmoid" => cx.push(Sigmoid { x })?,
        "QLinearLeakyRelu" => {
            let alpha = cx.float_attr("alpha", 0.01);
            cx.push(LeakyRelu { x, alpha })?
        }
        _ if cx.int_attr("opset", 13) >= 13 => {
            let axis = cx.axis(x, cx.int_attr("axis", -1))? as i32;
            cx.push(Softmax { x, axis })?
        }
        _ => return Err(Why::from("a softmax of before opset 13 with integers is not read")),
    };
    result(cx, y, 3, 4)
}

/// `f` on images whose channels are second, whatever they are here.
fn channels_second(
    cx: &mut Cx<'_, '_>,
    x: Value,
    last: bool,
    f: impl FnOnce(&mut Cx<'_, '_>, Value) -> Result<Value, Why>,
) -> Result<Value, Why> {
    let rank = cx.rank(x);
    if !last || rank < 3 {
        return f(cx, x);
    }
    let there: Vec<usize> = [0, rank - 1].into_iter().chain(1..rank - 1).collect();
    let back: Vec<usize> = [0].into_iter().chain(2..rank).chain([1]).collect();
    let x = cx.transpose(x, &there)?;
    let y = f(cx, x)?;
    cx.transpose(y, &back)
}

fn pool(cx: &mut Cx<'_, '_>) -> Outs {
    let x = dequantized(cx, 0, 1, 2)?;
    let op = match cx.op {
        "QLinearAveragePool" => "AveragePool",
        _ => "GlobalAveragePool",
    };
    let last = cx.flag("channels_last", false);
    let y = channels_second(cx, x, last, |cx, x| cx.standard(op, &[Some(x)]))?;
    result(cx, y, 3, 4)
}

fn reduce_mean(cx: &mut Cx<'_, '_>) -> Outs {
    let x = dequantized(cx, 0, 1, 2)?;
    let axes = cx.attrs.ints("axes").map(<[i64]>::to_vec);
    let axes = match axes {
        Some(axes) => cx.axes(x, &axes)?,
        None => (0..cx.rank(x)).collect(),
    };
    let axes = Some(super::super::super::cx::small(&axes));
    let keep_dims = cx.flag("keepdims", true);
    let y = cx.push(ReduceMean { x, axes, keep_dims })?;
    result(cx, y, 3, 4)
}

fn max_pool(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.x(0)?;
    let y = channels_second(cx, x, true, |cx, x| cx.standard("MaxPool", &[Some(x)]))?;
    cx.same(y)
}

/// Scale and zero point of the result come first.
fn concat(cx: &mut Cx<'_, '_>) -> Outs {
    let mut parts = Vec::new();
    for i in (2..cx.n_inputs()).step_by(3) {
        parts.push(dequantized(cx, i, i + 1, i + 2)?);
    }
    let first = *parts.first().ok_or("nothing to join")?;
    let axis = cx.axis(first, cx.int_attr("axis", 0))?;
    let y = cx.concat(parts, axis)?;
    result(cx, y, 0, 1)
}

fn select(cx: &mut Cx<'_, '_>) -> Outs {
    let cond = cx.x(0)?;
    let (a, b) = (dequantized(cx, 1, 2, 3)?, dequantized(cx, 4, 5, 6)?);
    let y = cx.standard("Where", &[Some(cond), Some(a), Some(b)])?;
    let elem = cx.elem(1);
    let y = quantized(cx, y, (7, 8), elem)?;
    cx.one(y, elem)
}

/// As the standard's, or with its channels last.
pub fn conv(cx: &mut Cx<'_, '_>) -> Outs {
    let x = dequantized(cx, 0, 1, 2)?;
    let weight = with_scale(cx, 3, 4, 5, 0)?;
    let bias = match cx.opt(8)? {
        Some(b) => {
            let (x_scale, w_scale) = (cx.x(1)?, cx.x(4)?);
            let both = cx.mul(x_scale, w_scale)?;
            let b = cx.cast(b, DType::F32)?;
            Some(cx.mul(b, both)?)
        }
        None => None,
    };
    let last = cx.flag("channels_last", false);
    let y =
        channels_second(cx, x, last, |cx, x| super::super::conv::convolved(cx, x, weight, bias))?;
    result(cx, y, 6, 7)
}

/// `alpha A B + C`, where `C` counts in steps of both scales.
fn gemm(cx: &mut Cx<'_, '_>) -> Outs {
    let (x, axis) = (dequantized(cx, 0, 1, 2)?, i64::from(!cx.flag("transB", false)));
    let y = with_scale(cx, 3, 4, 5, axis)?;
    let (transpose_x, transpose_y) = (cx.flag("transA", false), cx.flag("transB", false));
    let mut z = cx.push(Matmul { x, y, transpose_x, transpose_y })?;
    if let Some(c) = cx.opt(6)? {
        let (a, b) = (cx.x(1)?, cx.x(4)?);
        let both = cx.mul(a, b)?;
        let c = cx.cast(c, DType::F32)?;
        let c = cx.mul(c, both)?;
        z = cx.add(z, c)?;
    }
    let alpha = cx.float_attr("alpha", 1.0);
    if alpha != 1.0 {
        z = cx.scale(z, alpha.into())?;
    }
    match cx.has(7) {
        true => result(cx, z, 7, 8),
        false => cx.one(z, Elem::F32),
    }
}

fn matmul_to_float(cx: &mut Cx<'_, '_>) -> Outs {
    let x = dequantized(cx, 0, 2, 4)?;
    let y = with_scale(cx, 1, 3, 5, -1)?;
    let mut z = cx.matmul(x, y)?;
    if let Some(bias) = cx.opt(6)? {
        z = cx.add(z, bias)?;
    }
    cx.one(z, Elem::F32)
}

/// The left side is rounded to 256 steps between its smallest and its largest number.
fn dynamic_matmul(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.x(0)?;
    let x = stepped(cx, x)?;
    let y = with_scale(cx, 1, 2, 3, -1)?;
    let mut z = cx.matmul(x, y)?;
    if let Some(bias) = cx.opt(4)? {
        z = cx.add(z, bias)?;
    }
    cx.one(z, Elem::F32)
}

/// `x` as `DynamicQuantizeLinear` rounds it, in floats.
fn stepped(cx: &mut Cx<'_, '_>, x: Value) -> Result<Value, Why> {
    let low = cx.push(ReduceMin { x, axes: None, keep_dims: false })?;
    let high = cx.push(ReduceMax { x, axes: None, keep_dims: false })?;
    let zero = cx.number(0.0, x)?;
    let (low, high) = (cx.min(low, zero)?, cx.max(high, zero)?);
    let span = cx.sub(high, low)?;
    let steps = cx.number(255.0, x)?;
    let scale = cx.div(span, steps)?;
    // Of nothing but zeros every scale is as good.
    let one = cx.number(1.0, x)?;
    let nothing = cx.push(Equal { x: scale, y: zero })?;
    let scale = cx.select(nothing, one, scale)?;
    let start = cx.sub(zero, low)?;
    let start = cx.div(start, scale)?;
    let start = cx.push(Round { x: start })?;
    let whole = rounded(cx, x, scale, Some(start), Elem::U8)?;
    let whole = cx.cast(whole, DType::F32)?;
    let centred = cx.sub(whole, start)?;
    cx.mul(centred, scale)
}

fn attention(cx: &mut Cx<'_, '_>) -> Outs {
    let x = dequantized(cx, 0, 3, 6)?;
    let weight = with_scale(cx, 1, 4, 7, -1)?;
    let all = cx.matmul(x, weight)?;
    let bias = cx.x(2)?;
    let all = cx.add(all, bias)?;
    let operands =
        Operands { mask: cx.opt_val(5), past: cx.opt_val(8), bias: None, elem: Elem::F32 };
    attended(cx, all, operands)
}

fn embed(cx: &mut Cx<'_, '_>) -> Outs {
    let table = |cx: &mut Cx<'_, '_>, i: usize| dequantized(cx, 2 + i, 8 + i, 13 + i);
    let segments = if cx.has(4) { Some(table(cx, 2)?) } else { None };
    let tables = Tables {
        words: table(cx, 0)?,
        places: table(cx, 1)?,
        segments,
        gamma: table(cx, 3)?,
        beta: table(cx, 4)?,
    };
    let mask = cx.opt_val(7);
    let mut outs = embedded(cx, &tables, mask, None)?;
    outs.truncate(2);
    Ok(outs.into_iter().collect::<Vec<Out>>())
}
