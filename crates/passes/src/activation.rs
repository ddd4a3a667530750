//! Activations, as converters write them out.

use russet_ir::ops::{Gelu, GeluMode, Silu};
use russet_ir::{Edit, Graph, Op, Tensor, Value};

use crate::{Effect, Pass, Skip};

/// Makes `gelu` of its arithmetic: with `erf`, with `tanh`, or with a sigmoid of `1.702 x`.
pub struct FuseGelu;

impl Pass for FuseGelu {
    fn name(&self) -> &'static str {
        "fuse-gelu"
    }

    fn reason(&self) -> &'static str {
        "the Neural Engine has an op for it, and its arithmetic is five"
    }

    fn effect(&self) -> Effect {
        Effect::Reorders
    }

    fn rewrite<'g>(&self, g: &'g Graph, at: Value) -> Result<Edit<'g>, Skip> {
        let gate = gated(g, at).ok_or(Skip::NoMatch)?;
        let mode = gelu(g, &gate).ok_or(Skip::NoMatch)?;
        let x = gate.x;
        if g.ty(x) != g.ty(at) {
            return Err(Skip::NoMatch);
        }
        let mut edit = Edit::of(g);
        let new = edit.push(Gelu { x, mode }, &g.value(at).name)?;
        Ok(edit.replace(at, new))
    }
}

/// Makes `silu` of `x * sigmoid(x)`.
pub struct FuseSilu;

impl Pass for FuseSilu {
    fn name(&self) -> &'static str {
        "fuse-silu"
    }

    fn reason(&self) -> &'static str {
        "the Neural Engine has an op for it"
    }

    fn effect(&self) -> Effect {
        Effect::Reorders
    }

    fn rewrite<'g>(&self, g: &'g Graph, at: Value) -> Result<Edit<'g>, Skip> {
        let Some(Op::Mul(op)) = g.op(at) else { return Err(Skip::NoMatch) };
        let gates = |s: Value, x: Value| matches!(g.op(s), Some(Op::Sigmoid(s)) if s.x == x);
        let x = match (gates(op.y, op.x), gates(op.x, op.y)) {
            (true, _) => op.x,
            (_, true) => op.y,
            _ => return Err(Skip::NoMatch),
        };
        let mut edit = Edit::of(g);
        let new = edit.push(Silu { x }, &g.value(at).name)?;
        Ok(edit.replace(at, new))
    }
}

/// `x` times `gate`, which is an affine function of a curve.
struct Gate {
    x: Value,
    /// `erf`, `tanh` or `sigmoid`.
    curve: Value,
    /// `constant + slope * curve`, all factors counted.
    constant: f64,
    slope: f64,
}

/// Products in products, at most.
const DEPTH_MAX: usize = 4;

/// The product `at` as a gate times something, if that is what it is.
fn gated(g: &Graph, at: Value) -> Option<Gate> {
    let Op::Mul(_) = g.op(at)? else { return None };
    let (mut factor, mut leaves) = (1.0, Vec::new());
    factors(g, at, 0, &mut factor, &mut leaves);
    let [a, b] = leaves[..] else { return None };
    let (x, (curve, constant, slope)) = match (affine(g, a), affine(g, b)) {
        (None, Some(gate)) => (a, gate),
        (Some(gate), None) => (b, gate),
        _ => return None,
    };
    Some(Gate { x, curve, constant: constant * factor, slope: slope * factor })
}

/// The factors of a product: a number, and everything that is none.
fn factors(g: &Graph, v: Value, depth: usize, factor: &mut f64, leaves: &mut Vec<Value>) {
    match g.op(v) {
        _ if number(g, v).is_some() => *factor *= number(g, v).unwrap_or(1.0),
        Some(Op::Mul(op)) if depth < DEPTH_MAX => {
            factors(g, op.x, depth + 1, factor, leaves);
            factors(g, op.y, depth + 1, factor, leaves);
        }
        Some(Op::RealDiv(op)) if depth < DEPTH_MAX && number(g, op.y).is_some() => {
            *factor /= number(g, op.y).unwrap_or(1.0);
            factors(g, op.x, depth + 1, factor, leaves);
        }
        _ => leaves.push(v),
    }
}

