//! Attention and rotary positions, written out.

use russet_ir::ops::*;
use russet_ir::{DType, Dim, Value};

use super::super::cx::{Cx, Import, Outs, Part, saturated};
use super::super::elem::Elem;
use super::super::importer::{Out, Why};

pub fn find(op: &str) -> Option<Import> {
    Some(match op {
        "Attention" => attention,
        "RotaryEmbedding" => rotary,
        "LinearAttention" => linear,
        _ => return None,
    })
}

/// `[B, S, H * D]` as `[B, H, S, D]`.
pub fn heads(cx: &mut Cx<'_, '_>, x: Value, n: u64) -> Result<Value, Why> {
    let width = cx.need_extent(x, 2, "heads")?;
    if n == 0 || !width.is_multiple_of(n) {
        return Err(Why(format!("{width} columns for {n} heads")));
    }
    let shape = [Part::Of(x, 0), Part::Of(x, 1), Part::N(n), Part::N(width / n)];
    let apart = cx.reshape(x, &shape)?;
    cx.transpose(apart, &[0, 2, 1, 3])
}

/// The opposite of [`heads`].
pub fn joined(cx: &mut Cx<'_, '_>, x: Value) -> Result<Value, Why> {
    let width = cx.need_extent(x, 1, "heads")? * cx.need_extent(x, 3, "heads")?;
    let side = cx.transpose(x, &[0, 2, 1, 3])?;
    cx.reshape(side, &[Part::Of(x, 0), Part::Of(x, 2), Part::N(width)])
}

/// `[B, K, S, D]` with each head repeated in place.
pub fn repeated(cx: &mut Cx<'_, '_>, x: Value, times: u64) -> Result<Value, Why> {
    if times == 1 {
        return Ok(x);
    }
    let n = cx.need_extent(x, 1, "shared heads")?;
    let apart = cx.expand_dims(x, &[2])?;
    let reps = cx.vector(&[1, 1, times as i64, 1, 1])?;
    let all = cx.push(Tile { x: apart, reps })?;
    cx.reshape(all, &[Part::Of(x, 0), Part::N(n * times), Part::Of(x, 2), Part::Of(x, 3)])
}

/// What attention is besides its three operands, all of `[B, H, S, D]`.
#[derive(Default)]
pub struct Attend {
    pub scale: Option<f32>,
    pub softcap: f32,
    /// Added to the scores.
    pub bias: Option<Value>,
    /// Where it may look.
    pub allowed: Option<Value>,
    /// Is there a query that may look nowhere? It returns zeros then.
    pub may_see_nothing: bool,
    /// The score of one more key without a value, for each head.
    pub sink: Option<Value>,
}

/// Scores before and after the cap, with the bias, their softmax, and what it is applied to.
pub struct Attended {
    pub raw: Value,
    pub capped: Value,
    pub biased: Value,
    pub probabilities: Value,
    pub result: Value,
}

/// `softmax(scale q k^T + bias) v`.
pub fn attend(cx: &mut Cx<'_, '_>, [q, k, v]: [Value; 3], with: &Attend) -> Result<Attended, Why> {
    let scale = match with.scale {
        Some(s) => s,
        None => 1.0 / (cx.need_extent(q, 3, "a head")? as f32).sqrt(),
    };
    let q = cx.scale(q, scale.into())?;
    let raw = cx.push(Matmul { x: q, y: k, transpose_x: false, transpose_y: true })?;
    let capped = match with.softcap > 0.0 {
        true => {
            let small = cx.scale(raw, 1.0 / f64::from(with.softcap))?;
            let bent = cx.push(Tanh { x: small })?;
            cx.scale(bent, with.softcap.into())?
        }
        false => raw,
    };
    let mut biased = capped;
    if let Some(bias) = with.bias {
        let dtype = cx.dtype(biased);
        let bias = cx.cast(bias, dtype)?;
        biased = cx.add(biased, bias)?;
    }
    if let Some(allowed) = with.allowed {
        let nothing = cx.number(f64::NEG_INFINITY, biased)?;
        biased = cx.select(allowed, biased, nothing)?;
    }
    let mut probabilities = match with.sink {
        Some(sink) => with_sink(cx, (raw, biased), sink)?,
        None => cx.push(Softmax { x: biased, axis: -1 })?,
    };
    if with.may_see_nothing {
        let axes = Some(vec![-1]);
        let most = cx.push(ReduceMax { x: biased, axes, keep_dims: true })?;
        let nothing = cx.number(f64::NEG_INFINITY, most)?;
        let sees = cx.push(Greater { x: most, y: nothing })?;
        let zero = cx.number(0.0, probabilities)?;
        probabilities = cx.select(sees, probabilities, zero)?;
    }
    let result = cx.matmul(probabilities, v)?;
    Ok(Attended { raw, capped, biased, probabilities, result })
}

