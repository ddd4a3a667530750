//! Ops of `com.microsoft`: what ONNX Runtime's optimizer makes of transformers.

use russet_ir::ops::*;
use russet_ir::{DType, Dim, Opset, Tensor, Value};

use super::super::cx::{Cx, Import, Outs, Part};
use super::super::elem::Elem;
use super::super::importer::{Out, Why};
use super::attention::{
    Attend, attend, both, first_keys, heads, joined, repeated, rotary_of, rotated, visible,
};
use super::elementwise::swish;
use super::movement::take;
use super::norm::{layer_norm, rms_norm};
use super::quantized::unpacked;

pub fn find(op: &str) -> Option<Import> {
    Some(match op {
        "Gelu" | "FastGelu" | "BiasGelu" | "QuickGelu" => gelu,
        "SkipLayerNormalization" => skip_layer_norm,
        "SimplifiedLayerNormalization" | "SkipSimplifiedLayerNormalization" => skip_rms_norm,
        "EmbedLayerNormalization" => embed,
        "Attention" => attention,
        "MultiHeadAttention" => multi_head,
        "GroupQueryAttention" => group_query,
        "RotaryEmbedding" => rotary,
        "MatMulNBits" => matmul_bits,
        "FusedMatMul" => fused_matmul,
        _ => return None,
    })
}

fn gelu(cx: &mut Cx<'_, '_>) -> Outs {
    let mut x = cx.x(0)?;
    if let Some(bias) = cx.opt(1)? {
        x = cx.add(x, bias)?;
    }
    let y = match cx.op {
        "FastGelu" => cx.push(Gelu { x, mode: GeluMode::Tanh })?,
        "QuickGelu" => {
            let alpha = cx.float_attr("alpha", 1.702);
            swish(cx, x, alpha)?
        }
        _ => cx.push(Gelu { x, mode: GeluMode::Exact })?,
    };
    cx.same(y)
}

/// `norm(input + skip + bias)`, and the sum as its fourth result.
fn skip_layer_norm(cx: &mut Cx<'_, '_>) -> Outs {
    let (x, skip) = (cx.x(0)?, cx.x(1)?);
    let (gamma, beta, bias) = (Some(cx.x(2)?), cx.opt(3)?, cx.opt(4)?);
    let mut sum = cx.add(x, skip)?;
    if let Some(bias) = bias {
        sum = cx.add(sum, bias)?;
    }
    let epsilon = cx.float_attr("epsilon", 1e-12);
    let axis = cx.axis(sum, -1)?;
    let y = layer_norm(cx, sum, axis, (gamma, beta), epsilon)?;
    let elem = cx.elem(0);
    Ok(vec![Out::Value(y, elem), Out::Absent, Out::Absent, Out::Value(sum, elem)])
}

fn skip_rms_norm(cx: &mut Cx<'_, '_>) -> Outs {
    let skips = cx.op.starts_with("Skip");
    let mut x = cx.x(0)?;
    let gamma = cx.x(if skips { 2 } else { 1 })?;
    if skips {
        let skip = cx.x(1)?;
        x = cx.add(x, skip)?;
        if let Some(bias) = cx.opt(3)? {
            x = cx.add(x, bias)?;
        }
    }
    let epsilon = cx.float_attr("epsilon", if skips { 1e-12 } else { 1e-5 });
    let axis = cx.axis(x, cx.int_attr("axis", -1))?;
    let (y, inverse) = rms_norm(cx, x, axis, Some(gamma), epsilon)?;
    let elem = cx.elem(0);
    Ok(match skips {
        true => vec![Out::Value(y, elem), Out::Absent, Out::Absent, Out::Value(x, elem)],
        false => vec![Out::Value(y, elem), Out::Value(inverse, elem)],
    })
}

