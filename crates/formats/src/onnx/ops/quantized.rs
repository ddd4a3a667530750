//! Integers that stand for floats: weights that stay compressed, activations that are rounded.

use russet_ir::ops::*;
use russet_ir::{DType, Opset, Tensor, Value};

use super::super::cx::{Cx, Import, Outs};
use super::super::elem::Elem;
use super::super::importer::{Out, Why};
use super::conv::convolved;
use super::products::product;

pub fn find(op: &str) -> Option<Import> {
    Some(match op {
        "DequantizeLinear" => dequantize,
        "QuantizeLinear" => quantize,
        "DynamicQuantizeLinear" => dynamic_quantize,
        "MatMulInteger" => matmul_integer,
        "ConvInteger" => conv_integer,
        "QLinearMatMul" => qlinear_matmul,
        "QLinearConv" => qlinear_conv,
        _ => return None,
    })
}

fn dequantize(cx: &mut Cx<'_, '_>) -> Outs {
    let elem = match cx.int_attr("output_dtype", 0) {
        0 => cx.elem(1),
        code => Elem::from_code(code as i32)?,
    };
    let y = dequantized(cx, 0, 1, 2)?;
    let y = cx.cast(y, elem.computed())?;
    cx.one(y, elem)
}

/// Operand `data` as floats, `(data - zero) * scale`.
pub fn dequantized(
    cx: &mut Cx<'_, '_>,
    data: usize,
    scale: usize,
    zero: usize,
) -> Result<Value, Why> {
    let elem = cx.elem(data);
    let constant = |cx: &Cx<'_, '_>, i: usize| !cx.has(i) || cx.tensor(i).is_some();
    let all = [data, scale, zero].iter().all(|&i| constant(cx, i));
    let whole = cx.tensor(data).is_some_and(|t| !t.shape.is_empty() && t.n_elements() > 0);
    if all
        && whole
        && elem.is_int()
        && elem.stored().bits() <= 8
        && let Some(y) = compressed(cx, data, scale, zero)?
    {
        return Ok(y);
    }
    let raw = cx.raw(data)?;
    let scale_v = cx.x(scale)?;
    let narrow = matches!(cx.dtype(raw), DType::I8 | DType::U8);
    if narrow && all_but(cx, data, scale, zero) && cx.opset >= Opset::Ios17 && cx.rank(scale_v) <= 1
    {
        let axis = axis_of(cx, raw, scale_v)?;
        let zero_point = if cx.has(zero) { Some(cx.raw(zero)?) } else { None };
        let (scale, zero_point) = (single(cx, scale_v)?, optional_single(cx, zero_point)?);
        return cx.push(Dequantize { input: raw, zero_point, scale, axis });
    }
    // Plain arithmetic.
    let x = cx.x(data)?;
    let zero_v = cx.opt(zero)?;
    let dtype = cx.dtype(scale_v);
    let x = match zero_v {
        Some(z) => {
            let (wide, z) = (cx.cast(x, dtype)?, cx.cast(z, dtype)?);
            let z = spread(cx, x, z)?;
            cx.sub(wide, z)?
        }
        None => cx.cast(x, dtype)?,
    };
    let scale = spread(cx, x, scale_v)?;
    cx.mul(x, scale)
}

/// Are scale and zero point constants, whatever the data is?
fn all_but(cx: &Cx<'_, '_>, _data: usize, scale: usize, zero: usize) -> bool {
    cx.tensor(scale).is_some() && (!cx.has(zero) || cx.tensor(zero).is_some())
}

/// A vector of one as a scalar, as MIL has it.
fn single(cx: &mut Cx<'_, '_>, v: Value) -> Result<Value, Why> {
    match cx.fixed_shape(v).as_deref() {
        Some([1]) => match cx.im.graph.constant(v).map(|t| t.reshaped(vec![])) {
            Some(t) => cx.constant(t),
            None => cx.squeeze(v, &[0]),
        },
        _ => Ok(v),
    }
}

fn optional_single(cx: &mut Cx<'_, '_>, v: Option<Value>) -> Result<Option<Value>, Why> {
    match v {
        Some(v) => single(cx, v).map(Some),
        None => Ok(None),
    }
}

