//! Attention and rotary positions of `com.microsoft`.

use russet_ir::ops::*;
use russet_ir::{Dim, Value};

use super::super::super::cx::{Cx, Import, Outs, Part};
use super::super::super::elem::Elem;
use super::super::super::importer::{Out, Val, Why};
use super::super::attention::{
    Attend, attend, both, first_keys, heads, joined, places, repeated, rotary_of, rotated, visible,
};
use super::super::movement::take;

pub fn find(op: &str) -> Option<Import> {
    Some(match op {
        "Attention" => attention,
        "MultiHeadAttention" => multi_head,
        "GroupQueryAttention" => group_query,
        "RotaryEmbedding" => rotary,
        _ => return None,
    })
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
            match (batch, n) {
                (Some(Dim::Fixed(b)), Dim::Fixed(n)) if n == 2 * b && b > 0 => {
                    let ends = cx.slice(mask, 0, 0, Some(b as i64))?;
                    let begins = cx.slice(mask, 0, b as i64, None)?;
                    let (before, early) =
                        (first_keys(cx, ends, keys)?, first_keys(cx, begins, keys)?);
                    let late = cx.push(LogicalNot { x: early })?;
                    cx.push(LogicalAnd { x: before, y: late })
                }
                (Some(b), n) if b != n => {
                    Err(Why(format!("a mask of {n} numbers for a batch of {b} is not read")))
                }
                _ => first_keys(cx, mask, keys),
            }
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
    let operands =
        Operands { mask: cx.opt_val(3), past: cx.opt_val(4), bias: cx.opt(5)?, elem: cx.elem(0) };
    let whole = cx.need_extent(weight, 1, "attention")?;
    let sizes = columns(cx, whole)?;
    if let Some(parts) = layers(cx, x, (weight, bias), sizes)? {
        return finished(cx, parts, operands);
    }
    let all = cx.matmul(x, weight)?;
    let all = match bias {
        Some(b) => cx.add(all, b)?,
        None => all,
    };
    attended(cx, all, operands)
}

/// What attention reads besides queries, keys and values.
pub struct Operands {
    pub mask: Option<Val>,
    pub past: Option<Val>,
    /// Added to the scores.
    pub bias: Option<Value>,
    pub elem: Elem,
}

/// How many of `whole` columns are queries, keys and values.
fn columns(cx: &Cx<'_, '_>, whole: u64) -> Result<[i64; 3], Why> {
    let sizes = match cx.attrs.ints("qkv_hidden_sizes") {
        Some(&[q, k, v]) => [q, k, v],
        _ => [(whole / 3) as i64; 3],
    };
    let sane = sizes.iter().all(|s| (1..1 << 31).contains(s));
    if !sane || sizes.iter().sum::<i64>() != whole as i64 {
        return Err(Why(format!("{sizes:?} of {whole} columns")));
    }
    Ok(sizes)
}

/// Three linear layers, where the weights are constants that can be cut.
fn layers(
    cx: &mut Cx<'_, '_>,
    x: Value,
    (weight, bias): (Value, Option<Value>),
    sizes: [i64; 3],
) -> Result<Option<[Value; 3]>, Why> {
    let constant = |cx: &Cx<'_, '_>, v: Value| cx.im.graph.constant(v).cloned();
    let whole = sizes.iter().sum::<i64>() as u64;
    let Some(w) = constant(cx, weight).filter(|t| t.can_be_transposed()) else { return Ok(None) };
    let b = match bias.map(|b| constant(cx, b).filter(|t| t.shape == [whole])) {
        Some(None) => return Ok(None),
        Some(Some(b)) => Some(b),
        None => None,
    };
    let mut made = Vec::new();
    let mut start = 0;
    for n in sizes.map(|n| n as u64) {
        let weight = cx.constant(w.transposed().rows(start, n))?;
        let bias = match &b {
            Some(b) => Some(cx.constant(b.rows(start, n))?),
            None => None,
        };
        made.push(cx.push(Linear { x, weight, bias })?);
        start += n;
    }
    Ok(Some([made[0], made[1], made[2]]))
}

/// Attention of queries, keys and values that lie side by side.
pub fn attended(cx: &mut Cx<'_, '_>, all: Value, operands: Operands) -> Outs {
    let whole = cx.need_extent(all, 2, "attention")?;
    let [q, k, _] = columns(cx, whole)?;
    let parts = [
        cx.slice(all, 2, 0, Some(q))?,
        cx.slice(all, 2, q, Some(q + k))?,
        cx.slice(all, 2, q + k, None)?,
    ];
    finished(cx, parts, operands)
}

fn finished(cx: &mut Cx<'_, '_>, [q, k, v]: [Value; 3], operands: Operands) -> Outs {
    let heads_n = n_heads(cx, "num_heads");
    let q = heads(cx, q, heads_n)?;
    let (mut k, mut v) = (heads(cx, k, heads_n)?, heads(cx, v, heads_n)?);
    let mut offset = None;
    if let Some(past) = operands.past {
        let past = cx.im.value(past)?;
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
    with.bias = operands.bias;
    let keys = Part::Of(k, 2);
    if let Some(mask) = operands.mask {
        let mask = cx.im.value(mask)?;
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
    let elem = operands.elem;
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
                let all = places(cx, Part::Of(q, 2))?;
                let all = match offset {
                    Some(o) => cx.add(all, o)?,
                    None => all,
                };
                cx.expand_dims(all, &[0])?
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
    let sink = match cx.opt(11)? {
        Some(sink) => Some(cx.reshape_fixed(sink, &[1, n, 1, 1])?),
        None if cx.flag("smooth_softmax", false) => Some(cx.number(0.0, q)?),
        None => None,
    };
    let with = Attend {
        scale: cx.attrs.float("scale").filter(|s| *s != 0.0),
        softcap: cx.float_attr("softcap", 0.0),
        bias: cx.opt(10)?,
        allowed,
        may_see_nothing: false,
        sink,
    };
    let (wide_k, wide_v) = (repeated(cx, k, n / n_kv)?, repeated(cx, v, n / n_kv)?);
    let made = attend(cx, [q, wide_k, wide_v], &with)?;
    let y = joined(cx, made.result)?;
    let elem = cx.elem(0);
    Ok([y, k, v].into_iter().map(|v| Out::Value(v, elem)).collect())
}

fn rotary(cx: &mut Cx<'_, '_>) -> Outs {
    let (x, positions, cos, sin) = (cx.x(0)?, cx.x(1)?, cx.x(2)?, cx.x(3)?);
    // ONNX Runtime reads no `scale`.
    let positions = match cx.shape(positions).as_slice() {
        // One number: where the first of them is.
        [Dim::Fixed(1)] => {
            let axis = if cx.rank(x) == 3 { 1 } else { 2 };
            let all = places(cx, Part::Of(x, axis))?;
            let all = cx.add(all, positions)?;
            cx.expand_dims(all, &[0])?
        }
        _ => positions,
    };
    let y = rotary_of(cx, x, (cos, sin), Some(positions))?;
    cx.same(y)
}
