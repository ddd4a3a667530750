//! Ops that move elements: other shapes, slices, repetition, padding.

use russet_ir::ops::*;
use russet_ir::{DType, Dim, Number, Tensor, Value};

use super::super::cx::{Cx, Import, Outs, Part, params, resolve, saturated, small};
use super::super::fold::slice_axis;
use super::super::importer::{Out, Why};

pub fn find(op: &str) -> Option<Import> {
    Some(match op {
        "Reshape" => reshape,
        "Flatten" => flatten,
        "Squeeze" => squeeze,
        "Unsqueeze" => unsqueeze,
        "Transpose" => transpose,
        "Concat" => concat,
        "Split" => split,
        "Slice" => slice,
        "Expand" => expand,
        "Tile" => tile,
        "Pad" => pad,
        "DepthToSpace" => depth_to_space,
        "SpaceToDepth" => space_to_depth,
        "Trilu" => trilu,
        "CenterCropPad" => center_crop_pad,
        "ReverseSequence" => reverse_sequence,
        _ => return None,
    })
}

fn reshape(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.x(0)?;
    let allow_zero = cx.flag("allowzero", false);
    let shape = match cx.version < 5 {
        true => cx.attrs.ints("shape").map(<[i64]>::to_vec),
        false => cx.lit(1).and_then(|l| l.as_ints().map(<[i64]>::to_vec)),
    };
    if let Some(shape) = shape {
        let mut parts = Vec::new();
        for (i, &n) in shape.iter().enumerate() {
            parts.push(match n {
                0 if !allow_zero && i < cx.rank(x) => Part::Of(x, i),
                0 if !allow_zero => return Err(Why(format!("axis {i} is copied and not there"))),
                -1 => Part::Rest,
                n => Part::N(u64::try_from(n).map_err(|_| Why(format!("shape {shape:?}")))?),
            });
        }
        let y = cx.reshape(x, &parts)?;
        return cx.same(y);
    }
    let shape = cx.x(1)?;
    let Some(dims) = cx.im.graph.types().dims(shape) else {
        let shape = if allow_zero { shape } else { with_copies(cx, x, shape)? };
        let y = cx.push(Reshape { x, shape })?;
        return cx.same(y);
    };
    let zeros = !allow_zero && dims.contains(&Dim::Fixed(0));
    let shape = match zeros {
        false => shape,
        true => {
            // ONNX counts the axis that is copied from the front, MIL from the back.
            let mut pieces = Vec::new();
            for (i, d) in dims.iter().enumerate() {
                let i64 = i as i64;
                pieces.push(match d {
                    Dim::Fixed(0) if i < cx.rank(x) => cx.extent(x, i)?,
                    _ => cx.slice(shape, 0, i64, Some(i64 + 1))?,
                });
            }
            cx.concat(pieces, 0)?
        }
    };
    let y = cx.push(Reshape { x, shape })?;
    cx.same(y)
}

/// A computed shape whose zeros stand for extents of `x`.
fn with_copies(cx: &mut Cx<'_, '_>, x: Value, shape: Value) -> Result<Value, Why> {
    let (n, rank) = (cx.need_extent(shape, 0, "a shape")? as usize, cx.rank(x));
    let parts: Vec<Part> =
        (0..n).map(|i| if i < rank { Part::Of(x, i) } else { Part::N(1) }).collect();
    let copied = cx.shape_of(&parts, false)?;
    let zero = cx.int_like(0)?;
    let copies = cx.push(Equal { x: shape, y: zero })?;
    cx.select(copies, copied, shape)
}

fn flatten(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.x(0)?;
    let rank = cx.rank(x);
    let axis = cx.int_attr("axis", 1);
    let at = if axis == rank as i64 { rank } else { resolve(axis, rank.max(1))? };
    let y = match cx.fixed_shape(x) {
        Some(shape) => {
            let n = |part: &[u64]| part.iter().product();
            cx.reshape_fixed(x, &[n(&shape[..at.min(rank)]), n(&shape[at.min(rank)..])])?
        }
        None => cx.push(Flatten2d { x, axis: at as i32 })?,
    };
    cx.same(y)
}