/// The axis a vector of scales goes along; None for a single one.
fn axis_of(cx: &Cx<'_, '_>, x: Value, scale: Value) -> Result<Option<i32>, Why> {
    match cx.fixed_shape(scale).as_deref() {
        Some([] | [1]) => Ok(None),
        _ => Ok(Some(cx.axis(x, scale_axis(cx))? as i32)),
    }
}

/// Scales or zero points as they broadcast with `x`: one, one along an axis, or one for each block.
fn spread(cx: &mut Cx<'_, '_>, x: Value, v: Value) -> Result<Value, Why> {
    let (rank, own) = (cx.rank(x), cx.rank(v));
    if own == 0 || cx.fixed_shape(v).as_deref() == Some(&[1]) {
        return if own == 1 { cx.squeeze(v, &[0]) } else { Ok(v) };
    }
    let axis = cx.axis(x, scale_axis(cx))?;
    if own == 1 {
        let others: Vec<usize> = (0..rank).filter(|&i| i != axis).collect();
        return cx.expand_dims(v, &others);
    }
    // Blocks along the axis.
    let (whole, n) = (cx.need_extent(x, axis, "blocks")?, cx.need_extent(v, axis, "blocks")?);
    if own != rank || n == 0 || whole > 1 << 24 {
        return Err(Why(format!("scales of rank {own} for rank {rank}")));
    }
    if whole == n {
        return Ok(v);
    }
    let block = match cx.int_attr("block_size", 0) {
        0 => whole.div_ceil(n),
        b => u64::try_from(b).unwrap_or(1),
    };
    let places: Vec<i64> = (0..whole).map(|i| (i / block).min(n - 1) as i64).collect();
    let indices = cx.vector(&places)?;
    super::movement::take(cx, v, indices, axis)
}

/// A constant that stays compressed in the package.
fn compressed(
    cx: &mut Cx<'_, '_>,
    data: usize,
    scale: usize,
    zero: usize,
) -> Result<Option<Value>, Why> {
    let (t, s) = match (cx.tensor(data), cx.tensor(scale)) {
        (Some(t), Some(s)) => (t, s),
        _ => return Ok(None),
    };
    if !matches!(cx.elem(scale), Elem::F32 | Elem::F16) {
        return Ok(None);
    }
    let z = cx.tensor(zero);
    let raw = cx.raw(data)?;
    let rank = t.shape.len();
    let axis = match s.shape.as_slice() {
        [] | [1] => 0,
        _ => cx.axis(raw, scale_axis(cx))?,
    };
    let bytes = matches!(t.dtype, DType::I8 | DType::U8);
    if cx.opset >= Opset::Ios16 && bytes && s.shape.len() <= 1 {
        let flat = |t: &Tensor| if t.n_elements() == 1 { t.reshaped(vec![]) } else { t.clone() };
        let z = match z {
            Some(z) if z.dtype == t.dtype && z.shape == s.shape => flat(&z),
            Some(_) => return Ok(None),
            None => zeros(t.dtype, vec![])?,
        };
        let zero_point = cx.constant(z)?;
        let scale = cx.constant(flat(&s))?;
        let axis = axis as i32;
        let op = ConstexprAffineDequantize { quantized_data: raw, zero_point, scale, axis };
        return cx.push(op).map(Some);
    }
    if cx.opset < Opset::Ios18 {
        return Ok(None);
    }
    // One scale for each block: every axis has as many as it has blocks.
    let blocks = |p: &Tensor| match p.shape.len() {
        0 => Some(p.reshaped(vec![1; rank])),
        1 if p.n_elements() == 1 => Some(p.reshaped(vec![1; rank])),
        1 => {
            let mut shape = vec![1; rank];
            shape[axis] = p.shape[0];
            Some(p.reshaped(shape))
        }
        n if n == rank => Some(p.clone()),
        _ => None,
    };
    let fits =
        |p: &Tensor| p.shape.iter().zip(&t.shape).all(|(&p, &n)| p > 0 && n.is_multiple_of(p));
    let Some(s) = blocks(&s).filter(fits) else { return Ok(None) };
    let offset = match z {
        Some(z) if z.dtype == t.dtype => match blocks(&z).filter(|z| z.shape == s.shape) {
            Some(z) => Some(cx.constant(z)?),
            None => return Ok(None),
        },
        Some(_) => return Ok(None),
        None => None,
    };
    let scale = cx.constant(s)?;
    cx.push(ConstexprBlockwiseShiftScale { data: raw, scale, offset }).map(Some)
}