/// `v` as a curve, what is added to it, and what it is multiplied by.
fn affine(g: &Graph, v: Value) -> Option<(Value, f64, f64)> {
    match g.op(v)? {
        Op::Erf(_) | Op::Tanh(_) | Op::Sigmoid(_) => Some((v, 0.0, 1.0)),
        Op::Add(op) => {
            let (curve, n) = match (number(g, op.x), number(g, op.y)) {
                (None, Some(n)) => (op.x, n),
                (Some(n), None) => (op.y, n),
                _ => return None,
            };
            let (mut slope, mut leaves) = (1.0, Vec::new());
            factors(g, curve, 0, &mut slope, &mut leaves);
            let [curve] = leaves[..] else { return None };
            matches!(g.op(curve)?, Op::Erf(_) | Op::Tanh(_)).then_some((curve, n, slope))
        }
        _ => None,
    }
}

/// What gelu the gate is of, if it is of one.
fn gelu(g: &Graph, gate: &Gate) -> Option<GeluMode> {
    let half = near(gate.constant, 0.5) && near(gate.slope, 0.5);
    let whole = gate.constant == 0.0 && near(gate.slope, 1.0);
    let is = |v: Value, wanted: [f64; 4]| {
        let p = polynomial(g, v, gate.x, 0)?;
        p.iter().zip(&wanted).all(|(a, b)| near(*a, *b)).then_some(())
    };
    Some(match g.op(gate.curve)? {
        Op::Erf(op) if half => {
            is(op.x, [0.0, std::f64::consts::FRAC_1_SQRT_2, 0.0, 0.0])?;
            GeluMode::Exact
        }
        Op::Tanh(op) if half => {
            let k = (2.0 / std::f64::consts::PI).sqrt();
            is(op.x, [0.0, k, 0.0, k * 0.044715])?;
            GeluMode::Tanh
        }
        Op::Sigmoid(op) if whole => {
            is(op.x, [0.0, 1.702, 0.0, 0.0])?;
            GeluMode::Sigmoid
        }
        _ => return None,
    })
}

/// Equal as far as fp16 constants can tell.
fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 5e-4 * b.abs().max(1e-3)
}

/// `v` as a polynomial of `x` up to the third degree, lowest first.
fn polynomial(g: &Graph, v: Value, x: Value, depth: usize) -> Option<[f64; 4]> {
    if v == x {
        return Some([0.0, 1.0, 0.0, 0.0]);
    }
    if let Some(n) = number(g, v) {
        return Some([n, 0.0, 0.0, 0.0]);
    }
    if depth > 2 * DEPTH_MAX {
        return None;
    }
    let of = |v: Value| polynomial(g, v, x, depth + 1);
    match g.op(v)? {
        Op::Add(op) => {
            let (a, b) = (of(op.x)?, of(op.y)?);
            Some(std::array::from_fn(|i| a[i] + b[i]))
        }
        Op::Mul(op) => times(of(op.x)?, of(op.y)?),
        Op::Square(op) => of(op.x).and_then(|a| times(a, a)),
        Op::RealDiv(op) => {
            let n = number(g, op.y)?;
            of(op.x).map(|a| a.map(|c| c / n))
        }
        Op::Pow(op) => {
            let (a, n) = (of(op.x)?, number(g, op.y)?);
            match n {
                2.0 => times(a, a),
                3.0 => times(times(a, a)?, a),
                _ => None,
            }
        }
        _ => None,
    }
}

/// The product, if it is of the third degree at most.
fn times(a: [f64; 4], b: [f64; 4]) -> Option<[f64; 4]> {
    let mut product = [0.0; 7];
    for (i, x) in a.iter().enumerate() {
        for (j, y) in b.iter().enumerate() {
            product[i + j] += x * y;
        }
    }
    let higher = product[4..].iter().any(|&c| c != 0.0);
    (!higher).then(|| std::array::from_fn(|i| product[i]))
}

/// The number a constant of one element holds.
pub(crate) fn number(g: &Graph, v: Value) -> Option<f64> {
    let t = g.constant(v).filter(|t| t.dtype.is_float())?;
    Tensor::item_f32(t).map(f64::from)
}