/// A softmax that one more key, which has no value, takes part in; its score is `sink`.
fn with_sink(
    cx: &mut Cx<'_, '_>,
    (raw, scores): (Value, Value),
    sink: Value,
) -> Result<Value, Why> {
    let last = cx.rank(scores) - 1;
    // As many rows as there are scores, which may be -inf where these are not.
    let column = cx.slice(raw, last, 0, Some(1))?;
    let column = cx.scale(column, 0.0)?;
    let dtype = cx.dtype(column);
    let sink = cx.cast(sink, dtype)?;
    let column = cx.add(column, sink)?;
    let all = cx.concat(vec![scores, column], last)?;
    let all = cx.push(Softmax { x: all, axis: -1 })?;
    let keys = Part::Of(scores, last);
    match cx.is_fixed(keys) {
        true => {
            let n = cx.need_extent(scores, last, "keys")? as i64;
            cx.slice(all, last, 0, Some(n))
        }
        false => cx.slice(all, last, 0, Some(-1)),
    }
}

/// 0, 1, 2 and so on, up to an extent.
pub fn places(cx: &mut Cx<'_, '_>, part: Part) -> Result<Value, Why> {
    let extent = cx.shape_of(&[part], false)?;
    if let Some(&[n]) = cx.im.graph.types().ints(extent).as_deref()
        && n <= 1 << 16
    {
        return cx.vector(&(0..n).collect::<Vec<_>>());
    }
    let end = cx.squeeze(extent, &[0])?;
    let (zero, one) = (cx.int_like(0)?, cx.int_like(1)?);
    cx.push(Range1d { end, start: zero, step: one })
}

/// Which of `n_keys` a query may see, `bool[.., Q, K]`: those at most at its own place, `offset`
/// further on, within a window around it.
pub fn visible(
    cx: &mut Cx<'_, '_>,
    (queries, keys): (Part, Part),
    offset: Option<Value>,
    (causal, left, right): (bool, i64, i64),
) -> Result<Value, Why> {
    let (query, key) = (places(cx, queries)?, places(cx, keys)?);
    let (mut query, key) = (cx.expand_dims(query, &[1])?, cx.expand_dims(key, &[0])?);
    if let Some(offset) = offset {
        query = cx.add(query, offset)?;
    }
    let distance = cx.sub(query, key)?;
    let mut all = None;
    let mut and = |cx: &mut Cx<'_, '_>, one: Value| -> Result<(), Why> {
        all = Some(match all {
            Some(a) => cx.push(LogicalAnd { x: a, y: one })?,
            None => one,
        });
        Ok(())
    };
    if causal {
        let zero = cx.int_like(0)?;
        let behind = cx.push(GreaterEqual { x: distance, y: zero })?;
        and(cx, behind)?;
    }
    if left >= 0 {
        let end = cx.int_like(saturated(left))?;
        let near = cx.push(LessEqual { x: distance, y: end })?;
        and(cx, near)?;
    }
    if right >= 0 {
        let end = cx.int_like(saturated(-right))?;
        let near = cx.push(GreaterEqual { x: distance, y: end })?;
        and(cx, near)?;
    }
    all.ok_or_else(|| Why::from("no bound on what is seen"))
}

