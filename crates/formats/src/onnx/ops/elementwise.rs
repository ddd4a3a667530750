//! Arithmetic and functions of each element.

use russet_ir::ops::*;
use russet_ir::{DType, Dim, Value};

use super::super::cx::{Cx, Import, Outs};
use super::super::elem::Elem;
use super::super::importer::Why;

pub fn find(op: &str) -> Option<Import> {
    Some(match op {
        "Add" | "Sub" | "Mul" | "Max" | "Min" | "Sum" | "Mean" => variadic,
        "Div" => div,
        "Mod" => modulo,
        "Pow" => pow,
        "Abs" | "Acos" | "Asin" | "Atan" | "Atanh" | "Ceil" | "Cos" | "Cosh" | "Erf" | "Exp"
        | "Floor" | "Log" | "Relu" | "Round" | "Sigmoid" | "Sign" | "Sin" | "Sinh" | "Softplus"
        | "Softsign" | "Sqrt" | "Tan" | "Tanh" => unary,
        "Acosh" => acosh,
        "Asinh" => asinh,
        "Neg" => neg,
        "Reciprocal" => reciprocal,
        "Elu" | "Celu" | "Selu" | "LeakyRelu" | "ThresholdedRelu" | "HardSigmoid" | "HardSwish"
        | "Mish" | "Shrink" | "Gelu" | "Swish" => activation,
        "PRelu" => prelu,
        "Clip" => clip,
        "Dropout" => dropout,
        "Identity" => identity,
        _ => return None,
    })
}

fn identity(cx: &mut Cx<'_, '_>) -> Outs {
    Ok(vec![super::super::importer::Out::Same(cx.val(0)?)])
}

fn variadic(cx: &mut Cx<'_, '_>) -> Outs {
    let mut total = cx.x(0)?;
    for i in 1..cx.n_inputs() {
        let y = cx.x(i)?;
        total = match cx.op {
            "Add" | "Sum" | "Mean" => cx.add(total, y)?,
            "Sub" => cx.sub(total, y)?,
            "Mul" => cx.mul(total, y)?,
            "Max" => cx.max(total, y)?,
            _ => cx.min(total, y)?,
        };
    }
    if cx.op == "Mean" {
        total = cx.scale(total, 1.0 / cx.n_inputs() as f64)?;
    }
    cx.wrapped(total, cx.elem(0))
}

/// Of integers the quotient towards zero.
pub fn quotient(cx: &mut Cx<'_, '_>, x: Value, y: Value, unsigned: bool) -> Result<Value, Why> {
    if cx.is_float(x) {
        return cx.div(x, y);
    }
    if unsigned {
        return cx.push(FloorDiv { x, y });
    }
    let (ax, ay) = (cx.push(Abs { x })?, cx.push(Abs { x: y })?);
    let (sx, sy) = (cx.push(Sign { x })?, cx.push(Sign { x: y })?);
    let sign = cx.mul(sx, sy)?;
    let quotient = cx.push(FloorDiv { x: ax, y: ay })?;
    cx.mul(quotient, sign)
}

fn div(cx: &mut Cx<'_, '_>) -> Outs {
    let (x, y) = (cx.x(0)?, cx.x(1)?);
    let elem = cx.elem(0);
    // Extents are not negative, and shape arithmetic follows a `floor_div`.
    let types = cx.im.graph.types();
    let not_negative = |v: Value| {
        let dims = types.dims(v);
        dims.is_some_and(|d| d.iter().all(|d| d.fixed().is_none_or(|n| n as i64 >= 0)))
    };
    let unsigned = elem.is_int() && (elem.range().0 == 0 || (not_negative(x) && not_negative(y)));
    let q = quotient(cx, x, y, unsigned)?;
    cx.wrapped(q, elem)
}

