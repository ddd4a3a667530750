//! Functions of one number, over slices.

use super::rounding::Rounding;
use super::{math, parallel};
use crate::ane::table::{Table, table};

/// A function of one number; each names its definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unary {
    /// [`math::exp`].
    Exp,
    /// [`math::erf`].
    Erf,
    /// [`math::tanh`].
    Tanh,
    /// [`math::sigmoid`].
    Sigmoid,
    /// [`math::gelu`].
    Gelu,
    /// [`math::gelu_tanh`].
    GeluTanh,
    /// [`math::silu`].
    Silu,
    /// [`math::relu`].
    Relu,
    /// The square root.
    Sqrt,
    /// One over the square root.
    Rsqrt,
    /// `x * x`.
    Square,
}

impl Unary {
    /// The definition: the function of one number.
    #[inline(always)]
    pub fn of(self, x: f32) -> f32 {
        match self {
            Unary::Exp => math::exp(x),
            Unary::Erf => math::erf(x),
            Unary::Tanh => math::tanh(x),
            Unary::Sigmoid => math::sigmoid(x),
            Unary::Gelu => math::gelu(x),
            Unary::GeluTanh => math::gelu_tanh(x),
            Unary::Silu => math::silu(x),
            Unary::Relu => math::relu(x),
            Unary::Sqrt => x.sqrt(),
            Unary::Rsqrt => 1.0 / x.sqrt(),
            Unary::Square => x * x,
        }
    }
}

/// Replaces every number by `op` of it.
pub fn map(op: Unary, x: &mut [f32]) {
    parallel::pieces(x, 1, |_, x| map_piece(op, x));
}

/// [`map`], by the engine's table where `rounding` has one.
pub(crate) fn map_as(op: Unary, x: &mut [f32], rounding: Rounding) {
    match table(op, rounding) {
        Some(table) => parallel::pieces(x, 1, |_, x| look_up(table, x)),
        None => map(op, x),
    }
}

per_isa! {
    fn look_up(table: &Table, x: &mut [f32]) = look_up_each
}

#[inline(always)]
fn look_up_each(table: &Table, x: &mut [f32]) {
    x.iter_mut().for_each(|x| *x = table.of(*x));
}

per_isa! {
    fn map_piece(op: Unary, x: &mut [f32]) = map_each
}

#[inline(always)]
fn map_each(op: Unary, x: &mut [f32]) {
    // The choice is made outside the loop, so that each loop is vectorised.
    macro_rules! choose {
        ($($variant:ident)*) => {
            match op { $(Unary::$variant => x.iter_mut().for_each(|x| *x = Unary::$variant.of(*x))),* }
        };
    }
    choose!(Exp Erf Tanh Sigmoid Gelu GeluTanh Silu Relu Sqrt Rsqrt Square)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_get_the_bits_of_the_definition() {
        let n = if cfg!(miri) { 50 } else { 70_001 };
        let x: Vec<f32> = (0..n).map(|i| (i as f32 - 35_000.0) * 1e-3).collect();
        for op in [
            Unary::Exp,
            Unary::Erf,
            Unary::Tanh,
            Unary::Sigmoid,
            Unary::Gelu,
            Unary::GeluTanh,
            Unary::Silu,
            Unary::Relu,
            Unary::Sqrt,
            Unary::Rsqrt,
            Unary::Square,
        ] {
            let mut y = x.clone();
            map(op, &mut y);
            for (x, y) in x.iter().zip(&y) {
                let expected = op.of(*x);
                assert!(
                    y.to_bits() == expected.to_bits() || y.is_nan() && expected.is_nan(),
                    "{op:?}({x})"
                );
            }
        }
    }
}