fn attention(cx: &mut Cx<'_, '_>) -> Outs {
    let (mut q, mut k, mut v) = (cx.x(0)?, cx.x(1)?, cx.x(2)?);
    let flat = cx.rank(q) == 3;
    if flat {
        let n = |cx: &Cx<'_, '_>, name: &str| cx.int_attr(name, 0).clamp(0, 1 << 20) as u64;
        let (n_q, n_kv) = (n(cx, "q_num_heads"), n(cx, "kv_num_heads"));
        (q, k, v) = (heads(cx, q, n_q)?, heads(cx, k, n_kv)?, heads(cx, v, n_kv)?);
    }
    let mut offset = None;
    if let (Some(past_k), Some(past_v)) = (cx.opt(4)?, cx.opt(5)?) {
        offset = Some(cx.extent(past_k, 2)?);
        (k, v) = (cx.concat(vec![past_k, k], 2)?, cx.concat(vec![past_v, v], 2)?);
    }
    let (present_k, present_v) = (k, v);
    let times = cx.need_extent(q, 1, "heads")? / cx.need_extent(k, 1, "heads")?.max(1);
    let (k, v) = (repeated(cx, k, times)?, repeated(cx, v, times)?);
    let (queries, keys) = (Part::Of(q, 2), Part::Of(k, 2));
    let lengths = cx.opt(6)?;
    if let Some(lengths) = lengths.filter(|_| offset.is_none()) {
        let n = cx.extent(q, 2)?;
        let before = cx.sub(lengths, n)?;
        offset = Some(cx.expand_dims(before, &[1, 2, 3])?);
    }
    let mut with = Attend {
        scale: cx.attrs.float("scale"),
        softcap: cx.float_attr("softcap", 0.0),
        ..Attend::default()
    };
    let causal = cx.flag("is_causal", false);
    let (left, right) = (cx.int_attr("left_window_size", -1), cx.int_attr("right_window_size", -1));
    if causal || left >= 0 || right >= 0 {
        with.may_see_nothing |= lengths.is_some();
        with.allowed = Some(visible(cx, (queries, keys), offset, (causal, left, right))?);
    }
    if let Some(lengths) = lengths {
        // The others are padding.
        let real = first_keys(cx, lengths, keys)?;
        with.allowed = both(cx, with.allowed, real)?;
        with.may_see_nothing = true;
    }
    if let Some(mask) = cx.opt(3)? {
        let mask = filled(cx, mask, k)?;
        with.may_see_nothing = true;
        match cx.dtype(mask) {
            DType::Bool => with.allowed = both(cx, with.allowed, mask)?,
            _ => with.bias = Some(mask),
        }
    }
    let precise = match cx.int_attr("softmax_precision", 0) {
        0 => None,
        code => Some(Elem::from_code(code as i32)?.computed()),
    };
    let dtype = cx.dtype(q);
    let wide = precise.filter(|&p| p == DType::F32 && dtype == DType::F16);
    let operands = match wide {
        Some(p) => [cx.cast(q, p)?, cx.cast(k, p)?, cx.cast(v, p)?],
        None => [q, k, v],
    };
    let made = attend(cx, operands, &with)?;
    let result = cx.cast(made.result, dtype)?;
    let y = if flat { joined(cx, result)? } else { result };
    let scores = match cx.int_attr("qk_matmul_output_mode", 0) {
        0 => made.raw,
        1 => made.capped,
        2 => made.biased,
        _ => made.probabilities,
    };
    let scores = cx.cast(scores, dtype)?;
    let elem = cx.elem(0);
    let all = [y, present_k, present_v, scores];
    Ok(all.into_iter().map(|v| Out::Value(v, elem)).collect())
}

/// Both conditions.
pub fn both(cx: &mut Cx<'_, '_>, a: Option<Value>, b: Value) -> Result<Option<Value>, Why> {
    match a {
        Some(a) => cx.push(LogicalAnd { x: a, y: b }).map(Some),
        None => Ok(Some(b)),
    }
}

/// A mask that is shorter than the keys hides the rest of them.
fn filled(cx: &mut Cx<'_, '_>, mask: Value, keys: Value) -> Result<Value, Why> {
    let rank = cx.rank(mask);
    let axis = rank.checked_sub(1).ok_or("a mask without axes")?;
    let (have, want) = (cx.shape(mask)[axis].clone(), cx.shape(keys)[2].clone());
    let (Dim::Fixed(have), Dim::Fixed(want)) = (have, want) else { return Ok(mask) };
    if have >= want || have == 1 {
        return Ok(mask);
    }
    let mut pads = vec![(0, 0); rank];
    pads[axis].1 = (want - have) as i64;
    cx.unbool(mask, |cx, m| {
        let hidden = if cx.is_float(m) { f64::NEG_INFINITY } else { 0.0 };
        super::movement::padded(cx, m, &pads, "constant", hidden)
    })
}

