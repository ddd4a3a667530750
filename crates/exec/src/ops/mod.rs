//! Each op on arrays: its kernel, by way of shapes and strides.
//!
//! [`evaluate_with`] is the closed list: a new op does not compile until it has a row here.

mod attention;
mod blocks;
mod detect;
mod elementwise;
mod index;
mod lists;
mod movement;
mod norm;
mod order;
mod places;
mod product;
mod random;
mod recurrent;
mod reduce;
mod resize;
mod shaping;
mod unary;
mod window;

use std::borrow::Cow;

use russet_ir::ops::{Classify, ListWrite};
use russet_ir::{Op, Value};

use crate::kernels::reduce::Reduction;
use crate::kernels::rounding::Rounding;
use crate::{Array, ExecError, Numbers};

pub(crate) use elementwise::unary_kernel;
pub(crate) use movement::{gather_rows, reshape, split_sizes, transpose_axes};
pub(crate) use product::ConvShape;

/// How an op reads its operands.
pub(crate) struct Operands<'a> {
    pub get: &'a dyn Fn(Value) -> Result<Cow<'a, Array>, ExecError>,
    pub rounding: Rounding,
    pub op: &'a str,
}

impl<'a> Operands<'a> {
    pub fn array(&self, v: Value) -> Result<Cow<'a, Array>, ExecError> {
        (self.get)(v)
    }

    fn optional(&self, v: Option<Value>) -> Result<Option<Cow<'a, Array>>, ExecError> {
        v.map(|v| self.array(v)).transpose()
    }

    /// Integers, as shapes and indices are.
    fn ints(&self, v: Value) -> Result<Vec<i64>, ExecError> {
        let array = self.array(v)?;
        let ints = array.as_i32().ok_or_else(|| self.fail("an operand is not of integers"))?;
        Ok(ints.iter().map(|&i| i.into()).collect())
    }

    pub fn fail(&self, why: impl Into<String>) -> ExecError {
        ExecError::unsupported(self.op, why)
    }

    /// The floats of an operand.
    fn floats<'b>(&self, array: &'b Array) -> Result<&'b [f32], ExecError> {
        array.as_f32().ok_or_else(|| self.fail("an operand is not of floats"))
    }

    /// Stores the result of an op that is no matrix product.
    fn stored(&self, shape: Vec<usize>, mut data: Vec<f32>) -> Array {
        self.rounding.store(&mut data);
        Array::f32(shape, data)
    }

    /// An `axis` counted from the front.
    fn axis(&self, axis: i32, rank: usize) -> Result<usize, ExecError> {
        russet_ir::resolve_axis(axis, rank)
            .ok_or_else(|| self.fail(format!("axis {axis} of rank {rank}")))
    }
}

