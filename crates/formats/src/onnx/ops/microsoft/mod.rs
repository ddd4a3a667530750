//! Ops of `com.microsoft`: what ONNX Runtime's optimizers and quantizers make of models.

mod attention;
mod fused;
mod low_bits;
pub mod quantized;

use russet_ir::Value;
use russet_ir::ops::*;

use super::super::cx::{Cx, Import, Outs, Part};
use super::super::elem::Elem;
use super::super::importer::{Out, Val, Why};
use super::elementwise::swish;
use super::movement::take;
use super::norm::{layer_norm, normalized, rms_norm};

pub fn find(op: &str) -> Option<Import> {
    Some(match op {
        "Gelu" | "FastGelu" | "BiasGelu" | "QuickGelu" => gelu,
        "BiasSplitGelu" => split_gelu,
        "BiasAdd" => bias_add,
        "SkipLayerNormalization" => skip_layer_norm,
        "SimplifiedLayerNormalization" | "SkipSimplifiedLayerNormalization" => skip_rms_norm,
        "EmbedLayerNormalization" => embed,
        "GroupNorm" | "SkipGroupNorm" => group_norm,
        "Trilu" | "Pad" | "Range" | "GatherND" | "GridSample" => as_standard,
        "ExpandDims" => expand_dims,
        _ => {
            let all = [attention::find, fused::find, low_bits::find, quantized::find];
            return all.iter().find_map(|find| find(op));
        }
    })
}

/// An op the standard got later: as there.
fn as_standard(cx: &mut Cx<'_, '_>) -> Outs {
    let import = super::find("", cx.op).ok_or("there is no import of this op")?;
    cx.version = STANDARD;
    import(cx)
}

/// The version of the standard op set that ops of the standard made here are of.
const STANDARD: i64 = 20;