fn modulo(cx: &mut Cx<'_, '_>) -> Outs {
    let (x, y) = (cx.x(0)?, cx.x(1)?);
    if !cx.flag("fmod", false) {
        let rest = cx.push(Mod { x, y })?;
        return cx.wrapped(rest, cx.elem(0));
    }
    // The sign of the dividend.
    let (ax, ay) = (cx.push(Abs { x })?, cx.push(Abs { x: y })?);
    let rest = cx.push(Mod { x: ax, y: ay })?;
    let sign = cx.push(Sign { x })?;
    let rest = cx.mul(rest, sign)?;
    cx.same(rest)
}

fn pow(cx: &mut Cx<'_, '_>) -> Outs {
    let (x, y) = (cx.x(0)?, cx.x(1)?);
    let (a, b) = (cx.dtype(x), cx.dtype(y));
    // An exponent of two is by far the most frequent, and cheaper as a product.
    let two = cx.lit(1).is_some_and(|l| l.shape.iter().all(|&d| d == 1) && l.as_f64() == [2.0]);
    if two && cx.rank(y) <= cx.rank(x) && a.is_float() {
        let square = cx.push(Square { x })?;
        return cx.same(square);
    }
    if a == b {
        let p = cx.push(Pow { x, y })?;
        return cx.wrapped(p, cx.elem(0));
    }
    // Of two types: computed in the float one, returned in that of the base.
    let wide = if a.is_float() { a } else { b };
    let (xw, yw) = (cx.cast(x, wide)?, cx.cast(y, wide)?);
    let p = cx.push(Pow { x: xw, y: yw })?;
    let p = cx.cast(p, a)?;
    cx.wrapped(p, cx.elem(0))
}

/// The op of MIL that is this one of ONNX.
pub fn function(cx: &mut Cx<'_, '_>, op: &str, x: Value) -> Result<Value, Why> {
    match op {
        "Abs" => cx.push(Abs { x }),
        "Acos" => cx.push(Acos { x }),
        "Asin" => cx.push(Asin { x }),
        "Atan" => cx.push(Atan { x }),
        "Atanh" => cx.push(Atanh { x }),
        "Ceil" => cx.push(Ceil { x }),
        "Cos" => cx.push(Cos { x }),
        "Cosh" => cx.push(Cosh { x }),
        "Erf" => cx.push(Erf { x }),
        "Exp" => cx.push(Exp { x }),
        "Floor" => cx.push(Floor { x }),
        "Log" => cx.push(Log { x, epsilon: 1e-45 }),
        "Relu" if cx.is_float(x) => cx.push(Relu { x }),
        "Relu" => {
            let zero = cx.number(0.0, x)?;
            cx.max(x, zero)
        }
        "Round" => cx.push(Round { x }),
        "Sigmoid" => cx.push(Sigmoid { x }),
        "Sign" => cx.push(Sign { x }),
        "Sin" => cx.push(Sin { x }),
        "Sinh" => cx.push(Sinh { x }),
        "Softplus" => cx.push(Softplus { x }),
        "Softsign" => cx.push(Softsign { x }),
        "Sqrt" => cx.push(Sqrt { x }),
        "Tan" => cx.push(Tan { x }),
        "Tanh" => cx.push(Tanh { x }),
        other => Err(Why(format!("{other} is no function of one number"))),
    }
}

fn unary(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.x(0)?;
    let op = cx.op;
    let y = function(cx, op, x)?;
    cx.same(y)
}

/// `log(x + sqrt(x^2 - 1))`.
fn acosh(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.x(0)?;
    let square = cx.push(Square { x })?;
    let less = cx.offset(square, -1.0)?;
    let root = cx.push(Sqrt { x: less })?;
    let sum = cx.add(x, root)?;
    let y = cx.push(Log { x: sum, epsilon: 1e-45 })?;
    cx.same(y)
}

/// `sign(x) log(|x| + sqrt(x^2 + 1))`, which does not cancel below zero.
fn asinh(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.x(0)?;
    let square = cx.push(Square { x })?;
    let more = cx.offset(square, 1.0)?;
    let root = cx.push(Sqrt { x: more })?;
    let magnitude = cx.push(Abs { x })?;
    let sum = cx.add(magnitude, root)?;
    let log = cx.push(Log { x: sum, epsilon: 1e-45 })?;
    let sign = cx.push(Sign { x })?;
    let y = cx.mul(log, sign)?;
    cx.same(y)
}

