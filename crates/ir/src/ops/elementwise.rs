//! Ops on each element: arithmetic, comparison, activations, casts.

use crate::dims::Calculation;
use crate::infer::{Known, Outputs, TypeError, Types};
use crate::{DType, Dim, OpDef, TensorType, Value, Work, op, string_param};

op! {
    /// `x + y`, broadcast.
    "add" since Ios15 => Add { x: Value; y: Value }
}
op! {
    /// `x - y`, broadcast.
    "sub" since Ios15 => Sub { x: Value; y: Value }
}
op! {
    /// `x * y`, broadcast.
    "mul" since Ios15 => Mul { x: Value; y: Value }
}
op! {
    /// `x / y`, broadcast.
    "real_div" since Ios15 => RealDiv { x: Value; y: Value }
}
op! {
    /// The larger of `x` and `y`, broadcast.
    "maximum" since Ios15 => Maximum { x: Value; y: Value }
}
op! {
    /// The smaller of `x` and `y`, broadcast.
    "minimum" since Ios15 => Minimum { x: Value; y: Value }
}
op! {
    /// `x / y` rounded towards minus infinity, broadcast.
    "floor_div" since Ios15 => FloorDiv { x: Value; y: Value }
}
op! {
    /// What `floor_div` leaves of `x`: it has the sign of `y`. Broadcast.
    "mod" since Ios15 => Mod { x: Value; y: Value }
}
op! {
    /// `x` to the power `y`, broadcast.
    "pow" since Ios15 => Pow { x: Value; y: Value }
}
op! {
    /// Is `x` equal to `y`? Broadcast.
    "equal" since Ios15 => Equal { x: Value; y: Value }
}
op! {
    /// Is `x` different from `y`? Broadcast.
    "not_equal" since Ios15 => NotEqual { x: Value; y: Value }
}
op! {
    /// Is `x` more than `y`? Broadcast.
    "greater" since Ios15 => Greater { x: Value; y: Value }
}
op! {
    /// Is `x` at least `y`? Broadcast.
    "greater_equal" since Ios15 => GreaterEqual { x: Value; y: Value }
}
op! {
    /// Is `x` less than `y`? Broadcast.
    "less" since Ios15 => Less { x: Value; y: Value }
}
op! {
    /// Is `x` at most `y`? Broadcast.
    "less_equal" since Ios15 => LessEqual { x: Value; y: Value }
}
op! {
    /// Are both true? Broadcast.
    "logical_and" since Ios15 => LogicalAnd { x: Value; y: Value }
}
op! {
    /// Is at least one true? Broadcast.
    "logical_or" since Ios15 => LogicalOr { x: Value; y: Value }
}
op! {
    /// Is exactly one true? Broadcast.
    "logical_xor" since Ios15 => LogicalXor { x: Value; y: Value }
}
op! {
    /// The opposite.
    "logical_not" since Ios15 => LogicalNot { x: Value }
}

/// Type rule and work of binary arithmetic: broadcast, same dtype out. What is computed with shapes
/// is known before running.
macro_rules! arithmetic {
    ($($op:ident: $exps:literal $(, $calculation:ident)?);* $(;)?) => {$(
        impl OpDef for $op {
            fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
                types.number(self.x)?;
                let out = types.broadcast(self.x, self.y)?;
                #[allow(unused_mut, unused_assignments)]
                let mut known = None;
                $(known = calculated(types, Calculation::$calculation, self.x, self.y, &out);)?
                Ok(Outputs::dims(out, known))
            }

            fn work(&self, types: &Types<'_>) -> Work {
                let n = broadcast_elements(types, self.x, self.y);
                Work { flops: n, exps: n.saturating_mul($exps), ..Work::default() }
            }
        }
    )*};
}

arithmetic! {
    Add: 0, Add; Sub: 0, Sub; Mul: 0, Mul; RealDiv: 1; FloorDiv: 1, FloorDiv; Mod: 1, Mod;
    Maximum: 0, Max; Minimum: 0, Min; Pow: 1;
}

/// Elements up to which extents with names are calculated with: every one makes a name, and shapes
/// are short.
const SYMBOLIC_MAX: usize = 32;

/// Shape arithmetic: the elements of `x` and `y` combined, as far as they are known.
fn calculated(
    types: &Types<'_>,
    calculation: Calculation,
    x: Value,
    y: Value,
    out: &TensorType,
) -> Option<Vec<Dim>> {
    if out.rank() > 1 {
        return None;
    }
    let (x, y) = (types.known_ints(x)?, types.known_ints(y)?);
    // A number beside a vector, or two vectors of one length: all that rank 1 broadcasts.
    let n = if x.len() == 1 { y.len() } else { x.len() };
    let symbols = x.iter().chain(&y).any(|d| d.fixed().is_none());
    if symbols && n > SYMBOLIC_MAX {
        return None;
    }
    let at = |v: &[Dim], i: usize| v.get(if v.len() == 1 { 0 } else { i }).cloned();
    (0..n).map(|i| calculation.on(&at(&x, i)?, &at(&y, i)?)).collect()
}

/// Type rule and work of comparison: broadcast, `bool` out.
macro_rules! comparison {
    ($($op:ident),*) => {$(
        impl OpDef for $op {
            fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
                types.number(self.x)?;
                Ok(types.broadcast(self.x, self.y)?.with_dtype(DType::Bool).into())
            }

            fn work(&self, types: &Types<'_>) -> Work {
                let flops = broadcast_elements(types, self.x, self.y);
                Work { flops, ..Work::default() }
            }
        }
    )*};
}