/// Pairs of columns turned by an angle for each place: `x` is `[B, S, H, D]`, `cos` and `sin`
/// `[B, S, 1, D' / 2]` for its first `D'` columns.
pub fn rotated(
    cx: &mut Cx<'_, '_>,
    x: Value,
    (cos, sin): (Value, Value),
    turned: u64,
    interleaved: bool,
) -> Result<Value, Why> {
    let width = cx.need_extent(x, 3, "a rotation")?;
    let half = turned / 2;
    if turned > width || !turned.is_multiple_of(2) || turned == 0 {
        return Err(Why(format!("{turned} of {width} columns are turned")));
    }
    let (rotate, rest) = match turned == width {
        true => (x, None),
        false => {
            let n = turned as i64;
            (cx.slice(x, 3, 0, Some(n))?, Some(cx.slice(x, 3, n, None)?))
        }
    };
    let (a, b) = if interleaved {
        let step = |first: i64| (3, [first, turned as i64, 2]);
        (
            super::movement::fixed_slice(cx, rotate, &[step(0)])?,
            super::movement::fixed_slice(cx, rotate, &[step(1)])?,
        )
    } else {
        let n = half as i64;
        (cx.slice(rotate, 3, 0, Some(n))?, cx.slice(rotate, 3, n, None)?)
    };
    let mut turn = |p: (Value, Value), q: (Value, Value), minus: bool| -> Result<Value, Why> {
        let (left, right) = (cx.mul(p.0, p.1)?, cx.mul(q.0, q.1)?);
        if minus { cx.sub(left, right) } else { cx.add(left, right) }
    };
    let real = turn((a, cos), (b, sin), true)?;
    let imaginary = turn((a, sin), (b, cos), false)?;
    let mut y = if interleaved {
        let pairs = cx.push(Stack { values: vec![real, imaginary], axis: 4 })?;
        let parts = cx.parts(rotate);
        cx.reshape(pairs, &parts)?
    } else {
        cx.concat(vec![real, imaginary], 3)?
    };
    if let Some(rest) = rest {
        y = cx.concat(vec![y, rest], 3)?;
    }
    Ok(y)
}

fn rotary(cx: &mut Cx<'_, '_>) -> Outs {
    let (x, cos, sin) = (cx.x(0)?, cx.x(1)?, cx.x(2)?);
    let positions = cx.opt(3)?;
    let y = rotary_of(cx, x, (cos, sin), positions)?;
    cx.same(y)
}

/// Rotary positions of `x` `[B, S, H * D]` or `[B, H, S, D]` with tables by position, or by place
/// when there are no positions.
pub fn rotary_of(
    cx: &mut Cx<'_, '_>,
    x: Value,
    (cos, sin): (Value, Value),
    positions: Option<Value>,
) -> Result<Value, Why> {
    let flat = cx.rank(x) == 3;
    let apart = if flat {
        let n = cx.int_attr("num_heads", 0).clamp(0, 1 << 20) as u64;
        let width = cx.need_extent(x, 2, "heads")?;
        // Where it is not said, the tables have a column for each pair.
        let table = cx.need_extent(cos, cx.rank(cos) - 1, "a table of angles")?;
        let n = if n == 0 { width / (2 * table).max(1) } else { n };
        if n == 0 || !width.is_multiple_of(n) {
            return Err(Why(format!("{width} columns for {n} heads")));
        }
        cx.reshape(x, &[Part::Of(x, 0), Part::Of(x, 1), Part::N(n), Part::N(width / n)])?
    } else {
        cx.transpose(x, &[0, 2, 1, 3])?
    };
    let width = cx.need_extent(apart, 3, "a rotation")?;
    let turned = match cx.int_attr("rotary_embedding_dim", 0) {
        0 => width,
        n => n.max(0) as u64,
    };
    let mut angles = |table: Value| -> Result<Value, Why> {
        let at = match positions {
            Some(p) => super::movement::take(cx, table, p, 0)?,
            None => table,
        };
        let at = if cx.rank(at) == 2 { cx.expand_dims(at, &[0])? } else { at };
        cx.expand_dims(at, &[2])
    };
    let tables = (angles(cos)?, angles(sin)?);
    let y = rotated(cx, apart, tables, turned, cx.flag("interleaved", false))?;
    if flat {
        let parts = cx.parts(x);
        return cx.reshape(y, &parts);
    }
    cx.transpose(y, &[0, 2, 1, 3])
}

