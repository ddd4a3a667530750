//! Ops that take elements by place, or put them there.

use russet_ir::ops::*;
use russet_ir::{DType, Dim, Opset, Value};

use super::super::cx::{Cx, Import, Outs};
use super::super::elem::Elem;
use super::super::importer::Why;
use super::movement::{fixed_slice, take};

pub fn find(op: &str) -> Option<Import> {
    Some(match op {
        "Gather" => gather,
        "GatherElements" => gather_elements,
        "GatherND" => gather_nd,
        "Scatter" | "ScatterElements" => scatter_elements,
        "ScatterND" => scatter_nd,
        "Compress" => compress,
        "NonZero" => non_zero,
        "OneHot" => one_hot,
        "TensorScatter" => tensor_scatter,
        _ => return None,
    })
}

fn gather(cx: &mut Cx<'_, '_>) -> Outs {
    let (x, indices) = (cx.x(0)?, cx.x(1)?);
    let axis = cx.axis(x, cx.int_attr("axis", 0))?;
    let y = take(cx, x, indices, axis)?;
    cx.same(y)
}

/// An axis, and where it is cut: begin, end and step.
type Cut = (usize, [i64; 3]);

/// The part of `x` that `indices` of another shape can reach: on other axes they may be shorter.
fn reachable(
    cx: &mut Cx<'_, '_>,
    x: Value,
    indices: Value,
    axis: usize,
) -> Result<(Value, Vec<Cut>), Why> {
    let (have, want) = (cx.shape(x), cx.shape(indices));
    if have.len() != want.len() {
        return Err(Why(format!("indices of rank {} on rank {}", want.len(), have.len())));
    }
    let mut cuts = Vec::new();
    for i in (0..have.len()).filter(|&i| i != axis && have[i] != want[i]) {
        match (&have[i], &want[i]) {
            (_, Dim::Fixed(n)) => cuts.push((i, [0, *n as i64, 1])),
            (_, other) => return Err(Why(format!("indices of extent {other} on axis {i}"))),
        }
    }
    let part = if cuts.is_empty() { x } else { fixed_slice(cx, x, &cuts)? };
    Ok((part, cuts))
}

fn gather_elements(cx: &mut Cx<'_, '_>) -> Outs {
    let (x, indices) = (cx.x(0)?, cx.x(1)?);
    let axis = cx.axis(x, cx.int_attr("axis", 0))?;
    let (x, _) = reachable(cx, x, indices, axis)?;
    let y = along(cx, x, indices, axis)?;
    cx.same(y)
}

/// The element at each of `indices` along an axis.
pub fn along(cx: &mut Cx<'_, '_>, x: Value, indices: Value, axis: usize) -> Result<Value, Why> {
    cx.unbool(x, |cx, x| {
        let axis = axis as i32;
        cx.push(GatherAlongAxis { x, indices, axis, validate_indices: false })
    })
}

fn gather_nd(cx: &mut Cx<'_, '_>) -> Outs {
    let (x, indices) = (cx.x(0)?, cx.x(1)?);
    let batch_dims = cx.int_attr("batch_dims", 0) as i32;
    let y = cx
        .unbool(x, |cx, x| cx.push(GatherNd { x, indices, batch_dims, validate_indices: false }))?;
    cx.same(y)
}

fn mode(cx: &Cx<'_, '_>) -> Result<ScatterMode, Why> {
    Ok(match cx.text_attr("reduction", "none") {
        "none" => ScatterMode::Update,
        "add" => ScatterMode::Add,
        "mul" => ScatterMode::Mul,
        "max" => ScatterMode::Max,
        "min" => ScatterMode::Min,
        other => return Err(Why(format!("reduction {other:?} is not known"))),
    })
}

fn scatter_elements(cx: &mut Cx<'_, '_>) -> Outs {
    let (data, indices, updates) = (cx.x(0)?, cx.x(1)?, cx.x(2)?);
    let axis = cx.axis(data, cx.int_attr("axis", 0))?;
    let mode = mode(cx)?;
    let bool = cx.dtype(data) == DType::Bool;
    let (data, updates) = match bool {
        true => (cx.cast(data, DType::I32)?, cx.cast(updates, DType::I32)?),
        false => (data, updates),
    };
    let (part, cuts) = reachable(cx, data, indices, axis)?;
    let axis = axis as i32;
    let made = cx.push(ScatterAlongAxis {
        data: part,
        indices,
        updates,
        axis,
        mode,
        validate_indices: false,
    })?;
    let y = match cuts.is_empty() {
        true => made,
        false if cx.opset < Opset::Ios18 => {
            return Err(Why::from("indices that reach a part of an axis need iOS 18"));
        }
        false => {
            let rank = cx.rank(data);
            let mut end: Vec<i64> = vec![0; rank];
            let mut end_mask = vec![true; rank];
            for &(i, [_, n, _]) in &cuts {
                (end[i], end_mask[i]) = (n, false);
            }
            let (begin, end) = (cx.vector(&vec![0; rank])?, cx.vector(&end)?);
            cx.push(SliceUpdate {
                x: data,
                update: made,
                begin,
                end,
                stride: None,
                begin_mask: Some(vec![true; rank]),
                end_mask: Some(end_mask),
                squeeze_mask: None,
            })?
        }
    };
    let y = if bool { cx.cast(y, DType::Bool)? } else { y };
    cx.same(y)
}

