//! The ops, one declaration each, grouped by kind. Names, operands and defaults are Core ML's
//! (`bench/check_ops.py` holds them against `coremltools` 9.0's op definitions; what those leave open
//! is in `docs/semantics.md`).
//!
//! To add an op: declare it in one of these files with its [`OpDef`](crate::OpDef), list it in
//! `op_enum!` below, give it a kernel in `russet-exec`, and a case in `cases/ops`.

mod activation;
mod blocks;
mod conv;
mod detect;
mod einsum;
mod elementwise;
mod index;
mod movement;
mod order;
mod random;
mod reduce;
mod shaping;
mod structure;
mod unary;

pub use activation::*;
pub use blocks::*;
pub use conv::*;
pub use detect::*;
pub use einsum::*;
pub use elementwise::*;
pub use index::*;
pub use movement::*;
pub use order::*;
pub use random::*;
pub use reduce::*;
pub use shaping::*;
pub use structure::*;
pub use unary::*;

crate::op_enum! {
    // structure
    Const, Identity, Cond,
    // elementwise
    Add, Sub, Mul, RealDiv, FloorDiv, Mod, Maximum, Minimum, Pow,
    Equal, NotEqual, Greater, GreaterEqual, Less, LessEqual,
    LogicalNot, LogicalAnd, LogicalOr, LogicalXor,
    Abs, Clip, Erf, Exp, Gelu, Log, Relu, Rsqrt, Sigmoid, Silu, Sqrt, Square, Tanh,
    Acos, Asin, Atan, Atanh, Ceil, Cos, Cosh, Exp2, Floor, Inverse, Round, Sign, Sin, Sinh, Tan,
    Threshold,
    ClampedRelu, Elu, LeakyRelu, LinearActivation, Prelu, Relu6, ScaledTanh, SigmoidHard, Softplus,
    SoftplusParametric, Softsign, ThresholdedRelu,
    Cast, Select,
    // matrix products
    Conv, Einsum, Linear, Matmul,
    // norms and reductions
    LayerNorm, ReduceL1Norm, ReduceL2Norm, ReduceLogSum, ReduceLogSumExp, ReduceMax, ReduceMean,
    ReduceMin, ReduceProd, ReduceSum, ReduceSumSquare, Softmax,
    // along one axis
    Argsort, Cumsum, ReduceArgmax, ReduceArgmin, Topk,
    // data movement
    Concat, ExpandDims, Gather, Reshape, Shape, SliceByIndex, SliceBySize, Split, Squeeze,
    Transpose,
    BandPart, BatchToSpace, Crop, DepthToSpace, NonZero, Pad, PixelShuffle, PixelUnshuffle, Reverse,
    ReverseSequence, SlidingWindows, SpaceToBatch, SpaceToDepth,
    GatherAlongAxis, GatherNd, Scatter, ScatterAlongAxis, ScatterNd, SliceUpdate,
    // shapes
    Fill, FillLike, Flatten2d, OneHot, Range1d, ReshapeLike, Stack, Tile,
    // drawn numbers, boxes
    RandomBernoulli, RandomCategorical, RandomNormal, RandomUniform, NonMaximumSuppression,
}

impl Op {
    /// Every value the op reads, in declaration order; one read twice is there twice.
    pub fn operands(&self) -> Vec<crate::Value> {
        let mut all = Vec::new();
        for (_, arg) in self.args(crate::Opset::Ios26) {
            match arg {
                crate::Arg::Value(v) => all.push(v),
                crate::Arg::Values(vs) => all.extend(vs),
                crate::Arg::Attr(_) => {}
            }
        }
        all
    }

    /// Does it draw numbers, so that another run may make others?
    pub fn is_random(&self) -> bool {
        use Op::*;
        matches!(
            self,
            RandomBernoulli(_) | RandomCategorical(_) | RandomNormal(_) | RandomUniform(_)
        )
    }

    /// Is it a constant?
    pub fn is_const(&self) -> bool {
        matches!(self, Op::Const(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declared_names_are_distinct() {
        let mut names: Vec<_> = Op::DECLARED.iter().map(|(n, _)| n).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), Op::DECLARED.len());
    }
}
