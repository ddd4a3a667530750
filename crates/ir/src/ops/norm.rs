//! Norms other than `layer_norm`: over batches, instances, vectors and neighbours.

use super::conv::require_vector;
use crate::infer::{Outputs, TypeError, Types};
use crate::{Dim, OpDef, TensorType, Value, Work, op};

op! {
    /// `(x - mean) / sqrt(variance + epsilon) * gamma + beta`, all of them `[C]`, per channel of
    /// `x` `[N, C, *D]`.
    "batch_norm" since Ios15 => BatchNorm {
        x: Value;
        mean: Value;
        variance: Value;
        gamma: Option<Value>;
        beta: Option<Value>;
        epsilon: f32 = 1e-5;
    }
}
op! {
    /// As `batch_norm`, with mean and variance of each channel of each instance of `x`
    /// `[N, C, *D]`.
    "instance_norm" since Ios15 => InstanceNorm {
        x: Value; gamma: Option<Value>; beta: Option<Value>; epsilon: f32 = 1e-5
    }
}
op! {
    /// `x / sqrt(sum(x^2) + epsilon)` over the last three axes.
    "l2_norm" since Ios15 => L2Norm { x: Value; epsilon: f32 = 1e-6 }
}
op! {
    /// `x / (k + alpha / size * sum(x^2))^beta`, the sum over the `size` channels around each.
    "local_response_norm" since Ios15 => LocalResponseNorm {
        x: Value; size: i32; alpha: f32 = 1e-4; beta: f32 = 0.75; k: f32 = 1.0
    }
}

/// `x` with channels as its second axis, of which each of `parts` has one number.
fn per_channel(
    types: &Types<'_>,
    x: Value,
    parts: impl IntoIterator<Item = Option<Value>>,
) -> Result<TensorType, TypeError> {
    let t = types.float(x)?;
    if !(3..=5).contains(&t.rank()) {
        return Err(TypeError::Rank { at: x, found: t.rank(), expected: "3 to 5" });
    }
    for v in parts.into_iter().flatten() {
        match &t.shape[1] {
            Dim::Fixed(n) => require_vector(types, v, *n)?,
            Dim::Symbol(_) => drop(types.float(v)?),
        }
    }
    Ok(t.clone())
}

fn element_work(types: &Types<'_>, x: Value, flops: u64) -> Work {
    Work { flops: types.n_elements(x).saturating_mul(flops), ..Work::default() }
}

impl OpDef for BatchNorm {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let parts = [Some(self.mean), Some(self.variance), self.gamma, self.beta];
        Ok(per_channel(types, self.x, parts)?.into())
    }

    fn work(&self, types: &Types<'_>) -> Work {
        element_work(types, self.x, 2)
    }
}

impl OpDef for InstanceNorm {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        Ok(per_channel(types, self.x, [self.gamma, self.beta])?.into())
    }

    fn work(&self, types: &Types<'_>) -> Work {
        element_work(types, self.x, 6)
    }
}

impl OpDef for L2Norm {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let x = types.float(self.x)?;
        if x.rank() < 3 {
            let expected = "at least 3";
            return Err(TypeError::Rank { at: self.x, found: x.rank(), expected });
        }
        Ok(x.clone().into())
    }

    fn work(&self, types: &Types<'_>) -> Work {
        element_work(types, self.x, 3)
    }
}

impl OpDef for LocalResponseNorm {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        if self.size <= 0 {
            return Err(TypeError::param(format!("size {}", self.size)));
        }
        Ok(per_channel(types, self.x, [])?.into())
    }

    fn work(&self, types: &Types<'_>) -> Work {
        let n = types.n_elements(self.x);
        Work { exps: n, ..element_work(types, self.x, 2 + u64::from(self.size.unsigned_abs())) }
    }
}