fn squeeze(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.raw_first()?;
    let axes = match cx.ints_either("axes", 1, 13)? {
        Some(axes) => cx.axes(x, &axes)?,
        None => {
            let shape = cx.need_shape(x, "to drop all axes of extent 1")?;
            (0..shape.len()).filter(|&i| shape[i] == 1).collect()
        }
    };
    // An extent with a name that is to be dropped can only be 1.
    let symbolic = axes.iter().any(|&a| cx.shape(x)[a].fixed().is_none());
    let y = match symbolic {
        false => cx.squeeze(x, &axes)?,
        true => {
            let kept = (0..cx.rank(x)).filter(|i| !axes.contains(i)).map(|i| Part::Of(x, i));
            let kept: Vec<Part> = kept.collect();
            cx.reshape(x, &kept)?
        }
    };
    cx.same(y)
}

fn unsqueeze(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.raw_first()?;
    let axes = cx.ints_either("axes", 1, 13)?.ok_or("`axes` are missing")?;
    let rank = cx.rank(x) + axes.len();
    let axes = axes.iter().map(|&a| resolve(a, rank)).collect::<Result<Vec<_>, _>>()?;
    let y = cx.expand_dims(x, &axes)?;
    cx.same(y)
}

fn transpose(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.raw_first()?;
    let perm = match cx.attrs.ints("perm") {
        Some(perm) => {
            let perm = perm.to_vec();
            cx.axes(x, &perm)?
        }
        None => (0..cx.rank(x)).rev().collect(),
    };
    let y = cx.transpose(x, &perm)?;
    cx.same(y)
}

fn concat(cx: &mut Cx<'_, '_>) -> Outs {
    let values: Vec<Value> = (0..cx.n_inputs()).map(|i| cx.x(i)).collect::<Result<_, _>>()?;
    let first = *values.first().ok_or("nothing to join")?;
    let axis = cx.axis(first, cx.int_attr("axis", 1))?;
    let y = cx.concat(values, axis)?;
    cx.same(y)
}

fn split(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.x(0)?;
    let axis = cx.axis(x, cx.int_attr("axis", 0))?;
    let elem = cx.elem(0);
    let n_outputs = cx.outputs.len() as u64;
    let sizes = match cx.ints_either("split", 1, 13)? {
        Some(sizes) => sizes,
        None => {
            let n = cx.need_extent(x, axis, "an equal split")?;
            let parts = cx.attrs.int("num_outputs").map_or(n_outputs, |n| n as u64);
            if parts == 0 || parts > 1 << 16 {
                return Err(Why(format!("{parts} parts")));
            }
            // The last is smaller where they do not divide.
            let each = n.div_ceil(parts);
            (0..parts).map(|i| each.min(n.saturating_sub(i * each)) as i64).collect()
        }
    };
    let parts = match cx.shape(x)[axis] {
        Dim::Fixed(_) => {
            let split_sizes = Some(params("split", &sizes)?);
            cx.push_all(Split { x, num_splits: None, split_sizes, axis: axis as i32 })?
        }
        Dim::Symbol(_) => {
            let mut parts = Vec::new();
            let mut at = 0i64;
            for (i, &n) in sizes.iter().enumerate() {
                let end = (i + 1 < sizes.len()).then_some(at.saturating_add(n));
                parts.push(cx.slice(x, axis, at, end)?);
                at = at.saturating_add(n);
            }
            parts
        }
    };
    Ok(parts.into_iter().map(|v| Out::Value(v, elem)).collect())
}

