//! Functions of one number: trigonometry, rounding, signs.

use super::elementwise::unary;
use crate::infer::{Outputs, TypeError, Types};
use crate::{DType, Number, OpDef, Value, Work, op};

op! {
    /// The arc cosine, in radians.
    "acos" since Ios15 => Acos { x: Value }
}
op! {
    /// The arc sine, in radians.
    "asin" since Ios15 => Asin { x: Value }
}
op! {
    /// The arc tangent, in radians.
    "atan" since Ios15 => Atan { x: Value }
}
op! {
    /// The inverse hyperbolic tangent.
    "atanh" since Ios15 => Atanh { x: Value }
}
op! {
    /// The nearest whole number that is not below `x`.
    "ceil" since Ios15 => Ceil { x: Value }
}
op! {
    /// The cosine of `x` radians.
    "cos" since Ios15 => Cos { x: Value }
}
op! {
    /// The hyperbolic cosine.
    "cosh" since Ios15 => Cosh { x: Value }
}
op! {
    /// Two to the power `x`.
    "exp2" since Ios15 => Exp2 { x: Value }
}
op! {
    /// The nearest whole number that is not above `x`.
    "floor" since Ios15 => Floor { x: Value }
}
op! {
    /// `1 / (x + epsilon)`.
    "inverse" since Ios15 => Inverse { x: Value; epsilon: f32 = 1e-4 }
}
op! {
    /// The nearest whole number; of two that are as near, the even one.
    "round" since Ios15 => Round { x: Value }
}
op! {
    /// -1, 0 or 1, as `x` is below, at or above zero.
    "sign" since Ios15 => Sign { x: Value }
}
op! {
    /// The sine of `x` radians.
    "sin" since Ios15 => Sin { x: Value }
}
op! {
    /// The hyperbolic sine.
    "sinh" since Ios15 => Sinh { x: Value }
}
op! {
    /// The tangent of `x` radians.
    "tan" since Ios15 => Tan { x: Value }
}

unary! {
    Acos: float, 0, 1;
    Asin: float, 0, 1;
    Atan: float, 0, 1;
    Atanh: float, 0, 1;
    Ceil: float, 1, 0;
    Cos: float, 0, 1;
    Cosh: float, 1, 1;
    Exp2: number, 0, 1;
    Floor: float, 1, 0;
    Inverse: float, 1, 1;
    Round: float, 1, 0;
    Sign: number, 1, 0;
    Sin: float, 0, 1;
    Sinh: float, 1, 1;
    Tan: float, 0, 1;
}

op! {
    /// The larger of `x` and `alpha`.
    "threshold" since Ios15 => Threshold { x: Value; alpha: Number }
}

impl OpDef for Threshold {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let x = types.number(self.x)?;
        if x.dtype == DType::I32 && matches!(self.alpha, Number::Float(_)) {
            return Err(TypeError::param("alpha is a float, x is int32"));
        }
        Ok(x.clone().into())
    }

    fn work(&self, types: &Types<'_>) -> Work {
        Work { flops: types.n_elements(self.x), ..Work::default() }
    }
}