/// Runs one op; `x` gives its operands.
pub(crate) fn evaluate_with(op: &Op, x: &Operands<'_>) -> Result<Vec<Array>, ExecError> {
    use blocks as b;
    use elementwise as e;
    use index as i;
    use movement as m;
    use order as o;
    use reduce as r;
    use shaping as s;
    let one = |a: Result<Array, ExecError>| a.map(|a| vec![a]);
    let reduce = |how, v, axes, keep_dims| one(r::reduce(x, how, v, axes, keep_dims));
    match op {
        Op::Const(op) => {
            let array = Array::from_tensor(&op.val);
            one(array.ok_or_else(|| x.fail("strings are not run on")))
        }
        Op::Identity(op) => one(x.array(op.x).map(Cow::into_owned)),
        Op::Cond(_) | Op::WhileLoop(_) => Err(x.fail("blocks are run by the whole function only")),
        Op::WriteState(_) => Err(x.fail("states are kept by the whole function only")),
        Op::ReadState(op) => one(x.array(op.input).map(Cow::into_owned)),
        Op::TensorBufferToTensor(op) => one(x.array(op.input).map(Cow::into_owned)),
        Op::TensorToTensorBuffer(op) => one(x.array(op.input).map(Cow::into_owned)),
        Op::MakeList(op) => one(lists::make_list(x, op)),
        Op::ListLength(op) => {
            one(x.array(op.ls).map(|l| Array::i32(vec![], vec![l.shape[0] as i32])))
        }
        Op::ListWrite(op) => {
            one(x.array(op.ls).map(Cow::into_owned).and_then(|list| list_written(x, list, op)))
        }
        Op::ListRead(op) => one(lists::read(x, op)),
        Op::ListGather(op) => one(lists::gather(x, op)),
        Op::ListScatter(op) => one(lists::scatter(x, op)),
        Op::Classify(op) => classify(x, op),
        Op::ConstexprAffineDequantize(_)
        | Op::ConstexprPackedLutToDense(_)
        | Op::ConstexprPackedSparseToDense(_)
        | Op::ConstexprCast(_)
        | Op::ConstexprBlockwiseShiftScale(_)
        | Op::ConstexprLutToDense(_)
        | Op::ConstexprSparseToDense(_)
        | Op::ConstexprLutToSparse(_)
        | Op::ConstexprSparseBlockwiseShiftScale(_) => {
            Err(x.fail("it is decoded where it is read, and this one cannot be"))
        }
        Op::ScaledDotProductAttention(op) => one(attention::scaled_dot_product(x, op)),
        Op::Quantize(op) => one(attention::quantize(x, op)),
        Op::Dequantize(op) => one(attention::dequantize(x, op)),
        Op::AvgPool(op) => {
            let exclude_padding = op.exclude_padding_from_average;
            one(window::pool(x, window::Of::Mean { exclude_padding }, op.x, op.window()))
        }
        Op::MaxPool(op) => one(window::pool(x, window::Of::Max, op.x, op.window())),
        Op::L2Pool(op) => one(window::pool(x, window::Of::L2, op.x, op.window())),
        Op::ConvTranspose(op) => one(window::conv_transpose(x, op)),
        Op::BatchNorm(op) => one(norm::batch_norm(x, op)),
        Op::InstanceNorm(op) => one(norm::instance_norm(x, op)),
        Op::L2Norm(op) => one(norm::l2_norm(x, op)),
        Op::LocalResponseNorm(op) => one(norm::local_response_norm(x, op)),
        Op::Lstm(op) => recurrent::lstm(x, op),
        Op::Gru(op) => recurrent::gru(x, op),
        Op::Rnn(op) => recurrent::rnn(x, op),
        Op::UpsampleNearestNeighbor(op) => one(resize::upsample_nearest(x, op)),
        Op::UpsampleBilinear(op) => one(resize::upsample_bilinear(x, op)),
        Op::ResizeNearestNeighbor(op) => one(resize::resize_nearest(x, op)),
        Op::ResizeBilinear(op) => one(resize::resize_bilinear(x, op)),
        Op::Resize(op) => one(resize::resize(x, op)),
        Op::CropResizeRoi(op) => one(resize::crop_resize_roi(x, op)),
        Op::CropResize(op) => one(resize::crop_resize(x, op)),
        Op::Resample(op) => one(resize::resample(x, op)),
        Op::Affine(op) => one(resize::affine(x, op)),
        Op::Add(op) => one(e::binary(x, e::ADD, op.x, op.y)),
        Op::Sub(op) => one(e::binary(x, e::SUB, op.x, op.y)),
        Op::Mul(op) => one(e::binary(x, e::MUL, op.x, op.y)),
        Op::RealDiv(op) => one(e::binary(x, e::DIV, op.x, op.y)),
        Op::FloorDiv(op) => one(e::binary(x, e::FLOOR_DIV, op.x, op.y)),
        Op::Mod(op) => one(e::binary(x, e::MOD, op.x, op.y)),
        Op::Maximum(op) => one(e::binary(x, e::MAX, op.x, op.y)),
        Op::Minimum(op) => one(e::binary(x, e::MIN, op.x, op.y)),
        Op::Pow(op) => one(e::binary(x, e::POW, op.x, op.y)),
        Op::Equal(op) => one(e::compare(x, |o| o.is_eq(), op.x, op.y)),
        Op::NotEqual(op) => one(e::compare(x, |o| o.is_ne(), op.x, op.y)),
        Op::Greater(op) => one(e::compare(x, |o| o.is_gt(), op.x, op.y)),
        Op::GreaterEqual(op) => one(e::compare(x, |o| o.is_ge(), op.x, op.y)),
        Op::Less(op) => one(e::compare(x, |o| o.is_lt(), op.x, op.y)),
        Op::LessEqual(op) => one(e::compare(x, |o| o.is_le(), op.x, op.y)),
        Op::LogicalAnd(op) => one(e::logical(x, |a, b| a && b, op.x, op.y)),
        Op::LogicalOr(op) => one(e::logical(x, |a, b| a || b, op.x, op.y)),
        Op::LogicalXor(op) => one(e::logical(x, |a, b| a != b, op.x, op.y)),
        Op::LogicalNot(op) => one(e::logical_not(x, op.x)),
        Op::Select(op) => one(e::select(x, op)),
        Op::Cast(op) => one(e::cast(x, op)),
        Op::Abs(_)
        | Op::Acos(_)
        | Op::Asin(_)
        | Op::Atan(_)
        | Op::Atanh(_)
        | Op::Ceil(_)
        | Op::Clip(_)
        | Op::Cos(_)
        | Op::Cosh(_)
        | Op::Erf(_)
        | Op::Exp(_)
        | Op::Exp2(_)
        | Op::Floor(_)
        | Op::Gelu(_)
        | Op::Inverse(_)
        | Op::Log(_)
        | Op::Relu(_)
        | Op::Round(_)
        | Op::Rsqrt(_)
        | Op::Sigmoid(_)
        | Op::Sign(_)
        | Op::Silu(_)
        | Op::Sin(_)
        | Op::Sinh(_)
        | Op::Sqrt(_)
        | Op::Square(_)
        | Op::Tan(_)
        | Op::Tanh(_)
        | Op::Threshold(_)
        | Op::ClampedRelu(_)
        | Op::Elu(_)
        | Op::LeakyRelu(_)
        | Op::LinearActivation(_)
        | Op::Prelu(_)
        | Op::Relu6(_)
        | Op::ScaledTanh(_)
        | Op::SigmoidHard(_)
        | Op::Softplus(_)
        | Op::SoftplusParametric(_)
        | Op::Softsign(_)
        | Op::ThresholdedRelu(_) => one(e::activation(x, op)),
        Op::Conv(op) => one(product::conv(x, op)),
        Op::Einsum(op) => one(product::einsum(x, op)),
        Op::Linear(op) => one(product::linear(x, op)),
        Op::Matmul(op) => one(product::matmul(x, op)),
        Op::LayerNorm(op) => one(r::layer_norm(x, op)),
        Op::Softmax(op) => one(r::softmax(x, op)),
        Op::ReduceL1Norm(op) => reduce(Reduction::L1Norm, op.x, op.axes.as_deref(), op.keep_dims),
        Op::ReduceL2Norm(op) => reduce(Reduction::L2Norm, op.x, op.axes.as_deref(), op.keep_dims),
        Op::ReduceLogSum(op) => reduce(Reduction::LogSum, op.x, op.axes.as_deref(), op.keep_dims),
        Op::ReduceLogSumExp(op) => {
            reduce(Reduction::LogSumExp, op.x, op.axes.as_deref(), op.keep_dims)
        }
        Op::ReduceMax(op) => reduce(Reduction::Max, op.x, op.axes.as_deref(), op.keep_dims),
        Op::ReduceMean(op) => reduce(Reduction::Mean, op.x, op.axes.as_deref(), op.keep_dims),
        Op::ReduceMin(op) => reduce(Reduction::Min, op.x, op.axes.as_deref(), op.keep_dims),
        Op::ReduceProd(op) => reduce(Reduction::Product, op.x, op.axes.as_deref(), op.keep_dims),
        Op::ReduceSum(op) => reduce(Reduction::Sum, op.x, op.axes.as_deref(), op.keep_dims),
        Op::ReduceSumSquare(op) => {
            reduce(Reduction::SumSquare, op.x, op.axes.as_deref(), op.keep_dims)
        }
        Op::Argsort(op) => one(o::argsort(x, op)),
        Op::Cumsum(op) => one(o::cumsum(x, op)),
        Op::ReduceArgmax(op) => {
            let how = (o::First::Largest, op.output_dtype);
            one(o::extreme(x, op.x, op.axis, op.keep_dims, how))
        }
        Op::ReduceArgmin(op) => {
            let how = (o::First::Smallest, op.output_dtype);
            one(o::extreme(x, op.x, op.axis, op.keep_dims, how))
        }
        Op::Topk(op) => o::topk(x, op),
        Op::Concat(op) => one(m::concat_op(x, op)),
        Op::ExpandDims(op) => one(m::expand_dims(x, op)),
        Op::Gather(op) => one(m::gather(x, op)),
        Op::Reshape(op) => one(m::reshape_op(x, op)),
        Op::Shape(op) => {
            let shape: Vec<i32> = x.array(op.x)?.shape.iter().map(|&d| d as i32).collect();
            one(Ok(Array::i32(vec![shape.len()], shape)))
        }
        Op::SliceByIndex(op) => one(m::slice_by_index(x, op)),
        Op::SliceBySize(op) => one(m::slice_by_size(x, op)),
        Op::Split(op) => m::split(x, op),
        Op::Squeeze(op) => one(m::squeeze(x, op)),
        Op::Transpose(op) => one(m::transpose(x, op)),
        Op::BandPart(op) => one(b::band_part(x, op)),
        Op::BatchToSpace(op) => one(b::batch_to_space(x, op)),
        Op::Crop(op) => one(b::crop(x, op)),
        Op::DepthToSpace(op) => one(b::depth_to_space(x, op)),
        Op::NonZero(op) => one(b::non_zero(x, op)),
        Op::Pad(op) => one(b::pad(x, op)),
        Op::PixelShuffle(op) => one(b::pixel_shuffle(x, op)),
        Op::PixelUnshuffle(op) => one(b::pixel_unshuffle(x, op)),
        Op::Reverse(op) => one(b::reverse(x, op)),
        Op::ReverseSequence(op) => one(b::reverse_sequence(x, op)),
        Op::SlidingWindows(op) => one(b::sliding_windows(x, op)),
        Op::SpaceToBatch(op) => one(b::space_to_batch(x, op)),
        Op::SpaceToDepth(op) => one(b::space_to_depth(x, op)),
        Op::GatherAlongAxis(op) => one(i::gather_along_axis(x, op)),
        Op::GatherNd(op) => one(i::gather_nd(x, op)),
        Op::Scatter(op) => one(i::scatter(x, op)),
        Op::ScatterAlongAxis(op) => one(i::scatter_along_axis(x, op)),
        Op::ScatterNd(op) => one(i::scatter_nd(x, op)),
        Op::SliceUpdate(op) => one(i::slice_update(x, op)),
        Op::Fill(op) => one(s::fill(x, op)),
        Op::FillLike(op) => one(s::fill_like(x, op)),
        Op::Flatten2d(op) => one(s::flatten2d(x, op)),
        Op::OneHot(op) => one(s::one_hot(x, op)),
        Op::Range1d(op) => one(s::range_1d(x, op)),
        Op::ReshapeLike(op) => one(s::reshape_like(x, op)),
        Op::Stack(op) => one(s::stack(x, op)),
        Op::Tile(op) => one(s::tile(x, op)),
        Op::RandomBernoulli(op) => one(random::bernoulli(x, op)),
        Op::RandomCategorical(op) => one(random::categorical(x, op)),
        Op::RandomNormal(op) => one(random::normal(x, op)),
        Op::RandomUniform(op) => one(random::uniform(x, op)),
        Op::NonMaximumSuppressionCounted(op) => detect::non_maximum_suppression_counted(x, op),
        Op::NonMaximumSuppression(op) => detect::non_maximum_suppression(x, op),
        Op::Opaque(op) => Err(ExecError::unsupported(&op.name, "this version does not know it")),
    }
}

