//! Activations as the engine has them: 33 knots and straight lines between.
//!
//! What is published of the tables is in the rows `activation-tables` and `fused-activation` of
//! [`RULES`](super::RULES). A table here interpolates the true function, with every knot moved
//! towards the inside of the curve by the same share of the error at the middle of a piece: that
//! share sets the value at zero, and the width of a piece the largest error.

use std::sync::OnceLock;

use super::Rule;
use crate::kernels::half::nearest_fp16;
use crate::kernels::rounding::Rounding;
use crate::kernels::unary::Unary;

/// Pieces of a table.
const PIECES: usize = 32;

/// A function in straight pieces, and what it is beyond them.
#[derive(Debug)]
pub(crate) struct Table {
    low: f32,
    /// Pieces for each unit of `x`.
    per_unit: f32,
    /// The value at each knot; as long as an index of six bits reaches.
    knots: [f32; 64],
    form: Form,
}

/// What is made of the number between two knots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// The value; beyond the knots that of the last.
    Plain,
    /// The value; above the knots `x` itself.
    FollowsX,
    /// The value at the magnitude of `x`, with its sign.
    Odd,
    /// The share of `x` that passes; beyond the knots none or all of it.
    Gate,
}

impl Table {
    /// The value at `x`.
    #[inline(always)]
    pub fn of(&self, x: f32) -> f32 {
        let at = if self.form == Form::Odd { x.abs() } else { x };
        let place = (at - self.low) * self.per_unit;
        // A selection in which NaN is the first knot.
        let inside = if place > 0.0 { place } else { 0.0 };
        let inside = if inside < PIECES as f32 { inside } else { PIECES as f32 };
        let piece = (inside as i32 as usize) & 63;
        let share = inside - piece as f32;
        let (from, to) = (self.knots[piece], self.knots[(piece + 1) & 63]);
        let y = share.mul_add(to - from, from);
        let is_above = place >= PIECES as f32;
        match self.form {
            Form::Plain => y,
            Form::FollowsX => {
                if is_above {
                    x
                } else {
                    y
                }
            }
            Form::Odd => y.copysign(x),
            Form::Gate if is_above => x,
            Form::Gate => x * if place > 0.0 { y } else { 0.0 },
        }
    }