fn neg(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.x(0)?;
    let y = cx.scale(x, -1.0)?;
    cx.wrapped(y, cx.elem(0))
}

/// `1 / x`; MIL's `inverse` adds an epsilon.
fn reciprocal(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.x(0)?;
    let one = cx.number(1.0, x)?;
    let y = cx.div(one, x)?;
    cx.same(y)
}

fn activation(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.x(0)?;
    let alpha = |cx: &Cx<'_, '_>, absent: f32| cx.float_attr("alpha", absent);
    let y = match cx.op {
        "Elu" => {
            let alpha = alpha(cx, 1.0);
            cx.push(Elu { x, alpha })?
        }
        "Celu" => {
            let alpha = f64::from(alpha(cx, 1.0));
            let scaled = cx.scale(x, 1.0 / alpha)?;
            let y = cx.push(Elu { x: scaled, alpha: 1.0 })?;
            cx.scale(y, alpha)?
        }
        "Selu" => {
            let alpha = alpha(cx, 1.673_263_2);
            let gamma = cx.float_attr("gamma", 1.050_701);
            let y = cx.push(Elu { x, alpha })?;
            cx.scale(y, gamma.into())?
        }
        "LeakyRelu" => {
            let alpha = alpha(cx, 0.01);
            cx.push(LeakyRelu { x, alpha })?
        }
        "ThresholdedRelu" => {
            // MIL keeps what equals alpha, ONNX does not.
            let at = cx.number(alpha(cx, 1.0).into(), x)?;
            let above = cx.push(Greater { x, y: at })?;
            let zero = cx.number(0.0, x)?;
            cx.select(above, x, zero)?
        }
        "HardSigmoid" => {
            let (alpha, beta) = (alpha(cx, 0.2), cx.float_attr("beta", 0.5));
            cx.push(SigmoidHard { x, alpha, beta })?
        }
        "HardSwish" => {
            let gate = cx.push(SigmoidHard { x, alpha: 1.0 / 6.0, beta: 0.5 })?;
            cx.mul(x, gate)?
        }
        "Mish" => {
            let soft = cx.push(Softplus { x })?;
            let gate = cx.push(Tanh { x: soft })?;
            cx.mul(x, gate)?
        }
        "Gelu" => {
            let tanh = cx.text_attr("approximate", "none") == "tanh";
            cx.push(Gelu { x, mode: if tanh { GeluMode::Tanh } else { GeluMode::Exact } })?
        }
        "Swish" => swish(cx, x, alpha(cx, 1.0))?,
        _ => shrink(cx, x)?,
    };
    cx.same(y)
}

/// `x sigmoid(alpha x)`.
pub fn swish(cx: &mut Cx<'_, '_>, x: Value, alpha: f32) -> Result<Value, Why> {
    if alpha == 1.0 {
        return cx.push(Silu { x });
    }
    let scaled = cx.scale(x, alpha.into())?;
    let gate = cx.push(Sigmoid { x: scaled })?;
    cx.mul(x, gate)
}

fn shrink(cx: &mut Cx<'_, '_>, x: Value) -> Result<Value, Why> {
    let (lambda, bias) = (cx.float_attr("lambd", 0.5), cx.float_attr("bias", 0.0));
    let float = if cx.is_float(x) { x } else { cx.cast(x, DType::F32)? };
    let (low, high) = (cx.number((-lambda).into(), float)?, cx.number(lambda.into(), float)?);
    let below = cx.push(Less { x: float, y: low })?;
    let above = cx.push(Greater { x: float, y: high })?;
    let (more, less) = (cx.offset(float, bias.into())?, cx.offset(float, (-bias).into())?);
    let zero = cx.number(0.0, float)?;
    let upper = cx.select(above, less, zero)?;
    let y = cx.select(below, more, upper)?;
    let dtype = cx.dtype(x);
    cx.cast(y, dtype)
}

