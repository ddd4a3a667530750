//! Products and convolutions with what follows them.

use russet_ir::Value;
use russet_ir::ops::*;

use super::super::super::cx::{Cx, Import, Outs};
use super::super::super::importer::Why;
use super::super::conv::convolved;

pub fn find(op: &str) -> Option<Import> {
    Some(match op {
        "FusedMatMul" | "TransposeMatMul" | "FusedMatMulActivation" => matmul,
        "FusedGemm" => gemm,
        "FusedConv" => conv,
        _ => return None,
    })
}

/// What an activation is called, and its numbers.
struct Activation<'a> {
    name: &'a str,
    alpha: Option<f32>,
    beta: Option<f32>,
}

impl<'a> Activation<'a> {
    fn of(cx: &Cx<'_, 'a>) -> Activation<'a> {
        Activation {
            name: cx.text_attr("activation", ""),
            alpha: cx.attrs.float("activation_alpha"),
            beta: cx.attrs.float("activation_beta"),
        }
    }

    fn on(&self, cx: &mut Cx<'_, '_>, x: Value) -> Result<Value, Why> {
        match self.name {
            "" => Ok(x),
            "LeakyRelu" => cx.push(LeakyRelu { x, alpha: self.alpha.unwrap_or(0.01) }),
            "Elu" => cx.push(Elu { x, alpha: self.alpha.unwrap_or(1.0) }),
            "HardSigmoid" => {
                let (alpha, beta) = (self.alpha.unwrap_or(0.2), self.beta.unwrap_or(0.5));
                cx.push(SigmoidHard { x, alpha, beta })
            }
            "Clip" => {
                let (alpha, beta) = (self.alpha.unwrap_or(f32::MIN), self.beta.unwrap_or(f32::MAX));
                cx.push(Clip { x, alpha, beta })
            }
            "HardSwish" => {
                let gate = cx.push(SigmoidHard { x, alpha: 1.0 / 6.0, beta: 0.5 })?;
                cx.mul(x, gate)
            }
            other => super::super::elementwise::function(cx, other, x),
        }
    }
}

fn matmul(cx: &mut Cx<'_, '_>) -> Outs {
    let (mut x, mut y) = (cx.x(0)?, cx.x(1)?);
    if cx.flag("transBatchA", false) {
        x = batches_first(cx, x)?;
    }
    if cx.flag("transBatchB", false) {
        y = batches_first(cx, y)?;
    }
    let mut z = match (cx.flag("transA", false), cx.flag("transB", false)) {
        (false, false) => super::super::products::product(cx, x, y)?,
        // Of vectors there is nothing to turn.
        (a, b) => {
            let (transpose_x, transpose_y) = (a && cx.rank(x) > 1, b && cx.rank(y) > 1);
            cx.push(Matmul { x, y, transpose_x, transpose_y })?
        }
    };
    let alpha = cx.float_attr("alpha", 1.0);
    if alpha != 1.0 {
        z = cx.scale(z, alpha.into())?;
    }
    let activation = Activation::of(cx);
    let z = activation.on(cx, z)?;
    cx.same(z)
}

/// `[M, ..batches, K]` as `[..batches, M, K]`.
fn batches_first(cx: &mut Cx<'_, '_>, x: Value) -> Result<Value, Why> {
    let rank = cx.rank(x);
    if rank < 3 {
        return Ok(x);
    }
    let perm: Vec<usize> = (1..rank - 1).chain([0, rank - 1]).collect();
    cx.transpose(x, &perm)
}

fn gemm(cx: &mut Cx<'_, '_>) -> Outs {
    let (x, y, c) = (cx.x(0)?, cx.x(1)?, cx.opt(2)?);
    let z = cx.standard("Gemm", &[Some(x), Some(y), c])?;
    let activation = Activation::of(cx);
    let z = activation.on(cx, z)?;
    cx.same(z)
}

/// A convolution, something added to it, and an activation.
fn conv(cx: &mut Cx<'_, '_>) -> Outs {
    let (x, weight, bias) = (cx.x(0)?, cx.x(1)?, cx.opt(2)?);
    let mut y = convolved(cx, x, weight, bias)?;
    if let Some(more) = cx.opt(3)? {
        y = cx.add(y, more)?;
    }
    let numbers = cx.attrs.floats("activation_params").unwrap_or_default();
    let activation = Activation {
        name: cx.text_attr("activation", ""),
        alpha: numbers.first().copied(),
        beta: numbers.get(1).copied(),
    };
    let y = activation.on(cx, y)?;
    cx.same(y)
}
