//! Activations with parameters.

use super::elementwise::unary;
use crate::infer::{Outputs, TypeError, Types};
use crate::{Dim, OpDef, Value, Work, op};

op! {
    /// `x` where it is positive, at most `beta`; `alpha * x` elsewhere, at most `beta`.
    "clamped_relu" since Ios15 => ClampedRelu { x: Value; alpha: f32; beta: f32 }
}
op! {
    /// `x` where it is positive, `alpha * (exp(x) - 1)` elsewhere.
    "elu" since Ios15 => Elu { x: Value; alpha: f32 }
}
op! {
    /// `x` where it is positive, `alpha * x` elsewhere.
    "leaky_relu" since Ios15 => LeakyRelu { x: Value; alpha: f32 }
}
op! {
    /// `alpha * x + beta`.
    "linear_activation" since Ios15 => LinearActivation { x: Value; alpha: f32; beta: f32 }
}
op! {
    /// `x` kept within 0 and 6.
    "relu6" since Ios15 => Relu6 { x: Value }
}
op! {
    /// `alpha * tanh(beta * x)`.
    "scaled_tanh" since Ios15 => ScaledTanh { x: Value; alpha: f32; beta: f32 }
}
op! {
    /// `alpha * x + beta` kept within 0 and 1.
    "sigmoid_hard" since Ios15 => SigmoidHard { x: Value; alpha: f32; beta: f32 }
}
op! {
    /// `log(1 + exp(x))`.
    "softplus" since Ios15 => Softplus { x: Value }
}
op! {
    /// `x / (1 + |x|)`.
    "softsign" since Ios15 => Softsign { x: Value }
}
op! {
    /// `x` where it is at least `alpha`, zero elsewhere.
    "thresholded_relu" since Ios15 => ThresholdedRelu { x: Value; alpha: f32 }
}

unary! {
    ClampedRelu: float, 3, 0;
    Elu: float, 2, 1;
    LeakyRelu: float, 2, 0;
    LinearActivation: float, 2, 0;
    Relu6: float, 2, 0;
    ScaledTanh: float, 2, 1;
    SigmoidHard: float, 4, 0;
    Softplus: float, 1, 2;
    Softsign: float, 2, 1;
    ThresholdedRelu: float, 1, 0;
}

op! {
    /// `x` `[N, C, *D]` where it is positive, times its channel's `alpha` `[C]` elsewhere.
    "prelu" since Ios15 => Prelu { x: Value; alpha: Value }
}
op! {
    /// `alpha * log(1 + exp(beta * x))` with an `alpha` and a `beta` `[C]` for each channel of `x`
    /// `[N, C, *D]`.
    "softplus_parametric" since Ios15 => SoftplusParametric { x: Value; alpha: Value; beta: Value }
}

impl OpDef for Prelu {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        per_channel(types, self.x, &[self.alpha])
    }

    fn work(&self, types: &Types<'_>) -> Work {
        Work { flops: types.n_elements(self.x).saturating_mul(2), ..Work::default() }
    }
}

impl OpDef for SoftplusParametric {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        per_channel(types, self.x, &[self.alpha, self.beta])
    }

    fn work(&self, types: &Types<'_>) -> Work {
        let n = types.n_elements(self.x);
        let (flops, exps) = (n.saturating_mul(3), n.saturating_mul(2));
        Work { flops, exps, ..Work::default() }
    }
}

/// The type of `x`, once its channels have one of each of `parameters`.
fn per_channel(types: &Types<'_>, x: Value, parameters: &[Value]) -> Result<Outputs, TypeError> {
    let t = types.float(x)?;
    if !(3..=5).contains(&t.rank()) {
        return Err(TypeError::Rank { at: x, found: t.rank(), expected: "3 to 5" });
    }
    for &at in parameters {
        let p = types.float(at)?;
        let [found] = &p.shape[..] else {
            return Err(TypeError::Rank { at, found: p.rank(), expected: "1" });
        };
        if *found != t.shape[1] && matches!(t.shape[1], Dim::Fixed(_)) {
            let (found, expected) = (found.clone(), t.shape[1].clone());
            return Err(TypeError::Extent { at, axis: 0, found, expected });
        }
    }
    Ok(t.clone().into())
}