/// The sum of the embeddings of words, places and segments, and its norm.
fn embed(cx: &mut Cx<'_, '_>) -> Outs {
    let (ids, words, positions) = (cx.x(0)?, cx.x(2)?, cx.x(3)?);
    let mut sum = take(cx, words, ids, 0)?;
    let of_places = match cx.opt(8)? {
        Some(places) => take(cx, positions, places, 0)?,
        None => {
            let n = cx.need_extent(ids, 1, "places without `position_ids`")?;
            cx.slice(positions, 0, 0, Some(n as i64))?
        }
    };
    sum = cx.add(sum, of_places)?;
    if let (Some(segments), Some(table)) = (cx.opt(1)?, cx.opt(4)?) {
        let of_segments = take(cx, table, segments, 0)?;
        sum = cx.add(sum, of_segments)?;
    }
    let (gamma, beta) = (Some(cx.x(5)?), Some(cx.x(6)?));
    let epsilon = cx.float_attr("epsilon", 1e-12);
    let y = layer_norm(cx, sum, 2, (gamma, beta), epsilon)?;
    let elem = cx.elem(2);
    let lengths = match cx.opt(7)? {
        Some(mask) => Out::Value(
            cx.push(ReduceSum { x: mask, axes: Some(vec![1]), keep_dims: false })?,
            Elem::I32,
        ),
        None => Out::Absent,
    };
    Ok(vec![Out::Value(y, elem), lengths, Out::Value(sum, elem)])
}

/// A number added where a mask forbids; the lowest is as good as none.
fn forbidden(cx: &mut Cx<'_, '_>, allowed: Value, like: Value) -> Result<Value, Why> {
    let value = cx.float_attr("mask_filter_value", -10000.0);
    let (zero, hidden) = (cx.number(0.0, like)?, cx.number(value.into(), like)?);
    cx.select(allowed, zero, hidden)
}

/// A mask of keys `[B, T]`, `[B, S, T]`, `[B, 1, S, T]` or lengths `[B]`, as what may be seen.
fn mask_of_keys(cx: &mut Cx<'_, '_>, mask: Value, keys: Part) -> Result<Value, Why> {
    let zero = cx.number(0.0, mask)?;
    match cx.rank(mask) {
        1 => {
            let (batch, n) = (cx.part_dim(keys, 0), cx.shape(mask)[0].clone());
            if batch.is_some_and(|b| b != n) {
                return Err(Why::from("a mask of begins and ends is not read"));
            }
            first_keys(cx, mask, keys)
        }
        rank => {
            let seen = cx.push(Greater { x: mask, y: zero })?;
            match rank {
                2 => cx.expand_dims(seen, &[1, 2]),
                3 => cx.expand_dims(seen, &[1]),
                _ => Ok(seen),
            }
        }
    }
}

fn n_heads(cx: &Cx<'_, '_>, name: &str) -> u64 {
    u64::try_from(cx.int_attr(name, 0)).ok().filter(|&n| n < 1 << 20).unwrap_or(0)
}

fn attention(cx: &mut Cx<'_, '_>) -> Outs {
    let (x, weight) = (cx.x(0)?, cx.x(1)?);
    let bias = cx.opt(2)?;
    if cx.flag("do_rotary", false) {
        return Err(Why::from("rotary positions inside of it are not read"));
    }
    let heads_n = n_heads(cx, "num_heads");
    let all = cx.matmul(x, weight)?;
    let all = match bias {
        Some(b) => cx.add(all, b)?,
        None => all,
    };
    let whole = cx.need_extent(all, 2, "attention")?;
    let sizes = match cx.attrs.ints("qkv_hidden_sizes") {
        Some(&[q, k, v]) => [q, k, v],
        _ => [(whole / 3) as i64; 3],
    };
    let sane = sizes.iter().all(|s| (1..1 << 31).contains(s));
    if !sane || sizes.iter().sum::<i64>() != whole as i64 {
        return Err(Why(format!("{sizes:?} of {whole} columns")));
    }
    let q = cx.slice(all, 2, 0, Some(sizes[0]))?;
    let k = cx.slice(all, 2, sizes[0], Some(sizes[0] + sizes[1]))?;
    let v = cx.slice(all, 2, sizes[0] + sizes[1], None)?;
    let q = heads(cx, q, heads_n)?;
    let (mut k, mut v) = (heads(cx, k, heads_n)?, heads(cx, v, heads_n)?);
    let mut offset = None;
    if let Some(past) = cx.opt(4)? {
        let mut half = |i: i64| -> Result<Value, Why> {
            let one = cx.slice(past, 0, i, Some(i + 1))?;
            cx.squeeze(one, &[0])
        };
        let (past_k, past_v) = (half(0)?, half(1)?);
        offset = Some(cx.extent(past_k, 2)?);
        (k, v) = (cx.concat(vec![past_k, k], 2)?, cx.concat(vec![past_v, v], 2)?);
    }
    let mut with =
        Attend { scale: cx.attrs.float("scale").filter(|s| *s != 0.0), ..Attend::default() };
    with.bias = cx.opt(5)?;
    let keys = Part::Of(k, 2);
    if let Some(mask) = cx.opt(3)? {
        let seen = mask_of_keys(cx, mask, keys)?;
        let hidden = forbidden(cx, seen, q)?;
        with.bias = Some(match with.bias {
            Some(b) => cx.add(b, hidden)?,
            None => hidden,
        });
    }
    if cx.flag("unidirectional", false) {
        with.allowed = Some(visible(cx, (Part::Of(q, 2), keys), offset, (true, -1, -1))?);
    }
    let made = attend(cx, [q, k, v], &with)?;
    let y = joined(cx, made.result)?;
    let elem = cx.elem(0);
    let mut outs = vec![Out::Value(y, elem)];
    if cx.outputs.get(1) == Some(&true) {
        let present = cx.push(Stack { values: vec![k, v], axis: 0 })?;
        outs.push(Out::Value(present, elem));
    }
    Ok(outs)
}