fn expand_dims(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.x(0)?;
    let axis = cx.int(1, "axis")?;
    let axis = super::super::cx::resolve(axis, cx.rank(x) + 1)?;
    let y = cx.expand_dims(x, &[axis])?;
    cx.same(y)
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

/// `(x + bias)`, its first half times `gelu` of the second.
fn split_gelu(cx: &mut Cx<'_, '_>) -> Outs {
    let (x, bias) = (cx.x(0)?, cx.x(1)?);
    let sum = cx.add(x, bias)?;
    let last = cx.axis(sum, -1)?;
    let half = cx.need_extent(sum, last, "halves")? as i64 / 2;
    let (left, right) = (cx.slice(sum, last, 0, Some(half))?, cx.slice(sum, last, half, None)?);
    let gate = cx.push(Gelu { x: right, mode: GeluMode::Exact })?;
    let y = cx.mul(left, gate)?;
    cx.same(y)
}

fn bias_add(cx: &mut Cx<'_, '_>) -> Outs {
    let (x, bias, skip) = (cx.x(0)?, cx.x(1)?, cx.x(2)?);
    let sum = cx.add(x, bias)?;
    let y = cx.add(sum, skip)?;
    cx.same(y)
}

/// A norm of groups of channels, which lie last or second, and its activation. `SkipGroupNorm`
/// adds a skip and a bias first.
fn group_norm(cx: &mut Cx<'_, '_>) -> Outs {
    let mut x = cx.x(0)?;
    let (gamma, beta) = (cx.x(1)?, cx.x(2)?);
    let skips = cx.op == "SkipGroupNorm";
    if skips {
        for i in [3, 4] {
            if let Some(more) = cx.opt(i)? {
                x = cx.add(x, more)?;
            }
        }
    }
    if cx.rank(x) != 4 {
        return Err(Why(format!("a norm of groups on {} axes", cx.rank(x))));
    }
    let last = cx.flag("channels_last", true);
    let image = if last { x } else { cx.transpose(x, &[0, 2, 3, 1])? };
    let groups = u64::try_from(cx.int_attr("groups", 1)).unwrap_or(0);
    let channels = cx.need_extent(image, 3, "a norm of groups")?;
    if groups == 0 || !channels.is_multiple_of(groups) {
        return Err(Why(format!("{channels} channels in {groups} groups")));
    }
    let mut parts = cx.parts(image);
    let whole = parts.clone();
    parts.splice(3.., [Part::N(groups), Part::N(channels / groups)]);
    let apart = cx.reshape(image, &parts)?;
    let epsilon = cx.float_attr("epsilon", 1e-5);
    let (y, _, _) = normalized(cx, apart, &[1, 2, 4], epsilon)?;
    let y = cx.reshape(y, &whole)?;
    let y = cx.mul(y, gamma)?;
    let mut y = cx.add(y, beta)?;
    if cx.int_attr("activation", 0) == 1 {
        y = cx.push(Silu { x: y })?;
    }
    let y = if last { y } else { cx.transpose(y, &[0, 3, 1, 2])? };
    let elem = cx.elem(0);
    Ok(if skips {
        vec![Out::Value(y, elem), Out::Value(x, elem)]
    } else {
        vec![Out::Value(y, elem)]
    })
}

/// `norm(input + skip + bias)`, and the sum as its fourth result.
fn skip_layer_norm(cx: &mut Cx<'_, '_>) -> Outs {
    let (x, skip) = (cx.x(0)?, cx.x(1)?);
    let (gamma, beta, bias) = (Some(cx.x(2)?), cx.opt(3)?, cx.opt(4)?);
    // The bias is that of the layer that made `x`.
    let x = match bias {
        Some(bias) => cx.add(x, bias)?,
        None => x,
    };
    let sum = cx.add(x, skip)?;
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
        if let Some(bias) = cx.opt(3)? {
            x = cx.add(x, bias)?;
        }
        let skip = cx.x(1)?;
        x = cx.add(x, skip)?;
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
    let mut tables = Vec::new();
    for i in 2..7 {
        tables.push(cx.opt(i)?);
    }
    let [Some(words), Some(places), segments, Some(gamma), Some(beta)] = tables[..] else {
        return Err(Why::from("a table is missing"));
    };
    let tables = Tables { words, places, segments, gamma, beta };
    embedded(cx, &tables, cx.opt_val(7), cx.opt_val(8))
}

/// What embeddings are looked up in, and what their norm is scaled and shifted by.
struct Tables {
    words: Value,
    places: Value,
    segments: Option<Value>,
    gamma: Value,
    beta: Value,
}

fn embedded(
    cx: &mut Cx<'_, '_>,
    tables: &Tables,
    mask: Option<Val>,
    positions: Option<Val>,
) -> Outs {
    let ids = cx.x(0)?;
    let mut sum = take(cx, tables.words, ids, 0)?;
    let of_places = match positions {
        Some(places) => {
            let places = cx.im.value(places)?;
            take(cx, tables.places, places, 0)?
        }
        None => {
            let n = cx.need_extent(ids, 1, "places without `position_ids`")?;
            cx.slice(tables.places, 0, 0, Some(n as i64))?
        }
    };
    sum = cx.add(sum, of_places)?;
    if let (Some(segments), Some(table)) = (cx.opt(1)?, tables.segments) {
        let of_segments = take(cx, table, segments, 0)?;
        sum = cx.add(sum, of_segments)?;
    }
    let epsilon = cx.float_attr("epsilon", 1e-12);
    let y = layer_norm(cx, sum, 2, (Some(tables.gamma), Some(tables.beta)), epsilon)?;
    // The number of words of each row; none where there is no mask.
    let counted = match mask {
        Some(mask) => cx.im.value(mask)?,
        None => cx.scale(ids, 0.0)?,
    };
    let lengths = cx.push(ReduceSum { x: counted, axes: Some(vec![1]), keep_dims: false })?;
    let elem = Elem::F32;
    Ok(vec![Out::Value(y, elem), Out::Value(lengths, Elem::I32), Out::Value(sum, elem)])
}