fn zeros(dtype: DType, shape: Vec<u64>) -> Result<Tensor, Why> {
    let n = shape.iter().product::<u64>();
    let bytes = vec![0u8; dtype.bytes(n).unwrap_or(0) as usize];
    Tensor::new(dtype, shape, bytes.into()).map_err(|e| Why(e.to_string()))
}

fn quantize(cx: &mut Cx<'_, '_>) -> Outs {
    let elem = match (cx.has(2), cx.int_attr("output_dtype", 0)) {
        (true, _) => cx.elem(2),
        (false, 0) => Elem::U8,
        (false, code) => Elem::from_code(code as i32)?,
    };
    let x = cx.x(0)?;
    let y = quantized(cx, x, (1, 2), elem)?;
    cx.one(y, elem)
}

/// Operand `data` as floats, its scales being along `axis`, whatever the node's attribute says.
pub fn with_scale(
    cx: &mut Cx<'_, '_>,
    data: usize,
    scale: usize,
    zero: usize,
    axis: i64,
) -> Result<Value, Why> {
    let own = cx.scale_axis.replace(axis);
    let made = dequantized(cx, data, scale, zero);
    cx.scale_axis = own;
    made
}

/// The axis scales go along.
fn scale_axis(cx: &Cx<'_, '_>) -> i64 {
    cx.scale_axis.unwrap_or_else(|| cx.int_attr("axis", 1))
}

/// `x` rounded to multiples of the scale (operands `scale` and `zero`), within the type.
pub fn quantized(
    cx: &mut Cx<'_, '_>,
    x: Value,
    (scale, zero): (usize, usize),
    elem: Elem,
) -> Result<Value, Why> {
    if !elem.is_int() {
        return Err(Why(format!("MIL rounds nothing to {}", elem.name())));
    }
    let scale_v = cx.x(scale)?;
    let dtype = cx.dtype(scale_v);
    let x = if cx.is_float(x) && cx.dtype(x) == dtype { x } else { cx.cast(x, dtype)? };
    let bytes = matches!(elem, Elem::U8 | Elem::I8);
    if bytes && cx.opset >= Opset::Ios17 && all_but(cx, 0, scale, zero) && cx.rank(scale_v) <= 1 {
        let axis = axis_of(cx, x, scale_v)?;
        let zero_point = if cx.has(zero) { Some(cx.raw(zero)?) } else { None };
        let (scale, zero_point) = (single(cx, scale_v)?, optional_single(cx, zero_point)?);
        let output_dtype = elem.stored();
        return cx.push(Quantize { input: x, zero_point, scale, axis, output_dtype });
    }
    let scale_v = spread(cx, x, scale_v)?;
    let zero_v = match cx.opt(zero)? {
        Some(z) => {
            let z = cx.cast(z, dtype)?;
            Some(spread(cx, x, z)?)
        }
        None => None,
    };
    rounded(cx, x, scale_v, zero_v, elem)
}

/// `round(x / scale) + zero`, kept within the type.
pub fn rounded(
    cx: &mut Cx<'_, '_>,
    x: Value,
    scale: Value,
    zero: Option<Value>,
    elem: Elem,
) -> Result<Value, Why> {
    let parts = cx.div(x, scale)?;
    let mut whole = cx.push(Round { x: parts })?;
    if let Some(zero) = zero {
        whole = cx.add(whole, zero)?;
    }
    let (low, high) = elem.range();
    let kept = cx.push(Clip { x: whole, alpha: low as f32, beta: high as f32 })?;
    cx.cast(kept, DType::I32)
}