fn multi_head(cx: &mut Cx<'_, '_>) -> Outs {
    let n = n_heads(cx, "num_heads");
    let query = cx.x(0)?;
    let bias = cx.opt(3)?;
    let (mut q, mut k, mut v) = match (cx.opt(1)?, cx.opt(2)?) {
        (None, None) => {
            // [B, S, N, 3, D].
            let mut one = |i: i64| -> Result<Value, Why> {
                let part = cx.slice(query, 3, i, Some(i + 1))?;
                let part = cx.squeeze(part, &[3])?;
                cx.transpose(part, &[0, 2, 1, 3])
            };
            (one(0)?, one(1)?, one(2)?)
        }
        (Some(kv), None) => {
            let q = heads(cx, query, n)?;
            let mut one = |i: i64| -> Result<Value, Why> {
                let part = cx.slice(kv, 3, i, Some(i + 1))?;
                let part = cx.squeeze(part, &[3])?;
                cx.transpose(part, &[0, 2, 1, 3])
            };
            (q, one(0)?, one(1)?)
        }
        (Some(key), Some(value)) => {
            let apart = |cx: &mut Cx<'_, '_>, v: Value| match cx.rank(v) {
                3 => heads(cx, v, n),
                _ => Ok(v),
            };
            (heads(cx, query, n)?, apart(cx, key)?, apart(cx, value)?)
        }
        (None, Some(_)) => return Err(Why::from("values without keys")),
    };
    if let Some(bias) = bias {
        let widths = [q, k, v].map(|x| cx.shape(x)[3].fixed().unwrap_or(0) * n);
        let mut begin = 0;
        let mut biased = Vec::new();
        for (x, width) in [q, k, v].into_iter().zip(widths) {
            let part = cx.slice(bias, 0, begin, Some(begin + width as i64))?;
            let part = cx.reshape_fixed(part, &[n, 1, width / n.max(1)])?;
            biased.push(cx.add(x, part)?);
            begin += width as i64;
        }
        (q, k, v) = (biased[0], biased[1], biased[2]);
    }
    let mut offset = None;
    if let (Some(past_k), Some(past_v)) = (cx.opt(6)?, cx.opt(7)?) {
        offset = Some(cx.extent(past_k, 2)?);
        (k, v) = (cx.concat(vec![past_k, k], 2)?, cx.concat(vec![past_v, v], 2)?);
    }
    let mut with =
        Attend { scale: cx.attrs.float("scale").filter(|s| *s != 0.0), ..Attend::default() };
    with.bias = cx.opt(5)?;
    if let Some(mask) = cx.opt(4)? {
        let seen = mask_of_keys(cx, mask, Part::Of(k, 2))?;
        let hidden = forbidden(cx, seen, q)?;
        with.bias = Some(match with.bias {
            Some(b) => cx.add(b, hidden)?,
            None => hidden,
        });
    }
    if cx.flag("unidirectional", false) {
        let parts = (Part::Of(q, 2), Part::Of(k, 2));
        with.allowed = Some(visible(cx, parts, offset, (true, -1, -1))?);
    }
    let made = attend(cx, [q, k, v], &with)?;
    let y = joined(cx, made.result)?;
    let elem = cx.elem(0);
    Ok([y, k, v, made.raw].into_iter().map(|v| Out::Value(v, elem)).collect())
}