fn slice(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.x(0)?;
    let rank = cx.rank(x);
    let axes = match cx.ints_either("axes", 3, 10)? {
        Some(axes) => Some(cx.axes(x, &axes)?),
        None => None,
    };
    let steps = if cx.version < 10 { None } else { cx.opt_ints(4, "steps")? };
    let known = |cx: &Cx<'_, '_>, name: &str, i: usize| cx.ints_either(name, i, 10).ok().flatten();
    let (starts, ends) = (known(cx, "starts", 1), known(cx, "ends", 2));
    let y = match (starts, ends) {
        (Some(starts), Some(ends)) => {
            let axes = axes.unwrap_or_else(|| (0..starts.len()).collect());
            let steps = steps.unwrap_or_else(|| vec![1; axes.len()]);
            if [starts.len(), ends.len(), steps.len()] != [axes.len(); 3] {
                return Err(Why::from("there are not as many begins as ends, axes and steps"));
            }
            let cuts = (0..axes.len()).map(|i| (axes[i], [starts[i], ends[i], steps[i]]));
            let cuts: Vec<_> = cuts.collect();
            fixed_slice(cx, x, &cuts)?
        }
        _ => {
            let (begins, ends) = (cx.x(1)?, cx.x(2)?);
            let n = cx.need_extent(begins, 0, "a slice")? as usize;
            let axes = axes.unwrap_or_else(|| (0..n).collect());
            let steps = steps.unwrap_or_else(|| vec![1; n]);
            if axes.len() != n || steps.len() != n || axes.iter().any(|&a| a >= rank) {
                return Err(Why::from("there are not as many begins as axes and steps"));
            }
            moving_slice(cx, x, (begins, ends), &axes, &steps)?
        }
    };
    cx.same(y)
}

/// A slice whose begins, ends and steps are known, each for an axis.
pub fn fixed_slice(
    cx: &mut Cx<'_, '_>,
    x: Value,
    cuts: &[(usize, [i64; 3])],
) -> Result<Value, Why> {
    let shape = cx.shape(x);
    let rank = shape.len();
    let (mut begin, mut end, mut stride) = (vec![0; rank], vec![0; rank], vec![1; rank]);
    let (mut begin_mask, mut end_mask) = (vec![true; rank], vec![true; rank]);
    for &(axis, [start, stop, step]) in cuts {
        if step == 0 {
            return Err(Why::from("a step of 0"));
        }
        stride[axis] = saturated(step);
        match &shape[axis] {
            Dim::Fixed(n) => {
                let (first, count) = slice_axis(*n as i64, start, stop, step);
                let last = first.saturating_add(count.saturating_mul(step));
                (begin[axis], begin_mask[axis]) = (first.max(0), false);
                // Before the first element there is no number for the end.
                let before = step < 0 && last < 0 && count > 0;
                (end[axis], end_mask[axis]) = (last, before);
                if count == 0 {
                    (begin[axis], end[axis], stride[axis]) = (0, 0, 1);
                } else if step > 0 {
                    end[axis] = last.min(*n as i64);
                }
            }
            Dim::Symbol(_) => {
                let (first, last) = (i64::from(i32::MAX), -i64::from(i32::MAX));
                (begin[axis], end[axis]) = (start, stop);
                if step > 0 {
                    (begin_mask[axis], end_mask[axis]) = (start == 0, stop >= first);
                } else {
                    let whole = start == -1 || start >= first;
                    (begin_mask[axis], end_mask[axis]) = (whole, stop <= last);
                }
            }
        }
    }
    let (begin, end) = (cx.vector(&begin)?, cx.vector(&end)?);
    cx.push(SliceByIndex {
        x,
        begin,
        end,
        stride: Some(stride),
        begin_mask: Some(begin_mask),
        end_mask: Some(end_mask),
        squeeze_mask: None,
    })
}