fn scatter_nd(cx: &mut Cx<'_, '_>) -> Outs {
    let (data, indices, updates) = (cx.x(0)?, cx.x(1)?, cx.x(2)?);
    let mode = mode(cx)?;
    let bool = cx.dtype(data) == DType::Bool;
    let (data, updates) = match bool {
        true => (cx.cast(data, DType::I32)?, cx.cast(updates, DType::I32)?),
        false => (data, updates),
    };
    let y = cx.push(ScatterNd { data, indices, updates, mode, validate_indices: false })?;
    let y = if bool { cx.cast(y, DType::Bool)? } else { y };
    cx.same(y)
}

fn compress(cx: &mut Cx<'_, '_>) -> Outs {
    let mut x = cx.x(0)?;
    let axis = match cx.attrs.int("axis") {
        Some(axis) => cx.axis(x, axis)?,
        None => {
            x = cx.reshape(x, &[super::super::cx::Part::Rest])?;
            0
        }
    };
    let indices = match cx.lit(1) {
        Some(lit) => {
            let kept = lit.as_ints().unwrap_or_default().iter().enumerate();
            let kept: Vec<i64> = kept.filter(|(_, c)| **c != 0).map(|(i, _)| i as i64).collect();
            cx.vector(&kept)?
        }
        None => {
            let condition = cx.x(1)?;
            let places = cx.push(NonZero { x: condition })?;
            cx.reshape(places, &[super::super::cx::Part::Rest])?
        }
    };
    let y = take(cx, x, indices, axis)?;
    cx.same(y)
}

fn non_zero(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.x(0)?;
    let places = cx.push(NonZero { x })?;
    let y = cx.transpose(places, &[1, 0])?;
    cx.one(y, Elem::I64)
}

fn one_hot(cx: &mut Cx<'_, '_>) -> Outs {
    let (indices, depth, values) = (cx.x(0)?, cx.x(1)?, cx.x(2)?);
    let indices = cx.cast(indices, DType::I32)?;
    let depth = cx.cast(depth, DType::I32)?;
    let rank = cx.rank(depth);
    let depth = cx.squeeze(depth, &(0..rank).collect::<Vec<_>>())?;
    // Negative ones count from the back.
    let zero = cx.int_like(0)?;
    let negative = cx.push(Less { x: indices, y: zero })?;
    let from_back = cx.add(indices, depth)?;
    let indices = cx.select(negative, from_back, indices)?;
    let mut value = |at: i64| {
        let one = cx.slice(values, 0, at, Some(at + 1))?;
        cx.squeeze(one, &[0])
    };
    let (off, on) = (value(0)?, value(1)?);
    let axis = cx.int_attr("axis", -1) as i32;
    let y = cx.push(OneHot {
        indices,
        one_hot_vector_size: depth,
        axis,
        on_value: Some(on),
        off_value: Some(off),
    })?;
    cx.one(y, cx.elem(2))
}

/// A cache `[B, .., S, ..]` with `update` put at `write_indices` `[B]` along the axis of sequences.
fn tensor_scatter(cx: &mut Cx<'_, '_>) -> Outs {
    let (cache, update) = (cx.x(0)?, cx.x(1)?);
    let axis = cx.axis(cache, cx.int_attr("axis", -2))?;
    let (n, m) = (
        cx.need_extent(cache, axis, "a cache")?,
        cx.need_extent(update, axis, "an update of a cache")?,
    );
    let shape = cx.shape(update);
    if m > 1 << 20 {
        return Err(Why(format!("an update of {m}")));
    }
    let starts = match cx.opt(2)? {
        Some(v) => v,
        None => {
            let batch = cx.need_extent(cache, 0, "a cache")?.min(1 << 20);
            cx.vector(&vec![0; batch as usize])?
        }
    };
    // Places along the axis, [B, 1.., m, ..1], then over the other axes.
    let rank = shape.len();
    let starts = cx.expand_dims(starts, &(1..rank).collect::<Vec<_>>())?;
    let mut steps_shape = vec![1; rank];
    steps_shape[axis] = m;
    let steps = cx.vector(&(0..m as i64).collect::<Vec<_>>())?;
    let steps = cx.reshape_fixed(steps, &steps_shape)?;
    let mut places = cx.add(starts, steps)?;
    if cx.text_attr("mode", "linear") == "circular" {
        let n = cx.int_like(n as i32)?;
        places = cx.push(Mod { x: places, y: n })?;
    }
    let parts = cx.parts(update);
    let indices = cx.tile_to(places, &parts)?;
    let y = cx.push(ScatterAlongAxis {
        data: cache,
        indices,
        updates: update,
        axis: axis as i32,
        mode: ScatterMode::Update,
        validate_indices: false,
    })?;
    cx.same(y)
}