    /// A table of `f` over `[low, high]`, whose knots are moved by `share` of the error between them.
    fn fitted(f: fn(f64) -> f64, (low, high): (f64, f64), share: f64) -> Table {
        let step = (high - low) / PIECES as f64;
        let mut knots = [0.0; 64];
        for (i, knot) in knots.iter_mut().enumerate() {
            let x = low + step * i.min(PIECES) as f64;
            // The error of a chord in its middle is that of a parabola with this curvature.
            let bend = (f(x - step / 2.0) + f(x + step / 2.0) - 2.0 * f(x)) / 2.0;
            *knot = nearest_fp16((f(x) - share * bend) as f32);
        }
        let per_unit = (1.0 / step) as f32;
        Table { low: low as f32, per_unit, knots, form: Form::Plain }
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn silu(x: f64) -> f64 {
    x * sigmoid(x)
}

/// The share of a normal distribution below `x`.
fn normal(x: f64) -> f64 {
    // The error function is computed in f32, within 1.2e-7: far below a knot's fp16.
    0.5 * (1.0 + f64::from(crate::kernels::math::erf((x / 2f64.sqrt()) as f32)))
}

fn gelu(x: f64) -> f64 {
    x * normal(x)
}

/// The tables of activations that stand alone and of those right after a product.
struct Tables {
    sigmoid: Table,
    gelu: Table,
    silu: Table,
    tanh: Table,
    silu_fused: Table,
    gelu_fused: Table,
    tanh_fused: Table,
}

fn tables() -> &'static Tables {
    static TABLES: OnceLock<Tables> = OnceLock::new();
    TABLES.get_or_init(|| {
        let tanh = Table::fitted(f64::tanh, (0.0, 4.47), 0.107);
        let follows_x = |table| Table { form: Form::FollowsX, ..table };
        // The normal distribution is nearly the sigmoid of 1.702 x.
        let (low, high) = (-9.938, 8.32);
        let share = Table::fitted(normal, (low / 1.702, high / 1.702), 0.093);
        let gate = |table| Table { form: Form::Gate, ..table };
        Tables {
            sigmoid: Table::fitted(sigmoid, (low, high), 0.093),
            silu_fused: gate(Table::fitted(sigmoid, (low, high), 0.093)),
            gelu_fused: gate(share),
            gelu: follows_x(Table::fitted(gelu, (-4.06, 4.06), 0.0845)),
            silu: follows_x(Table::fitted(silu, (-8.0, 8.0), 0.081)),
            tanh: Table { form: Form::Odd, ..tanh },
            tanh_fused: Table::fitted(f64::tanh, (-8.0, 8.0), 0.0),
        }
    })
}

/// The table that takes an activation's place, if one does.
///
/// `rounding` is that of the node: it has `fused-activation` only where a product comes before.
pub(crate) fn table(op: Unary, rounding: Rounding) -> Option<&'static Table> {
    let fused = rounding.has(Rule::FusedActivation);
    if !fused && !rounding.has(Rule::ActivationTables) {
        return None;
    }
    let tables = tables();
    match op {
        Unary::Sigmoid => Some(&tables.sigmoid),
        Unary::Gelu | Unary::GeluTanh if fused => Some(&tables.gelu_fused),
        Unary::Silu if fused => Some(&tables.silu_fused),
        Unary::Gelu | Unary::GeluTanh => Some(&tables.gelu),
        Unary::Silu => Some(&tables.silu),
        Unary::Tanh if fused => Some(&tables.tanh_fused),
        Unary::Tanh => Some(&tables.tanh),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn largest_error(table: &Table, f: fn(f64) -> f64) -> f64 {
        let error = |i: i32| {
            let x = i as f32 / 1000.0;
            (f64::from(table.of(x)) - f(x.into())).abs()
        };
        (-12_000..12_000).map(error).fold(0.0, f64::max)
    }

    #[test]
    fn tables_have_the_published_errors() {
        let t = tables();
        for (table, f, published) in [
            (&t.sigmoid, sigmoid as fn(f64) -> f64, 0.0034),
            (&t.tanh, f64::tanh, 0.0017),
            (&t.gelu, gelu, 0.0059),
        ] {
            let found = largest_error(table, f);
            assert!((found - published).abs() < 0.05 * published, "{found} for {published}");
        }
    }

    #[test]
    fn tables_have_the_published_values_at_zero() {
        let t = tables();
        // Published with three digits; a knot is an fp16.
        assert!((t.gelu.of(0.0) + 0.000_543).abs() < 2e-6, "{}", t.gelu.of(0.0));
        assert!((t.silu.of(0.0) + 0.001_259).abs() < 5e-6, "{}", t.silu.of(0.0));
    }

    /// The relative L2 error on normal numbers.
    fn relative_error(table: &Table, f: fn(f64) -> f64) -> f64 {
        let (mut difference, mut size) = (0.0, 0.0);
        for i in -6_000..=6_000 {
            let x = f64::from(i) / 1000.0;
            let density = (-x * x / 2.0).exp();
            difference += density * (f64::from(table.of(x as f32)) - f(x)).powi(2);
            size += density * f(x).powi(2);
        }
        (difference / size).sqrt()
    }

    #[test]
    fn after_a_product_errors_are_those_measured() {
        let t = tables();
        for (table, f, measured) in [
            (&t.silu_fused, silu as fn(f64) -> f64, 2.9e-3),
            (&t.tanh_fused, f64::tanh, 1.8e-2),
            (&t.gelu_fused, gelu, 2.9e-3),
        ] {
            let found = relative_error(table, f);
            assert!((0.6..1.6).contains(&(found / measured)), "{found:e} for {measured:e}");
        }
    }

    #[test]
    fn beyond_the_knots_the_ends_go_on() {
        let t = tables();
        assert_eq!(t.sigmoid.of(f32::INFINITY), t.sigmoid.of(9.0));
        assert_eq!(t.silu.of(f32::INFINITY), f32::INFINITY);
        assert_eq!((t.silu.of(100.0), t.gelu.of(50.0)), (100.0, 50.0));
        assert_eq!(t.silu.of(-100.0), t.silu.of(-8.0));
        assert_eq!(t.tanh.of(-30.0), -t.tanh.of(30.0));
        assert_eq!((t.silu_fused.of(50.0), t.gelu_fused.of(f32::INFINITY)), (50.0, f32::INFINITY));
        assert_eq!((t.silu_fused.of(-50.0), t.gelu_fused.of(-50.0)), (0.0, 0.0));
        assert!(t.sigmoid.of(f32::NAN).is_finite() || t.sigmoid.of(f32::NAN).is_nan());
    }
}