fn dynamic_quantize(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.x(0)?;
    let low = cx.push(ReduceMin { x, axes: None, keep_dims: false })?;
    let high = cx.push(ReduceMax { x, axes: None, keep_dims: false })?;
    let zero = cx.number(0.0, x)?;
    let (low, high) = (cx.min(low, zero)?, cx.max(high, zero)?);
    let span = cx.sub(high, low)?;
    let steps = cx.number(255.0, x)?;
    let scale = cx.div(span, steps)?;
    let start = cx.sub(zero, low)?;
    let start = cx.div(start, scale)?;
    let start = cx.push(Round { x: start })?;
    let point = cx.push(Clip { x: start, alpha: 0.0, beta: 255.0 })?;
    let y = rounded(cx, x, scale, Some(point), Elem::U8)?;
    let point = cx.cast(point, DType::I32)?;
    Ok(vec![Out::Value(y, Elem::U8), Out::Value(scale, Elem::F32), Out::Value(point, Elem::U8)])
}

/// Operand `i` less its zero point, which is one number, or one for each row or column.
fn centred(cx: &mut Cx<'_, '_>, i: usize, zero: usize, by_row: bool) -> Result<Value, Why> {
    let x = cx.x(i)?;
    let Some(z) = cx.opt(zero)? else { return Ok(x) };
    let vector = cx.rank(z) == 1 && cx.fixed_shape(z).as_deref() != Some(&[1]);
    let z = if vector && by_row { cx.expand_dims(z, &[1])? } else { z };
    cx.sub(x, z)
}

fn matmul_integer(cx: &mut Cx<'_, '_>) -> Outs {
    // Weights stay bytes. Sums beyond 2^24 are those of fp32.
    if let Some(w) = bytes(cx, 1, 3, -1)? {
        let a = centred(cx, 0, 2, true)?;
        let a = cx.cast(a, DType::F32)?;
        let y = product(cx, a, w)?;
        let y = cx.cast(y, DType::I32)?;
        return cx.one(y, Elem::I32);
    }
    let (a, b) = (centred(cx, 0, 2, true)?, centred(cx, 1, 3, false)?);
    let y = product(cx, a, b)?;
    cx.one(y, Elem::I32)
}

/// Constant weights less their zero point as floats, which stay bytes in the package; None where
/// they are not constant, or have no op there.
fn bytes(cx: &mut Cx<'_, '_>, data: usize, zero: usize, axis: i64) -> Result<Option<Value>, Why> {
    let Some(t) = cx.tensor(data) else { return Ok(None) };
    let narrow = matches!(t.dtype, DType::I8 | DType::U8) && t.shape.len() >= 2;
    if !narrow || cx.opset < Opset::Ios16 || t.n_elements() == 0 {
        return Ok(None);
    }
    let z = match (cx.has(zero), cx.tensor(zero)) {
        (false, _) => zeros(t.dtype, vec![])?,
        (true, Some(z)) if z.n_elements() == 1 => z.reshaped(vec![]),
        (true, Some(z)) if z.shape.len() == 1 => z,
        _ => return Ok(None),
    };
    let axis = super::super::cx::resolve(axis, t.shape.len())?;
    let fits = z.dtype == t.dtype && (z.shape.is_empty() || z.shape == [t.shape[axis]]);
    if !fits {
        return Ok(None);
    }
    let quantized_data = cx.raw(data)?;
    let zero_point = cx.constant(z)?;
    let scale = cx.floats(vec![], &[1.0], DType::F32)?;
    let axis = axis as i32;
    cx.push(ConstexprAffineDequantize { quantized_data, zero_point, scale, axis }).map(Some)
}

/// In fp32, which holds sums below 2^24 exactly.
fn conv_integer(cx: &mut Cx<'_, '_>) -> Outs {
    let x = centred(cx, 0, 2, false)?;
    if let Some(w) = bytes(cx, 1, 3, 0)? {
        let x = cx.cast(x, DType::F32)?;
        let y = convolved(cx, x, w, None)?;
        let y = cx.cast(y, DType::I32)?;
        return cx.one(y, Elem::I32);
    }
    let w = cx.x(1)?;
    let w = match cx.opt(3)? {
        Some(z) => {
            let behind: Vec<usize> = (1..cx.rank(w)).collect();
            let z = if cx.rank(z) == 1 { cx.expand_dims(z, &behind)? } else { z };
            cx.sub(w, z)?
        }
        None => w,
    };
    let (x, w) = (cx.cast(x, DType::F32)?, cx.cast(w, DType::F32)?);
    let y = convolved(cx, x, w, None)?;
    let y = cx.cast(y, DType::I32)?;
    cx.one(y, Elem::I32)
}