/// `[B, 1, 1, S]`: may keys be seen, of which each batch has the first so many.
pub fn first_keys(cx: &mut Cx<'_, '_>, lengths: Value, keys: Part) -> Result<Value, Why> {
    let places = places(cx, keys)?;
    let lengths = cx.reshape(lengths, &[Part::Rest, Part::N(1), Part::N(1), Part::N(1)])?;
    cx.push(Less { x: places, y: lengths })
}

/// Steps up to which a recurrence is written out.
const STEPS_MAX: u64 = 1024;

/// Attention whose keys and values are summed up in a state `[B, H, Dk, Dv]`, step by step.
fn linear(cx: &mut Cx<'_, '_>) -> Outs {
    let rule = cx.text_attr("update_rule", "gated_delta");
    let (gated, corrected) = (rule.contains("gated"), rule.contains("delta"));
    let n = |cx: &Cx<'_, '_>, name: &str| cx.int_attr(name, 0).clamp(0, 1 << 20) as u64;
    let (n_q, n_kv) = (n(cx, "q_num_heads"), n(cx, "kv_num_heads"));
    if n_kv == 0 || !n_q.is_multiple_of(n_kv) {
        return Err(Why(format!("{n_q} heads that share {n_kv}")));
    }
    let (given, key, value) = (cx.x(0)?, cx.x(1)?, cx.x(2)?);
    let q = wide_heads(cx, given, n_q)?;
    let (k, v) = (wide_heads(cx, key, n_kv)?, wide_heads(cx, value, n_kv)?);
    let decay = match cx.opt(4)? {
        Some(d) if gated => Some(wide_heads(cx, d, n_kv)?),
        _ => None,
    };
    let beta = match cx.opt(5)? {
        Some(b) if corrected => {
            let heads_n = cx.need_extent(b, 2, "a step's weight")?;
            Some(wide_heads(cx, b, heads_n)?)
        }
        _ => None,
    };
    let steps = cx.need_extent(q, 2, "a recurrence")?;
    if steps > STEPS_MAX || steps == 0 {
        return Err(Why(format!("a recurrence of {steps} steps")));
    }
    let d_k = cx.need_extent(k, 3, "a head")?;
    let scale = match cx.float_attr("scale", 0.0) {
        0.0 => 1.0 / (d_k as f64).sqrt(),
        s => s.into(),
    };
    let mut state = match cx.opt(3)? {
        Some(past) => Some(cx.cast(past, DType::F32)?),
        None => None,
    };
    let mut made = Vec::new();
    for t in 0..steps as i64 {
        let at = |cx: &mut Cx<'_, '_>, v: Value| cx.slice(v, 2, t, Some(t + 1));
        let (q, k, mut v) = (at(cx, q)?, at(cx, k)?, at(cx, v)?);
        if let (Some(decay), Some(s)) = (decay, state) {
            // [B, H, 1, Dk or 1]: of each key column, over all value columns.
            let decay = at(cx, decay)?;
            let kept = cx.push(Exp { x: decay })?;
            let kept = cx.transpose(kept, &[0, 1, 3, 2])?;
            state = Some(cx.mul(s, kept)?);
        }
        if let Some(beta) = beta {
            let beta = at(cx, beta)?;
            if let Some(s) = state {
                let known = cx.matmul(k, s)?;
                v = cx.sub(v, known)?;
            }
            v = cx.mul(v, beta)?;
        }
        let more = cx.push(Matmul { x: k, y: v, transpose_x: true, transpose_y: false })?;
        let now = match state {
            Some(s) => cx.add(s, more)?,
            None => more,
        };
        state = Some(now);
        let seen = repeated(cx, now, n_q / n_kv)?;
        made.push(cx.matmul(q, seen)?);
    }
    let all = cx.concat(made, 2)?;
    let all = cx.scale(all, scale)?;
    let y = joined(cx, all)?;
    let dtype = cx.dtype(given);
    let y = cx.cast(y, dtype)?;
    let kind = if cx.has(3) { cx.elem(3) } else { cx.elem(0) };
    let state = cx.cast(state.ok_or("no state")?, kind.computed())?;
    Ok(vec![Out::Value(y, cx.elem(0)), Out::Value(state, kind)])
}

/// Heads in fp32.
fn wide_heads(cx: &mut Cx<'_, '_>, v: Value, n: u64) -> Result<Value, Why> {
    let v = cx.cast(v, DType::F32)?;
    heads(cx, v, n)
}