/// A slice whose begins and ends are computed.
fn moving_slice(
    cx: &mut Cx<'_, '_>,
    x: Value,
    (begins, ends): (Value, Value),
    axes: &[usize],
    steps: &[i64],
) -> Result<Value, Why> {
    let rank = cx.rank(x);
    let mut spread = |v: Value| -> Result<Value, Why> {
        let mut pieces = Vec::new();
        for axis in 0..rank {
            pieces.push(match axes.iter().position(|&a| a == axis) {
                Some(i) => cx.slice(v, 0, i as i64, Some(i as i64 + 1))?,
                None => cx.vector(&[0])?,
            });
        }
        cx.concat(pieces, 0)
    };
    let (begin, end) = (spread(begins)?, spread(ends)?);
    let mask: Vec<bool> = (0..rank).map(|i| !axes.contains(&i)).collect();
    let step = |i: usize| axes.iter().position(|&a| a == i).map_or(1, |k| saturated(steps[k]));
    cx.push(SliceByIndex {
        x,
        begin,
        end,
        stride: Some((0..rank).map(step).collect()),
        begin_mask: Some(mask.clone()),
        end_mask: Some(mask),
        squeeze_mask: None,
    })
}

fn expand(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.x(0)?;
    let rank = cx.rank(x);
    let Some(shape) = cx.lit(1).and_then(|l| l.as_ints().map(<[i64]>::to_vec)) else {
        let shape = cx.x(1)?;
        let y = cx.spread(x, shape)?;
        return cx.same(y);
    };
    let out = rank.max(shape.len());
    let part = |i: usize| {
        let wanted = (i + shape.len()).checked_sub(out).map_or(1, |k| shape[k]);
        match (wanted, (i + rank).checked_sub(out)) {
            (1, Some(axis)) => Part::Of(x, axis),
            (n, _) => Part::N(n.max(0) as u64),
        }
    };
    let parts: Vec<Part> = (0..out).map(part).collect();
    let y = cx.tile_to(x, &parts)?;
    match y == x {
        true => Ok(vec![Out::Same(cx.val(0)?)]),
        false => cx.same(y),
    }
}

fn tile(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.x(0)?;
    let reps = cx.x(1)?;
    let y = cx.push(Tile { x, reps })?;
    cx.same(y)
}

fn pad(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.x(0)?;
    let rank = cx.rank(x);
    let mode = cx.text_attr("mode", "constant");
    let value = match cx.version < 11 {
        true => f64::from(cx.float_attr("value", 0.0)),
        false => {
            cx.opt_floats(2, "constant_value")?.and_then(|v| v.first().copied()).unwrap_or(0.0)
        }
    };
    let pads = match cx.ints_either("pads", 1, 11) {
        Ok(pads) => pads.ok_or("`pads` are missing")?,
        // Numbers that are computed: in MIL's order.
        Err(_) if mode == "constant" && !cx.has(3) => {
            let pads = cx.x(1)?;
            let pairs = cx.reshape_fixed(pads, &[2, rank as u64])?;
            let pairs = cx.transpose(pairs, &[1, 0])?;
            let pad = cx.reshape_fixed(pairs, &[2 * rank as u64])?;
            let y = cx.unbool(x, |cx, x| {
                let constant_val = Some(number(cx, x, value));
                cx.push(Pad { x, pad, mode: PadMode::Constant, constant_val })
            })?;
            return cx.same(y);
        }
        Err(why) => return Err(why),
    };
    let axes = match cx.opt_ints(3, "axes")? {
        Some(axes) => cx.axes(x, &axes)?,
        None => (0..rank).collect(),
    };
    if pads.len() != 2 * axes.len() || pads.iter().any(|p| p.unsigned_abs() > 1 << 30) {
        return Err(Why(format!("{} numbers of padding for {} axes", pads.len(), axes.len())));
    }
    let mut all = vec![(0, 0); rank];
    for (i, &axis) in axes.iter().enumerate() {
        all[axis] = (pads[i], pads[axes.len() + i]);
    }
    let y = cx.unbool(x, |cx, x| padded(cx, x, &all, mode, value))?;
    cx.same(y)
}

