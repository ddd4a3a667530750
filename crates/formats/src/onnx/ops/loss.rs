//! Losses, which some models return beside their results.

use russet_ir::Value;
use russet_ir::ops::*;

use super::super::cx::{Cx, Import, Outs};
use super::super::importer::{Out, Why};
use super::index::along;
use super::movement::take;
use super::reduce::log_softmax;

pub fn find(op: &str) -> Option<Import> {
    Some(match op {
        "NegativeLogLikelihoodLoss" => likelihood,
        "SoftmaxCrossEntropyLoss" => cross_entropy,
        _ => return None,
    })
}

fn likelihood(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.x(0)?;
    let y = loss(cx, x)?;
    cx.same(y)
}

fn cross_entropy(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.x(0)?;
    let logarithms = log_softmax(cx, x, 1)?;
    let y = loss(cx, logarithms)?;
    let elem = cx.elem(0);
    Ok(vec![Out::Value(y, elem), Out::Value(logarithms, elem)])
}

/// The weighted mean of what the target classes (operand 1) have in `x` `[N, C, *D]`, negative.
fn loss(cx: &mut Cx<'_, '_>, x: Value) -> Result<Value, Why> {
    let (mut target, weight) = (cx.x(1)?, cx.opt(2)?);
    let reduction = cx.text_attr("reduction", "mean");
    let ignored = match cx.attrs.int("ignore_index") {
        Some(i) => {
            let i = cx.int_like(super::super::cx::saturated(i))?;
            let ignored = cx.push(Equal { x: target, y: i })?;
            let zero = cx.int_like(0)?;
            target = cx.select(ignored, zero, target)?;
            Some(ignored)
        }
        None => None,
    };
    let places = cx.expand_dims(target, &[1])?;
    let picked = along(cx, x, places, 1)?;
    let picked = cx.squeeze(picked, &[1])?;
    let mut weights = match weight {
        Some(w) => Some(take(cx, w, target, 0)?),
        None => None,
    };
    if let Some(ignored) = ignored {
        let (zero, one) = (cx.number(0.0, picked)?, cx.number(1.0, picked)?);
        weights = Some(cx.select(ignored, zero, weights.unwrap_or(one))?);
    }
    let mut y = cx.scale(picked, -1.0)?;
    if let Some(w) = weights {
        y = cx.mul(y, w)?;
    }
    let total =
        |cx: &mut Cx<'_, '_>, x: Value| cx.push(ReduceSum { x, axes: None, keep_dims: false });
    match (reduction, weights) {
        ("none", _) => Ok(y),
        ("sum", _) => total(cx, y),
        (_, Some(w)) => {
            let (y, w) = (total(cx, y)?, total(cx, w)?);
            cx.div(y, w)
        }
        (_, None) => cx.push(ReduceMean { x: y, axes: None, keep_dims: false }),
    }
}
