//! Ops that draw numbers.

use super::movement::made_shape;
use super::shaping::scalar_dtype;
use crate::infer::{Outputs, TypeError, Types};
use crate::{DType, Dim, OpDef, TensorType, Value, op, string_param};

op! {
    /// Ones with the probability `prob` (a half when absent), zeros else.
    "random_bernoulli" since Ios15 => RandomBernoulli {
        shape: Value; prob: Option<Value>; seed: i32 = -1
    }
}
op! {
    /// Numbers of a normal distribution, of mean 0 and deviation 1 where those are absent.
    "random_normal" since Ios15 => RandomNormal {
        shape: Value; mean: Option<Value>; stddev: Option<Value>; seed: i32 = -1
    }
}
op! {
    /// Numbers of any size from `low` to below `high`, 0 and 1 where those are absent.
    "random_uniform" since Ios15 => RandomUniform {
        shape: Value; low: Option<Value>; high: Option<Value>; seed: i32 = -1
    }
}

/// A tensor of this shape, of the element type of the parameters.
fn drawn(
    types: &Types<'_>,
    shape: Value,
    parameters: [Option<Value>; 2],
) -> Result<Outputs, TypeError> {
    let mut dtypes = Vec::new();
    for at in parameters.into_iter().flatten() {
        types.float(at)?;
        dtypes.push((at, scalar_dtype(types, Some(at), DType::F32)?));
    }
    if let [(_, expected), (at, found)] = dtypes[..]
        && found != expected
    {
        return Err(TypeError::MixedDTypes { at, found, expected });
    }
    let dtype = dtypes.first().map_or(DType::F32, |(_, d)| *d);
    Ok(TensorType { dtype, shape: made_shape(types, shape)? }.into())
}

impl OpDef for RandomBernoulli {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        drawn(types, self.shape, [self.prob, None])
    }
}

impl OpDef for RandomNormal {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        drawn(types, self.shape, [self.mean, self.stddev])
    }
}

impl OpDef for RandomUniform {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        drawn(types, self.shape, [self.low, self.high])
    }
}

string_param! {
    /// What the last axis of [`RandomCategorical`] has.
    CategoricalMode { Logits = "logits", Probabilities = "probs" }
}

op! {
    /// For each row of logits or probabilities along the last axis, `size` classes drawn from it, as
    /// floats.
    "random_categorical" since Ios15 => RandomCategorical {
        x: Value;
        mode: CategoricalMode = CategoricalMode::Logits;
        size: i32 = 1;
        seed: i32 = -1;
    }
}

impl OpDef for RandomCategorical {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let mut out = types.float(self.x)?.clone();
        let size = u64::try_from(self.size);
        let size = size.map_err(|_| TypeError::param(format!("{} draws", self.size)))?;
        let Some(last) = out.shape.last_mut() else {
            return Err(TypeError::Rank { at: self.x, found: 0, expected: "at least 1" });
        };
        *last = Dim::Fixed(size);
        Ok(out.into())
    }
}
