//! Drawn numbers.

use russet_ir::ops::*;
use russet_ir::{DType, Value};

use super::super::cx::{Cx, Import, Outs};
use super::super::elem::Elem;
use super::super::importer::Why;

pub fn find(op: &str) -> Option<Import> {
    Some(match op {
        "RandomNormal" | "RandomUniform" => of_shape,
        "RandomNormalLike" | "RandomUniformLike" => like,
        "Bernoulli" => bernoulli,
        "Multinomial" => multinomial,
        _ => return None,
    })
}

/// Core ML's seeds are integers; one that is not given is one for each run.
fn seed(cx: &Cx<'_, '_>) -> i32 {
    cx.attrs.float("seed").map_or(-1, |s| s as i32)
}

fn drawn(cx: &mut Cx<'_, '_>, shape: Value, elem: Elem) -> Outs {
    let number = |cx: &mut Cx<'_, '_>, name: &str, absent: f32| {
        let x = cx.float_attr(name, absent);
        cx.number_of(x.into(), DType::F32)
    };
    let seed = seed(cx);
    let y = if cx.op.starts_with("RandomNormal") {
        let mean = Some(number(cx, "mean", 0.0)?);
        let stddev = Some(number(cx, "scale", 1.0)?);
        cx.push(RandomNormal { shape, mean, stddev, seed })?
    } else {
        let (low, high) = (number(cx, "low", 0.0)?, number(cx, "high", 1.0)?);
        cx.push(RandomUniform { shape, low: Some(low), high: Some(high), seed })?
    };
    let y = cx.cast(y, elem.computed())?;
    cx.one(y, elem)
}

fn of_shape(cx: &mut Cx<'_, '_>) -> Outs {
    let shape = cx.attrs.ints("shape").ok_or("`shape` is missing")?.to_vec();
    let shape = cx.vector(&shape)?;
    let elem = Elem::from_code(cx.int_attr("dtype", 1) as i32)?;
    drawn(cx, shape, elem)
}

fn like(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.x(0)?;
    let elem = match cx.attrs.int("dtype") {
        Some(code) => Elem::from_code(code as i32)?,
        None => cx.elem(0),
    };
    let parts = cx.parts(x);
    let shape = cx.shape_of(&parts, false)?;
    drawn(cx, shape, elem)
}

/// Ones with the probability each element states.
fn bernoulli(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.x(0)?;
    let elem = match cx.attrs.int("dtype") {
        Some(code) => Elem::from_code(code as i32)?,
        None => cx.elem(0),
    };
    let parts = cx.parts(x);
    let shape = cx.shape_of(&parts, false)?;
    let seed = seed(cx);
    let (low, high) = (cx.number_of(0.0, DType::F32)?, cx.number_of(1.0, DType::F32)?);
    let draw = cx.push(RandomUniform { shape, low: Some(low), high: Some(high), seed })?;
    let x = cx.cast(x, DType::F32)?;
    let y = cx.push(Less { x: draw, y: x })?;
    let y = cx.cast(y, elem.computed())?;
    cx.one(y, elem)
}

fn multinomial(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.x(0)?;
    let elem = Elem::from_code(cx.int_attr("dtype", 6) as i32)?;
    let size =
        i32::try_from(cx.int_attr("sample_size", 1)).map_err(|_| Why::from("`sample_size`"))?;
    let seed = seed(cx);
    let y = cx.push(RandomCategorical { x, mode: CategoricalMode::Logits, size, seed })?;
    let y = cx.cast(y, elem.computed())?;
    cx.one(y, elem)
}
