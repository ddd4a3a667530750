//! What happens to a product before it leaves the cache: bias, activation, residual, rounding.

use super::matrix::{Rows, View};
use crate::ane::table::{self, Table};
use crate::kernels::math;
use crate::kernels::rounding::Rounding;
use crate::kernels::unary::Unary;
use std::ops::Range;

/// The steps after a matrix product, in this order; the default is none.
///
/// Each step is an op of its own to the arithmetic, so each is rounded: the sum with its bias as a
/// product, then the activation, then the residual sum.
#[derive(Clone, Copy, Debug, Default)]
pub struct Epilogue<'a> {
    /// Added to the wide sum, before the product is rounded.
    pub bias: Bias<'a>,
    /// Applied to the stored product.
    pub activation: Activation,
    /// Added last; shaped like the product.
    pub residual: Option<View<'a>>,
    /// How each step's result is stored.
    pub rounding: Rounding,
}

/// What is added to a product.
#[derive(Clone, Copy, Debug, Default)]
pub enum Bias<'a> {
    /// Nothing.
    #[default]
    None,
    /// One number for each row.
    PerRow(&'a [f32]),
    /// One number for each column.
    PerColumn(&'a [f32]),
}

/// A function of one number that follows a product.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activation {
    /// The number itself.
    #[default]
    None,
    /// [`math::gelu`].
    Gelu,
    /// [`math::gelu_tanh`].
    GeluTanh,
    /// [`math::relu`].
    Relu,
    /// [`math::silu`].
    Silu,
}

impl Epilogue<'_> {
    /// Whether the product is stored as it is.
    fn is_none(&self) -> bool {
        matches!(self.bias, Bias::None)
            && self.activation == Activation::None
            && self.residual.is_none()
            && self.rounding == Rounding::F32
    }

    /// Finishes a whole product.
    pub fn finish(&self, out: &mut Rows<'_>) {
        let cols = 0..out.n_cols();
        self.apply(&mut out.rows, cols, (0, 0));
    }

    /// Finishes columns `cols` of `out`, whose first number is `(row, col)` of the product.
    #[inline(always)]
    pub(super) fn apply(
        &self,
        out: &mut [&mut [f32]],
        cols: Range<usize>,
        (row, col): (usize, usize),
    ) {
        if self.is_none() {
            return;
        }
        let table = self.activation.unary().and_then(|op| table::table(op, self.rounding));
        for (r, out) in (row..).zip(out) {
            let out = &mut out[cols.clone()];
            self.add_bias(out, r, col);
            self.rounding.store_product_each(out);
            if self.activation != Activation::None {
                self.activation.apply(out, table);
                self.rounding.store_each(out);
            }
            if let Some(residual) = self.residual {
                add_row(out, residual, r, col);
                self.rounding.of_residual().store_each(out);
            }
        }
    }

    #[inline(always)]
    fn add_bias(&self, out: &mut [f32], r: usize, col: usize) {
        match self.bias {
            Bias::None => {}
            Bias::PerRow(bias) => out.iter_mut().for_each(|x| *x += bias[r]),
            Bias::PerColumn(bias) => out.iter_mut().zip(&bias[col..]).for_each(|(x, b)| *x += b),
        }
    }
}

impl Activation {
    /// The same as a function of its own.
    fn unary(self) -> Option<Unary> {
        match self {
            Activation::None => None,
            Activation::Gelu => Some(Unary::Gelu),
            Activation::GeluTanh => Some(Unary::GeluTanh),
            Activation::Relu => Some(Unary::Relu),
            Activation::Silu => Some(Unary::Silu),
        }
    }

    #[inline(always)]
    fn apply(self, out: &mut [f32], table: Option<&Table>) {
        if let Some(table) = table {
            return out.iter_mut().for_each(|x| *x = table.of(*x));
        }
        match self {
            Activation::None => {}
            Activation::Gelu => out.iter_mut().for_each(|x| *x = math::gelu(*x)),
            Activation::GeluTanh => out.iter_mut().for_each(|x| *x = math::gelu_tanh(*x)),
            Activation::Relu => out.iter_mut().for_each(|x| *x = math::relu(*x)),
            Activation::Silu => out.iter_mut().for_each(|x| *x = math::silu(*x)),
        }
    }
}

#[inline(always)]
fn add_row(out: &mut [f32], residual: View, r: usize, col: usize) {
    if residual.col_stride == 1 {
        let row = residual.row(r, col, out.len());
        out.iter_mut().zip(row).for_each(|(x, y)| *x += y);
    } else {
        out.iter_mut().enumerate().for_each(|(c, x)| *x += residual.at(r, col + c));
    }
}