/// Causal attention of groups of heads that share keys, with a cache in front.
fn group_query(cx: &mut Cx<'_, '_>) -> Outs {
    let (n, n_kv) = (n_heads(cx, "num_heads"), n_heads(cx, "kv_num_heads"));
    if n_kv == 0 || !n.is_multiple_of(n_kv) {
        return Err(Why(format!("{n} heads that share {n_kv}")));
    }
    if cx.flag("smooth_softmax", false) || cx.has(11) {
        return Err(Why::from("a softmax with a sink has no op in MIL"));
    }
    let query = cx.x(0)?;
    let (q, k, v) = match (cx.opt(1)?, cx.opt(2)?) {
        (Some(k), Some(v)) => (query, k, v),
        _ => {
            let width = cx.need_extent(query, 2, "packed heads")?;
            if n == 0 {
                return Err(Why::from("no heads"));
            }
            let each = width / (n + 2 * n_kv);
            let (a, b) = ((n * each) as i64, ((n + n_kv) * each) as i64);
            let q = cx.slice(query, 2, 0, Some(a))?;
            (q, cx.slice(query, 2, a, Some(b))?, cx.slice(query, 2, b, None)?)
        }
    };
    let (mut q, mut k, mut v) = (heads(cx, q, n)?, heads(cx, k, n_kv)?, heads(cx, v, n_kv)?);
    let past = match (cx.opt(3)?, cx.opt(4)?) {
        (Some(k), Some(v)) => Some((k, v)),
        _ => None,
    };
    let offset = match past {
        Some((past_k, _)) => Some(cx.extent(past_k, 2)?),
        None => None,
    };
    if cx.flag("do_rotary", false) {
        let (cos, sin) = (cx.x(7)?, cx.x(8)?);
        let positions = match cx.opt(9)? {
            Some(p) => p,
            None => {
                let extent = cx.extent(q, 2)?;
                let end = cx.squeeze(extent, &[0])?;
                let (zero, one) = (cx.int_like(0)?, cx.int_like(1)?);
                let places = cx.push(Range1d { end, start: zero, step: one })?;
                let places = match offset {
                    Some(o) => cx.add(places, o)?,
                    None => places,
                };
                cx.expand_dims(places, &[0])?
            }
        };
        let turned = 2 * cx.need_extent(cos, 1, "a table of angles")?;
        let interleaved = cx.flag("rotary_interleaved", false);
        let mut angles = |table: Value| -> Result<Value, Why> {
            let at = take(cx, table, positions, 0)?;
            cx.expand_dims(at, &[2])
        };
        let tables = (angles(cos)?, angles(sin)?);
        for x in [&mut q, &mut k] {
            let side = cx.transpose(*x, &[0, 2, 1, 3])?;
            let side = rotated(cx, side, tables, turned, interleaved)?;
            *x = cx.transpose(side, &[0, 2, 1, 3])?;
        }
    }
    if let Some((past_k, past_v)) = past {
        (k, v) = (cx.concat(vec![past_k, k], 2)?, cx.concat(vec![past_v, v], 2)?);
    }
    let window = cx.int_attr("local_window_size", -1);
    let left = if window > 0 { window - 1 } else { -1 };
    let parts = (Part::Of(q, 2), Part::Of(k, 2));
    let mut allowed = Some(visible(cx, parts, offset, (true, left, -1))?);
    // The number of keys of each batch, less one.
    if let Some(last) = cx.opt(5)? {
        let one = cx.int_like(1)?;
        let lengths = cx.add(last, one)?;
        let real = first_keys(cx, lengths, parts.1)?;
        allowed = both(cx, allowed, real)?;
    }
    let with = Attend {
        scale: cx.attrs.float("scale").filter(|s| *s != 0.0),
        softcap: cx.float_attr("softcap", 0.0),
        bias: cx.opt(10)?,
        allowed,
        may_see_nothing: false,
    };
    let (wide_k, wide_v) = (repeated(cx, k, n / n_kv)?, repeated(cx, v, n / n_kv)?);
    let made = attend(cx, [q, wide_k, wide_v], &with)?;
    let y = joined(cx, made.result)?;
    let elem = cx.elem(0);
    Ok([y, k, v].into_iter().map(|v| Out::Value(v, elem)).collect())
}