/// `(v - zero) * scale` with parameters that broadcast as `v` is written.
fn scaled(cx: &mut Cx<'_, '_>, v: Value, scale: Value) -> Result<Value, Why> {
    let dtype = cx.dtype(scale);
    let v = cx.cast(v, dtype)?;
    cx.mul(v, scale)
}

fn qlinear_matmul(cx: &mut Cx<'_, '_>) -> Outs {
    // Constant weights stay bytes: the product is one of floats.
    if cx.tensor(3).is_some_and(|t| t.shape.len() >= 2) && cx.opset >= Opset::Ios16 {
        let (a, b) = (dequantized(cx, 0, 1, 2)?, with_scale(cx, 3, 4, 5, -1)?);
        let y = cx.matmul(a, b)?;
        let elem = cx.elem(7);
        let y = quantized(cx, y, (6, 7), elem)?;
        return cx.one(y, elem);
    }
    let (a, b) = (centred(cx, 0, 2, true)?, centred(cx, 3, 5, false)?);
    let by_row = cx.x(1)?;
    let vector = cx.rank(by_row) == 1 && cx.fixed_shape(by_row).as_deref() != Some(&[1]);
    let a_scale = if vector { cx.expand_dims(by_row, &[1])? } else { by_row };
    let b_scale = cx.x(4)?;
    // Integers first: their product is exact.
    let y = product(cx, a, b)?;
    let both = cx.mul(a_scale, b_scale)?;
    let y = scaled(cx, y, both)?;
    let elem = cx.elem(7);
    let y_scale = cx.x(6)?;
    let dtype = cx.dtype(y_scale);
    let zero = cx.x(7)?;
    let zero = cx.cast(zero, dtype)?;
    let y = rounded(cx, y, y_scale, Some(zero), elem)?;
    cx.one(y, elem)
}

fn qlinear_conv(cx: &mut Cx<'_, '_>) -> Outs {
    if cx.tensor(3).is_some() && cx.opset >= Opset::Ios16 {
        return super::microsoft::quantized::conv(cx);
    }
    let x = centred(cx, 0, 2, false)?;
    let w = cx.x(3)?;
    let behind: Vec<usize> = (1..cx.rank(w)).collect();
    let per_channel = |cx: &mut Cx<'_, '_>, v: Value| match cx.fixed_shape(v).as_deref() {
        Some([] | [1]) => cx.reshape(v, &[]),
        _ => cx.expand_dims(v, &behind),
    };
    let (z, w_scale) = (cx.x(5)?, cx.x(4)?);
    let z = per_channel(cx, z)?;
    let w = cx.sub(w, z)?;
    let w_scale = per_channel(cx, w_scale)?;
    let x_scale = cx.x(1)?;
    let (x, w) = (cx.cast(x, DType::F32)?, cx.cast(w, DType::F32)?);
    let bias = match cx.opt(8)? {
        Some(b) => Some(cx.cast(b, DType::F32)?),
        None => None,
    };
    // Integers first, in fp32, which holds sums below 2^24 exactly.
    let y = convolved(cx, x, w, bias)?;
    // [Cout, 1..] without its last axis broadcasts over the channels of the result.
    let w_scale = match cx.rank(w_scale) {
        0 => w_scale,
        rank => cx.squeeze(w_scale, &[rank - 1])?,
    };
    let both = cx.mul(x_scale, w_scale)?;
    let y = scaled(cx, y, both)?;
    let elem = cx.elem(7);
    let (y_scale, zero) = (cx.x(6)?, cx.x(7)?);
    let zero = cx.cast(zero, DType::F32)?;
    let y = rounded(cx, y, y_scale, Some(zero), elem)?;
    cx.one(y, elem)
}