fn prelu(cx: &mut Cx<'_, '_>) -> Outs {
    let (x, slope) = (cx.x(0)?, cx.x(1)?);
    // Before opset 7 a vector was one slope for each channel, whatever followed.
    let behind = cx.rank(x).saturating_sub(2);
    let slope = match cx.rank(slope) == 1 && cx.version < 7 {
        true => cx.expand_dims(slope, &(1..=behind).collect::<Vec<_>>())?,
        false => slope,
    };
    let (shape, slopes) = (cx.shape(x), cx.shape(slope));
    // One slope for each channel: what the op of MIL means.
    let channels = slopes.first().filter(|c| {
        cx.tensor(1).is_some()
            && (3..=5).contains(&shape.len())
            && slopes.len() + 1 == shape.len()
            && slopes[1..].iter().all(|d| *d == Dim::Fixed(1))
            && shape[1] == **c
    });
    if channels.is_some() {
        let alpha = cx.squeeze(slope, &(1..slopes.len()).collect::<Vec<_>>())?;
        let y = cx.push(Prelu { x, alpha })?;
        return cx.same(y);
    }
    let zero = cx.number(0.0, x)?;
    let scaled = cx.mul(x, slope)?;
    let below = cx.push(Less { x, y: zero })?;
    let y = cx.select(below, scaled, x)?;
    cx.same(y)
}

fn clip(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.x(0)?;
    let (low, high) = match cx.version < 11 {
        true => {
            let attr = |name: &str| cx.attrs.float(name).map(f64::from);
            (attr("min"), attr("max"))
        }
        false => {
            let one = |i: usize| cx.lit(i).and_then(|l| l.as_f64().first().copied());
            (one(1), one(2))
        }
    };
    let known = |i: usize, n: Option<f64>| cx.version < 11 || !cx.has(i) || n.is_some();
    if cx.is_float(x) && known(1, low) && known(2, high) {
        let alpha = low.map_or(f32::NEG_INFINITY, |n| n as f32);
        let beta = high.map_or(f32::INFINITY, |n| n as f32);
        if alpha <= beta {
            if alpha == f32::NEG_INFINITY && beta == f32::INFINITY {
                return identity(cx);
            }
            if alpha.is_finite() && beta.is_finite() {
                let y = cx.push(Clip { x, alpha, beta })?;
                return cx.same(y);
            }
        }
    }
    // The lower end first: where the ends cross, the upper one counts.
    let mut y = x;
    for (i, name, n) in [(1, "min", low), (2, "max", high)] {
        let end = match (n, cx.version < 11) {
            (Some(n), _) if n.is_finite() || cx.is_float(x) => Some(cx.number(n, x)?),
            (None, true) => None,
            _ => cx.opt(i)?,
        };
        let Some(end) = end else { continue };
        let rank = cx.rank(end);
        let end = cx.squeeze(end, &(0..rank).collect::<Vec<_>>())?;
        y = if name == "min" { cx.max(y, end)? } else { cx.min(y, end)? };
    }
    match y == x {
        true => identity(cx),
        false => cx.same(y),
    }
}

/// Inference alone: `x` unchanged, and a mask of ones.
fn dropout(cx: &mut Cx<'_, '_>) -> Outs {
    use super::super::importer::Out;
    let training = cx.has(2)
        && match cx.lit(2) {
            Some(l) => l.as_ints() != Some(&[0]),
            None => return Err(Why::from("whether it trains is not known before running")),
        };
    let ratio = cx.lit(1).map(|l| l.as_f64());
    if training && ratio.as_deref() != Some(&[0.0]) {
        return Err(Why::from("it drops numbers while training, which no program here does"));
    }
    let mut outs = vec![Out::Same(cx.val(0)?)];
    if cx.outputs.get(1) == Some(&true) {
        let x = cx.x(0)?;
        let yes = cx.number_of(1.0, DType::Bool)?;
        let parts = cx.parts(x);
        let shape = cx.shape_of(&parts, false)?;
        let mask = cx.push(Fill { shape, value: Some(yes) })?;
        outs.push(Out::Value(mask, Elem::Bool));
    }
    Ok(outs)
}