/// A list with one more element, or another one.
pub(crate) fn list_written(
    x: &Operands<'_>,
    mut list: Array,
    op: &ListWrite,
) -> Result<Array, ExecError> {
    let (at, value) = (lists::place(x, op.index)?, x.array(op.value)?);
    lists::write(x, &mut list, &[at], (&value.shape, &value.data))?;
    Ok(list)
}

/// The place of the largest probability among the classes, which stands for its label, and the
/// probabilities in the classes' order.
fn classify(x: &Operands<'_>, op: &Classify) -> Result<Vec<Array>, ExecError> {
    let p = x.array(op.probabilities)?;
    let numbers = x.floats(&p)?;
    let larger = |best: usize, i: usize| if numbers[i] > numbers[best] { i } else { best };
    let best = (0..numbers.len()).fold(0, larger);
    let all = Array::f32(vec![numbers.len()], numbers.to_vec());
    Ok(vec![Array::i32(vec![], vec![best as i32]), all])
}

/// Largest array made while running, in bytes: beyond it a shape is a mistake or an attack.
pub(crate) const BYTES_MAX: u64 = 1 << 31;

/// The number of elements of a shape, if an array of it is reasonable.
pub(crate) fn checked_len(shape: &[usize]) -> Result<usize, ExecError> {
    // An empty axis counts as one: strides are products of the others.
    let bytes = |n: u64, &d: &usize| n.checked_mul(d.max(1) as u64);
    let bytes = shape.iter().try_fold(4u64, bytes).unwrap_or(u64::MAX);
    if bytes > BYTES_MAX {
        return Err(ExecError::TooLarge { bytes, limit: BYTES_MAX });
    }
    Ok(if shape.contains(&0) { 0 } else { (bytes / 4) as usize })
}

/// Moves elements of any kind with a kernel for floats: the bits are the same.
pub(crate) fn moved(
    data: &Numbers,
    n: usize,
    f: impl FnOnce(&[f32], &mut [f32]) -> Result<(), ExecError>,
) -> Result<Numbers, ExecError> {
    let mut out = vec![0.0; n];
    Ok(match data {
        Numbers::F32(x) => {
            f(x, &mut out)?;
            Numbers::F32(out)
        }
        Numbers::I32(x) => {
            let bits: Vec<f32> = x.iter().map(|&i| f32::from_bits(i as u32)).collect();
            f(&bits, &mut out)?;
            Numbers::I32(out.into_iter().map(|x| x.to_bits() as i32).collect())
        }
        Numbers::Bool(x) => {
            let bits: Vec<f32> = x.iter().map(|&b| b.into()).collect();
            f(&bits, &mut out)?;
            Numbers::Bool(out.into_iter().map(|x| x != 0.0).collect())
        }
    })
}