fn number(cx: &Cx<'_, '_>, x: Value, value: f64) -> Number {
    match cx.is_float(x) {
        true => Number::Float(value as f32),
        false => Number::Int(value as i32),
    }
}

/// `x` with elements before and after each axis; negative numbers take elements away.
pub fn padded(
    cx: &mut Cx<'_, '_>,
    x: Value,
    pads: &[(i64, i64)],
    mode: &str,
    value: f64,
) -> Result<Value, Why> {
    let mut x = x;
    let cuts: Vec<(usize, [i64; 3])> = pads
        .iter()
        .enumerate()
        .filter(|(_, p)| p.0 < 0 || p.1 < 0)
        .map(|(i, p)| {
            let end = if p.1 < 0 { p.1 } else { i64::from(i32::MAX) };
            (i, [(-p.0).max(0), end, 1])
        })
        .collect();
    if !cuts.is_empty() {
        x = fixed_slice(cx, x, &cuts)?;
    }
    let pads: Vec<(i64, i64)> = pads.iter().map(|p| (p.0.max(0), p.1.max(0))).collect();
    let Some(first) = pads.iter().position(|&p| p != (0, 0)) else { return Ok(x) };
    let rank = pads.len();
    let flat: Vec<i64> = pads[first..].iter().flat_map(|p| [p.0, p.1]).collect();
    if mode == "constant" {
        let pad = cx.vector(&flat)?;
        let constant_val = Some(number(cx, x, value));
        return cx.push(Pad { x, pad, mode: PadMode::Constant, constant_val });
    }
    let native = match mode {
        "reflect" => PadMode::Reflect,
        "edge" => PadMode::Replicate,
        "wrap" => PadMode::Constant,
        other => return Err(Why(format!("padding of mode {other:?} is not known"))),
    };
    // Of the last two axes alone, by less than their extents: what the op of MIL does.
    let short = (first..rank).all(|i| {
        let n = cx.shape(x)[i].fixed().unwrap_or(u64::MAX);
        mode == "edge" || (pads[i].0.max(pads[i].1) as u64) < n
    });
    if mode != "wrap" && first + 2 >= rank && short && cx.is_float(x) {
        let pad = cx.vector(&flat)?;
        return cx.push(Pad { x, pad, mode: native, constant_val: None });
    }
    for (axis, &(before, after)) in pads.iter().enumerate().filter(|(_, p)| **p != (0, 0)) {
        let n = cx.need_extent(x, axis, "this padding")? as i64;
        if n == 0 || n > 1 << 22 || before.max(after) > 1 << 20 {
            return Err(Why(format!("{before} and {after} elements around {n}")));
        }
        let place = |i: i64| match mode {
            "edge" => i.clamp(0, n - 1),
            "wrap" => i.rem_euclid(n),
            _ if n == 1 => 0,
            _ => {
                let period = 2 * (n - 1);
                let at = i.rem_euclid(period);
                at.min(period - at)
            }
        };
        let places: Vec<i64> = (-before..n + after).map(place).collect();
        let indices = cx.vector(&places)?;
        x = take(cx, x, indices, axis)?;
    }
    Ok(x)
}

/// Slices of `x` along an axis.
pub fn take(cx: &mut Cx<'_, '_>, x: Value, indices: Value, axis: usize) -> Result<Value, Why> {
    cx.unbool(x, |cx, x| {
        let axis = axis as i32;
        cx.push(Gather { x, indices, axis, batch_dims: 0, validate_indices: false })
    })
}

fn depth_to_space(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.x(0)?;
    let block_size = saturated(cx.int_attr("blocksize", 0));
    let y = match cx.text_attr("mode", "DCR") {
        "CRD" => cx.push(PixelShuffle { x, upscale_factor: block_size })?,
        _ => cx.push(DepthToSpace { x, block_size })?,
    };
    cx.same(y)
}