fn rotary(cx: &mut Cx<'_, '_>) -> Outs {
    let (x, positions, cos, sin) = (cx.x(0)?, cx.x(1)?, cx.x(2)?, cx.x(3)?);
    let scale = cx.float_attr("scale", 1.0);
    let positions = match cx.shape(positions).as_slice() {
        // One number: where the first of them is.
        [Dim::Fixed(1)] => {
            let axis = if cx.rank(x) == 3 { 1 } else { 2 };
            let extent = cx.extent(x, axis)?;
            let end = cx.squeeze(extent, &[0])?;
            let (zero, one) = (cx.int_like(0)?, cx.int_like(1)?);
            let places = cx.push(Range1d { end, start: zero, step: one })?;
            let places = cx.add(places, positions)?;
            cx.expand_dims(places, &[0])?
        }
        _ => positions,
    };
    let y = rotary_of(cx, x, (cos, sin), Some(positions))?;
    let y = if scale == 1.0 { y } else { cx.scale(y, scale.into())? };
    cx.same(y)
}

/// A linear layer whose weights are integers of few bits, each block with its scale.
fn matmul_bits(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.x(0)?;
    if cx.opset < Opset::Ios18 {
        return Err(Why::from("weights in blocks of integers need iOS 18"));
    }
    if cx.has(4) {
        return Err(Why::from("blocks in another order (`g_idx`) are not read"));
    }
    let at = |name: &str| u64::try_from(cx.int_attr(name, 0).min(1 << 30)).unwrap_or(0);
    let (k, n, block) = (at("K"), at("N"), at("block_size").max(1));
    let bits = cx.int_attr("bits", 4);
    let blocks = k.div_ceil(block);
    if !k.is_multiple_of(block) || n == 0 || k == 0 {
        return Err(Why(format!("{k} columns in blocks of {block}")));
    }
    let packed = cx.tensor(1).ok_or("its weights are not constant")?;
    let data = unpacked(&packed, n, k, bits)?;
    let dtype = data.dtype;
    let scales = cx.tensor(2).ok_or("its scales are not constant")?;
    if scales.n_elements() != n * blocks {
        return Err(Why(format!("{} scales for {n} by {blocks} blocks", scales.n_elements())));
    }
    let like = cx.dtype(x);
    let scale = scales.reshaped(vec![n, blocks]).cast(like);
    let offset = match cx.tensor(3) {
        Some(z) if z.dtype == DType::U8 => unpacked(&z, n, blocks, bits)?,
        Some(_) => return Err(Why::from("zero points that are floats are not read")),
        None => middle(dtype, n, blocks, bits)?,
    };
    let data = cx.constant(data)?;
    let scale = cx.constant(scale)?;
    let offset = Some(cx.constant(offset)?);
    let weight = cx.push(ConstexprBlockwiseShiftScale { data, scale, offset })?;
    let bias = cx.opt(5)?;
    let y = cx.push(Linear { x, weight, bias })?;
    cx.same(y)
}

/// The zero point that is meant when none is given: half the range.
fn middle(dtype: DType, n: u64, blocks: u64, bits: i64) -> Result<Tensor, Why> {
    let byte = match bits {
        2 => 0xaa,
        4 => 0x88,
        _ => 0x80,
    };
    let n_bytes = dtype.bytes(n * blocks).unwrap_or(0) as usize;
    Tensor::new(dtype, vec![n, blocks], vec![byte; n_bytes].into()).map_err(|e| Why(e.to_string()))
}

fn fused_matmul(cx: &mut Cx<'_, '_>) -> Outs {
    if cx.flag("transBatchA", false) || cx.flag("transBatchB", false) {
        return Err(Why::from("a product with its batches moved is not read"));
    }
    let (x, y) = (cx.x(0)?, cx.x(1)?);
    let (transpose_x, transpose_y) = (cx.flag("transA", false), cx.flag("transB", false));
    let z = cx.push(Matmul { x, y, transpose_x, transpose_y })?;
    let alpha = cx.float_attr("alpha", 1.0);
    let z = if alpha == 1.0 { z } else { cx.scale(z, alpha.into())? };
    cx.same(z)
}