comparison!(Equal, NotEqual, Greater, GreaterEqual, Less, LessEqual);

fn broadcast_elements(types: &Types<'_>, x: Value, y: Value) -> u64 {
    types.broadcast(x, y).ok().and_then(|t| t.n_elements()).unwrap_or(0)
}

macro_rules! logical {
    ($($op:ident),*) => {$(
        impl OpDef for $op {
            fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
                types.bool(self.x)?;
                Ok(types.broadcast(self.x, self.y)?.into())
            }
        }
    )*};
}

logical!(LogicalAnd, LogicalOr, LogicalXor);

impl OpDef for LogicalNot {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        Ok(types.bool(self.x)?.clone().into())
    }
}

op! {
    /// The magnitude.
    "abs" since Ios15 => Abs { x: Value }
}
op! {
    /// `x` kept within `alpha..=beta`.
    "clip" since Ios15 => Clip { x: Value; alpha: f32; beta: f32 }
}
op! {
    /// The error function.
    "erf" since Ios15 => Erf { x: Value }
}
op! {
    /// `e` to the power `x`.
    "exp" since Ios15 => Exp { x: Value }
}
op! {
    /// The natural logarithm of `x + epsilon`.
    "log" since Ios15 => Log { x: Value; epsilon: f32 = 1e-45 }
}
op! {
    /// `max(x, 0)`.
    "relu" since Ios15 => Relu { x: Value }
}
op! {
    /// `1 / sqrt(x + epsilon)`.
    "rsqrt" since Ios15 => Rsqrt { x: Value; epsilon: f32 = 1e-12 }
}
op! {
    /// `1 / (1 + exp(-x))`.
    "sigmoid" since Ios15 => Sigmoid { x: Value }
}
op! {
    /// `x * sigmoid(x)`.
    "silu" since Ios15 => Silu { x: Value }
}
op! {
    /// The square root.
    "sqrt" since Ios15 => Sqrt { x: Value }
}
op! {
    /// `x * x`.
    "square" since Ios15 => Square { x: Value }
}
op! {
    /// The hyperbolic tangent.
    "tanh" since Ios15 => Tanh { x: Value }
}

string_param! {
    /// Which formula [`Gelu`] uses.
    GeluMode {
        Exact = "EXACT",
        Tanh = "TANH_APPROXIMATION",
        Sigmoid = "SIGMOID_APPROXIMATION",
    }
}

op! {
    /// `x` times the probability that a standard normal is below it.
    "gelu" since Ios15 => Gelu { x: Value; mode: GeluMode = GeluMode::Exact }
}

/// Type rule and work of an activation: floats in, the same type out.
macro_rules! unary {
    ($($op:ident: $rule:ident, $flops:literal, $exps:literal);* $(;)?) => {$(
        impl OpDef for $op {
            fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
                Ok(types.$rule(self.x)?.clone().into())
            }

            fn work(&self, types: &Types<'_>) -> Work {
                let n = types.n_elements(self.x);
                let (flops, exps) = (n.saturating_mul($flops), n.saturating_mul($exps));
                Work { flops, exps, ..Work::default() }
            }
        }
    )*};
}
pub(super) use unary;

unary! {
    Abs: number, 1, 0;
    Erf: float, 0, 1;
    Exp: float, 0, 1;
    Gelu: float, 3, 1;
    Log: float, 0, 1;
    Relu: float, 1, 0;
    Rsqrt: float, 1, 1;
    Sigmoid: float, 2, 1;
    Silu: float, 3, 1;
    Sqrt: float, 0, 1;
    Square: number, 1, 0;
    Tanh: float, 0, 1;
}

impl OpDef for Clip {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        if self.alpha > self.beta {
            let why = format!("alpha {} is above beta {}", self.alpha, self.beta);
            return Err(TypeError::param(why));
        }
        Ok(types.float(self.x)?.clone().into())
    }

    fn work(&self, types: &Types<'_>) -> Work {
        let flops = types.n_elements(self.x).saturating_mul(2);
        Work { flops, ..Work::default() }
    }
}

op! {
    /// The elements as another type; floats to integers towards zero.
    "cast" since Ios15 => Cast { x: Value; dtype: DType }
}

impl OpDef for Cast {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        use DType::*;
        let x = types.tensor(self.x)?;
        if !matches!(self.dtype, F16 | F32 | I8 | U8 | I16 | U16 | I32 | Bool) {
            return Err(TypeError::param(format!("cast to {} does not exist", self.dtype)));
        }
        if x.dtype == String {
            return Err(TypeError::DType { at: self.x, found: String, expected: "a number" });
        }
        let known = match (x.dtype, self.dtype) {
            (I32, I32) => types.dims(self.x).map(Known::Dims),
            _ => None,
        };
        Ok(Outputs(vec![(x.with_dtype(self.dtype).into(), known)]))
    }
}

op! {
    /// `a` where `cond` holds, else `b`; broadcast.
    "select" since Ios15 => Select { cond: Value; a: Value; b: Value }
}

impl OpDef for Select {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let cond = types.bool(self.cond)?;
        let mut out = types.broadcast(self.a, self.b)?;
        let shape = crate::broadcast_shapes(&cond.shape, &out.shape);
        out.shape = shape.ok_or_else(|| TypeError::Broadcast {
            at: self.cond,
            found: cond.clone(),
            other: out.clone(),
        })?;
        Ok(out.into())
    }

    fn work(&self, types: &Types<'_>) -> Work {
        let flops = types.n_elements(self.cond).max(types.n_elements(self.a));
        Work { flops, ..Work::default() }
    }
}