fn space_to_depth(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.x(0)?;
    let block_size = saturated(cx.int_attr("blocksize", 0));
    let y = cx.push(SpaceToDepth { x, block_size })?;
    cx.same(y)
}

fn trilu(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.x(0)?;
    let k = cx.opt_ints(1, "k")?.and_then(|k| k.first().copied()).unwrap_or(0);
    let upper = cx.flag("upper", true);
    let y = triangle(cx, x, k, upper)?;
    cx.same(y)
}

/// Elements on and above (or below) the diagonal `k`, zero elsewhere.
pub fn triangle(cx: &mut Cx<'_, '_>, x: Value, k: i64, upper: bool) -> Result<Value, Why> {
    let band = |low: i64, high: i64| BandPart { x, lower: saturated(low), upper: saturated(high) };
    if upper && k <= 0 {
        return cx.push(band(k.saturating_neg(), -1));
    }
    if !upper && k >= 0 {
        return cx.push(band(-1, k));
    }
    // A band that leaves the diagonal out.
    let rank = cx.rank(x);
    let shape = cx.need_shape(x, "a triangle beside the diagonal")?;
    let [rows, columns] = shape[rank.checked_sub(2).ok_or("a matrix is expected")?..] else {
        return Err(Why::from("a matrix is expected"));
    };
    if rows.saturating_mul(columns) > 1 << 26 {
        return Err(Why(format!("a triangle of {rows} by {columns}")));
    }
    let kept = |i: u64, j: u64| {
        let distance = j as i64 - i as i64;
        u8::from(if upper { distance >= k } else { distance <= k })
    };
    let mask: Vec<u8> = (0..rows).flat_map(|i| (0..columns).map(move |j| kept(i, j))).collect();
    let mask = Tensor::new(DType::Bool, vec![rows, columns], mask.into());
    let mask = cx.constant(mask.map_err(|e| Why(e.to_string()))?)?;
    if cx.dtype(x) == DType::Bool {
        return cx.push(LogicalAnd { x, y: mask });
    }
    let zero = cx.number(0.0, x)?;
    cx.select(mask, x, zero)
}

fn center_crop_pad(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.x(0)?;
    let wanted = cx.ints(1, "shape")?;
    let axes = match cx.attrs.ints("axes") {
        Some(axes) => {
            let axes = axes.to_vec();
            cx.axes(x, &axes)?
        }
        None => (0..cx.rank(x)).collect(),
    };
    if wanted.iter().any(|n| !(0..1 << 30).contains(n)) {
        return Err(Why(format!("extents {wanted:?}")));
    }
    let mut pads = vec![(0, 0); cx.rank(x)];
    for (&axis, &n) in axes.iter().zip(&wanted) {
        let more = n - cx.need_extent(x, axis, "a crop around the middle")? as i64;
        // What is odd is cut at the end more, and added at the end more.
        let before = if more < 0 { -((-more) / 2) } else { more / 2 };
        pads[axis] = (before, more - before);
    }
    let y = cx.unbool(x, |cx, x| padded(cx, x, &pads, "constant", 0.0))?;
    cx.same(y)
}

fn reverse_sequence(cx: &mut Cx<'_, '_>) -> Outs {
    let (x, lengths) = (cx.x(0)?, cx.x(1)?);
    let seq_axis = cx.axis(x, cx.int_attr("time_axis", 0))? as i32;
    let batch_axis = cx.axis(x, cx.int_attr("batch_axis", 1))? as i32;
    let y = cx.push(ReverseSequence { x, lengths, seq_axis, batch_axis })?;
    cx.same(y)
}

/// `x` turned around along an axis.
pub fn reversed(cx: &mut Cx<'_, '_>, x: Value, axis: usize) -> Result<Value, Why> {
    cx.push(Reverse { x, axes: Some(small(&[axis])) })
}
