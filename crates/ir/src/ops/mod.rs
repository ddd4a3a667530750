//! The ops, one declaration each, grouped by kind. Names, operands and defaults are Core ML's
//! (`bench/check_ops.py` holds them against `coremltools` 9.0's op definitions; what those leave open
//! is in `docs/semantics.md`).
//!
//! To add an op: declare it in one of these files with its [`OpDef`](crate::OpDef), list it in
//! `op_enum!` below, give it a kernel in `russet-exec`, and a case in `cases/ops`.

mod activation;
mod attention;
mod blocks;
mod constexpr;
mod control;
mod conv;
mod detect;
mod einsum;
mod elementwise;
mod index;
mod movement;
mod norm;
mod order;
mod pool;
mod random;
mod recurrent;
mod reduce;
mod resize;
mod shaping;
mod structure;
mod unary;

pub use activation::*;
pub use attention::*;
pub use blocks::*;
pub use constexpr::*;
pub use control::*;
pub use conv::*;
pub use detect::*;
pub use einsum::*;
pub use elementwise::*;
pub use index::*;
pub use movement::*;
pub use norm::*;
pub use order::*;
pub use pool::*;
pub use random::*;
pub use recurrent::*;
pub use reduce::*;
pub use resize::*;
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
    Conv, Einsum, Linear, Matmul, ConvTranspose, ScaledDotProductAttention, Quantize, Dequantize,
    // windows, norms, recurrent layers
    AvgPool, MaxPool, L2Pool, BatchNorm, InstanceNorm, L2Norm, LocalResponseNorm,
    Lstm, Gru, Rnn,
    // images
    UpsampleNearestNeighbor, UpsampleBilinear, ResizeNearestNeighbor, ResizeBilinear, Resize,
    CropResizeRoi, CropResize, Resample, Affine,
    // compressed weights
    ConstexprAffineDequantize, ConstexprPackedLutToDense, ConstexprPackedSparseToDense,
    ConstexprCast, ConstexprBlockwiseShiftScale, ConstexprLutToDense, ConstexprSparseToDense,
    ConstexprLutToSparse, ConstexprSparseBlockwiseShiftScale,
    // loops, lists, states, labels, buffers
    WhileLoop, MakeList, ListLength, ListWrite, ListRead, ListGather, ListScatter,
    ReadState, WriteState, Classify, TensorBufferToTensor, TensorToTensorBuffer,
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
    RandomBernoulli, RandomCategorical, RandomNormal, RandomUniform,
    NonMaximumSuppressionCounted, NonMaximumSuppression,
}

impl Op {
    /// Every value the op reads, in declaration order; one read twice is there twice.
    pub fn operands(&self) -> Vec<crate::Value> {
        let mut all = Vec::new();
        for (_, arg) in self.all_args() {
            match arg {
                crate::Arg::Value(v) => all.push(v),
                crate::Arg::Values(vs) => all.extend(vs),
                crate::Arg::Attr(_) => {}
            }
        }
        all
    }

    /// Is it a compressed weight: computed from constants when the model is loaded?
    pub fn is_constexpr(&self) -> bool {
        self.name().starts_with("constexpr_")
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
        for &opset in crate::Opset::ALL {
            let mut names: Vec<_> =
                Op::DECLARED.iter().filter(|d| d.is_in(opset)).map(|d| d.name).collect();
            names.sort();
            let n = names.len();
            names.dedup();
            assert_eq!(names.len(), n, "two versions of an op in {opset}");
        }
    }
}
