//! Norms, softmax and reductions.

use crate::dims::Calculation;
use crate::infer::{Outputs, TypeError, Types};
use crate::{Dim, OpDef, TensorType, Value, Work, op};

op! {
    /// Exponentials along `axis`, scaled to sum to one.
    "softmax" since Ios15 => Softmax { x: Value; axis: i32 = -1 }
}

impl OpDef for Softmax {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let x = types.float(self.x)?;
        types.axis(self.x, self.axis)?;
        Ok(x.clone().into())
    }

    fn work(&self, types: &Types<'_>) -> Work {
        let n = types.n_elements(self.x);
        Work { exps: n, flops: n.saturating_mul(3), ..Work::default() }
    }
}

op! {
    /// `x` shifted to mean 0 and scaled to variance 1 over `axes` (all when absent), then
    /// `* gamma + beta`, which have the shape of those axes.
    "layer_norm" since Ios15 => LayerNorm {
        x: Value;
        axes: Option<Vec<i32>>;
        gamma: Option<Value>;
        beta: Option<Value>;
        epsilon: f32 = 1e-5;
    }
}

impl OpDef for LayerNorm {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let x = types.float(self.x)?;
        let axes = reduced(types, self.x, self.axes.as_deref())?;
        let over: Vec<Dim> = axes.iter().map(|&a| x.shape[a].clone()).collect();
        for at in [self.gamma, self.beta].into_iter().flatten() {
            let t = types.float(at)?;
            if t.rank() != over.len() {
                let (found, expected) = (t.rank(), "the number of axes");
                return Err(TypeError::Rank { at, found, expected });
            }
            for (axis, (found, expected)) in t.shape.iter().zip(&over).enumerate() {
                if found != expected {
                    let (found, expected) = (found.clone(), expected.clone());
                    return Err(TypeError::Extent { at, axis, found, expected });
                }
            }
        }
        Ok(x.clone().into())
    }

    fn work(&self, types: &Types<'_>) -> Work {
        let n = types.n_elements(self.x);
        Work { flops: n.saturating_mul(6), ..Work::default() }
    }
}

op! {
    /// The sum over `axes` (all when absent).
    "reduce_sum" since Ios15 => ReduceSum {
        x: Value; axes: Option<Vec<i32>>; keep_dims: bool = false
    }
}
op! {
    /// The mean over `axes` (all when absent).
    "reduce_mean" since Ios15 => ReduceMean {
        x: Value; axes: Option<Vec<i32>>; keep_dims: bool = false
    }
}
op! {
    /// The largest over `axes` (all when absent).
    "reduce_max" since Ios15 => ReduceMax {
        x: Value; axes: Option<Vec<i32>>; keep_dims: bool = false
    }
}
op! {
    /// The smallest over `axes` (all when absent).
    "reduce_min" since Ios15 => ReduceMin {
        x: Value; axes: Option<Vec<i32>>; keep_dims: bool = false
    }
}
op! {
    /// The square root of the sum of squares over `axes` (all when absent).
    "reduce_l2_norm" since Ios15 => ReduceL2Norm {
        x: Value; axes: Option<Vec<i32>>; keep_dims: bool = false
    }
}

op! {
    /// The sum of magnitudes over `axes` (all when absent).
    "reduce_l1_norm" since Ios15 => ReduceL1Norm {
        x: Value; axes: Option<Vec<i32>>; keep_dims: bool = false
    }
}
op! {
    /// The logarithm of the sum over `axes` (all when absent).
    "reduce_log_sum" since Ios15 => ReduceLogSum {
        x: Value; axes: Option<Vec<i32>>; keep_dims: bool = false
    }
}
op! {
    /// The logarithm of the sum of exponentials over `axes` (all when absent).
    "reduce_log_sum_exp" since Ios15 => ReduceLogSumExp {
        x: Value; axes: Option<Vec<i32>>; keep_dims: bool = false
    }
}
op! {
    /// The product over `axes` (all when absent).
    "reduce_prod" since Ios15 => ReduceProd {
        x: Value; axes: Option<Vec<i32>>; keep_dims: bool = false
    }
}
op! {
    /// The sum of squares over `axes` (all when absent).
    "reduce_sum_square" since Ios15 => ReduceSumSquare {
        x: Value; axes: Option<Vec<i32>>; keep_dims: bool = false
    }
}

/// The reduced axes, sorted; all of them when none are named.
pub(super) fn reduced(
    types: &Types<'_>,
    x: Value,
    axes: Option<&[i32]>,
) -> Result<Vec<usize>, TypeError> {
    match axes {
        Some(axes) => types.axes(x, axes),
        None => Ok((0..types.tensor(x)?.rank()).collect()),
    }
}

/// Shape arithmetic: the elements of a vector combined, as far as they are known.
fn reduced_dims(types: &Types<'_>, calculation: Calculation, x: Value) -> Option<Vec<Dim>> {
    types.tensor(x).ok().filter(|t| t.rank() == 1)?;
    let dims = types.known_ints(x)?;
    let (first, rest) = dims.split_first()?;
    let all = rest.iter().try_fold(first.clone(), |a, b| calculation.on(&a, b))?;
    Some(vec![all])
}

macro_rules! reduction {
    ($($op:ident: $flops:literal, $exps:literal $(, $calculation:ident)?);* $(;)?) => {$(
        impl OpDef for $op {
            fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
                let x = types.number(self.x)?;
                let axes = reduced(types, self.x, self.axes.as_deref())?;
                let kept = |(i, d): (usize, &Dim)| match (axes.contains(&i), self.keep_dims) {
                    (false, _) => Some(d.clone()),
                    (true, true) => Some(Dim::Fixed(1)),
                    (true, false) => None,
                };
                let shape = x.shape.iter().enumerate().filter_map(kept).collect();
                #[allow(unused_mut, unused_assignments)]
                let mut known = None;
                $(known = reduced_dims(types, Calculation::$calculation, self.x);)?
                Ok(Outputs::dims(TensorType { dtype: x.dtype, shape }, known))
            }

            fn work(&self, types: &Types<'_>) -> Work {
                let n = types.n_elements(self.x);
                let (flops, exps) = (n.saturating_mul($flops), n.saturating_mul($exps));
                Work { flops, exps, ..Work::default() }
            }
        }
    )*};
}

reduction! {
    ReduceL1Norm: 2, 0;
    ReduceL2Norm: 2, 0;
    ReduceLogSum: 1, 0;
    ReduceLogSumExp: 2, 1;
    ReduceMax: 1, 0, Max;
    ReduceMean: 1, 0;
    ReduceMin: 1, 0, Min;
    ReduceProd: 1, 0, Mul;
    ReduceSum: 1, 0, Add;
    ReduceSumSquare: 2, 0;
}
