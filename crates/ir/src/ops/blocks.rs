//! Ops that rearrange, frame or cut images and windows.

use crate::dims::{named, product, scaled, shifted};
use crate::infer::{Outputs, TypeError, Types};
use crate::{DType, Dim, Number, OpDef, TensorType, Value, op, string_param};

string_param! {
    /// What [`Pad`] puts around a tensor.
    PadMode { Constant = "constant", Reflect = "reflect", Replicate = "replicate" }
}

op! {
    /// `x` with elements added before and after its last axes, two numbers of `pad` for each: a
    /// constant (zero when absent), `x` mirrored without its edge, or its edge.
    "pad" since Ios15 => Pad {
        x: Value;
        pad: Value;
        mode: PadMode = PadMode::Constant;
        constant_val: Option<Number>;
    }
}

impl OpDef for Pad {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let x = types.any_number(self.x)?;
        if x.dtype.is_int() && matches!(self.constant_val, Some(Number::Float(_))) {
            return Err(TypeError::param(format!("constant_val is a float, x is {}", x.dtype)));
        }
        let n = types.vector(self.pad)?;
        let first = (x.rank() as u64).checked_sub(n / 2).filter(|_| n.is_multiple_of(2));
        let Some(first) = first else {
            return Err(TypeError::param(format!("{n} numbers of padding for {} axes", x.rank())));
        };
        let first = first as usize;
        let pads = types.dims(self.pad);
        let mut shape = x.shape.clone();
        for i in first..x.rank() {
            let pair = pads.as_ref().map(|p| (&p[2 * (i - first)], &p[2 * (i - first) + 1]));
            let unknown = || named(&format!("{}.{}.{i}", types.name(self.x), types.name(self.pad)));
            shape[i] = match pair {
                Some((Dim::Fixed(before), Dim::Fixed(after))) => {
                    let (before, after) = (*before, *after);
                    if (before as i64) < 0 || (after as i64) < 0 {
                        return Err(TypeError::param("a negative padding"));
                    }
                    let n = x.shape[i].fixed();
                    let short = match self.mode {
                        PadMode::Constant => false,
                        PadMode::Reflect => n.is_some_and(|n| before.max(after) >= n.max(1)),
                        PadMode::Replicate => n == Some(0) && before.max(after) > 0,
                    };
                    if short {
                        let expected = Dim::Fixed(before.max(after).saturating_add(1));
                        return Err(TypeError::Extent {
                            at: self.x,
                            axis: i,
                            found: x.shape[i].clone(),
                            expected,
                        });
                    }
                    let more = before.checked_add(after);
                    let padded = more.and_then(|more| shifted(&x.shape[i], more, 0));
                    padded.ok_or_else(|| TypeError::param("a padding beyond any size"))?
                }
                _ => unknown(),
            };
        }
        Ok(TensorType { dtype: x.dtype, shape }.into())
    }
}

op! {
    /// `x` `[N, C, H, W]` without its first and last rows and columns, as many as the two numbers of
    /// each say.
    "crop" since Ios15 => Crop { x: Value; crop_height: Vec<i32>; crop_width: Vec<i32> }
}

impl OpDef for Crop {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let x = image(types, self.x)?;
        let mut shape = x.shape.clone();
        for (axis, cut) in [(2, &self.crop_height), (3, &self.crop_width)] {
            let less = match cut[..] {
                [a, b] if a >= 0 && b >= 0 => a as u64 + b as u64,
                _ => return Err(TypeError::param(format!("a crop of {cut:?}"))),
            };
            shape[axis] = shifted(&x.shape[axis], 0, less).ok_or_else(|| TypeError::Extent {
                at: self.x,
                axis,
                found: x.shape[axis].clone(),
                expected: Dim::Fixed(less),
            })?;
        }
        Ok(TensorType { dtype: x.dtype, shape }.into())
    }
}

/// A tensor of floats `[N, C, H, W]`.
fn image<'a>(types: &Types<'a>, at: Value) -> Result<&'a TensorType, TypeError> {
    let x = types.float(at)?;
    match x.rank() {
        4 => Ok(x),
        found => Err(TypeError::Rank { at, found, expected: "4" }),
    }
}

op! {
    /// Channels `[b * b * C]` become blocks of `b` by `b` places, `C` channels for each place.
    "depth_to_space" since Ios15 => DepthToSpace { x: Value; block_size: i32 }
}
op! {
    /// Blocks of `b` by `b` places become channels, all of one place together.
    "space_to_depth" since Ios15 => SpaceToDepth { x: Value; block_size: i32 }
}
op! {
    /// Channels `[C * f * f]` become blocks of `f` by `f` places, `f * f` places for each channel.
    "pixel_shuffle" since Ios15 => PixelShuffle { x: Value; upscale_factor: i32 }
}
op! {
    /// Blocks of `f` by `f` places become channels, all of one channel together. The factor is uint32.
    "pixel_unshuffle" since Ios16 => PixelUnshuffle { x: Value; downscale_factor: Value }
}

/// Which way blocks are turned.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Blocks {
    ToSpace,
    ToChannels,
}

fn blocks(types: &Types<'_>, at: Value, size: i64, way: Blocks) -> Result<Outputs, TypeError> {
    let x = image(types, at)?;
    let b = u64::try_from(size).ok().filter(|b| (1..1 << 16).contains(b));
    let b = b.ok_or_else(|| TypeError::param(format!("blocks of {size} places")))?;
    let mut shape = x.shape.clone();
    for (axis, d) in shape.iter_mut().enumerate().skip(1) {
        let size = if axis == 1 { b * b } else { b };
        let grows = (axis == 1) == (way == Blocks::ToChannels);
        let (times, parts) = if grows { (size, 1) } else { (1, size) };
        *d = scaled(d, times, parts).ok_or_else(|| {
            TypeError::param(format!("axis {axis} of {d} is not made of blocks of {size}"))
        })?;
    }
    Ok(TensorType { dtype: x.dtype, shape }.into())
}

impl OpDef for DepthToSpace {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        blocks(types, self.x, self.block_size.into(), Blocks::ToSpace)
    }
}

impl OpDef for SpaceToDepth {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        blocks(types, self.x, self.block_size.into(), Blocks::ToChannels)
    }
}

impl OpDef for PixelShuffle {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        blocks(types, self.x, self.upscale_factor.into(), Blocks::ToSpace)
    }
}

impl OpDef for PixelUnshuffle {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let factor = types.constant_int(self.downscale_factor)?;
        blocks(types, self.x, factor, Blocks::ToChannels)
    }
}

op! {
    /// `x` `[N, C, H, W]`, padded with zeros by `paddings` `[2, 2]`, with its places dealt out to
    /// `N * b0 * b1` images: all of one place of a block together.
    "space_to_batch" since Ios15 => SpaceToBatch { x: Value; block_shape: Vec<i32>; paddings: Value }
}
op! {
    /// The opposite of `space_to_batch`: images become places again, and `crops` `[2, 2]` are cut.
    "batch_to_space" since Ios15 => BatchToSpace { x: Value; block_shape: Vec<i32>; crops: Value }
}

/// The extents of blocks and the margins before and after each axis, as numbers.
pub fn block_numbers(block_shape: &[i32], margins: &[i64]) -> Option<([u64; 2], [[u64; 2]; 2])> {
    let [h, w] = block_shape else { return None };
    let size = |b: i32| u64::try_from(b).ok().filter(|b| (1..1 << 16).contains(b));
    let margin = |&m: &i64| u64::try_from(m).ok().filter(|&m| m <= i32::MAX as u64);
    let all: Vec<u64> = margins.iter().map(margin).collect::<Option<_>>()?;
    let [a, b, c, d] = all[..] else { return None };
    Some(([size(*h)?, size(*w)?], [[a, b], [c, d]]))
}

fn dealt(
    types: &Types<'_>,
    at: Value,
    (block_shape, margins): (&[i32], Value),
    extents: impl Fn(&Dim, u64, u64) -> Option<Dim>,
    batch: impl Fn(&Dim, u64) -> Option<Dim>,
) -> Result<Outputs, TypeError> {
    let x = image(types, at)?;
    types.int(margins)?;
    types.same_shape(margins, &[Dim::Fixed(2), Dim::Fixed(2)])?;
    let numbers = types.ints(margins).ok_or(TypeError::NotConstant { at: margins })?;
    let why = || TypeError::param(format!("blocks of {block_shape:?} with margins of {numbers:?}"));
    let (block, margins) = block_numbers(block_shape, &numbers).ok_or_else(why)?;
    let mut shape = x.shape.clone();
    let fits = |found: Option<Dim>, axis: usize| {
        let why =
            || format!("axis {axis} of {} does not fit blocks of {block_shape:?}", x.shape[axis]);
        found.ok_or_else(|| TypeError::param(why()))
    };
    shape[0] = fits(batch(&x.shape[0], block[0] * block[1]), 0)?;
    for i in 0..2 {
        let margin = margins[i][0] + margins[i][1];
        shape[2 + i] = fits(extents(&x.shape[2 + i], block[i], margin), 2 + i)?;
    }
    Ok(TensorType { dtype: x.dtype, shape }.into())
}

impl OpDef for SpaceToBatch {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let extent = |d: &Dim, b, margin| scaled(&shifted(d, margin, 0)?, 1, b);
        let batch = |d: &Dim, b| Some(product(&[d.clone(), Dim::Fixed(b)]));
        dealt(types, self.x, (&self.block_shape, self.paddings), extent, batch)
    }
}

impl OpDef for BatchToSpace {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let extent = |d: &Dim, b, margin| shifted(&scaled(d, b, 1)?, 0, margin);
        dealt(types, self.x, (&self.block_shape, self.crops), extent, |d, b| scaled(d, 1, b))
    }
}

op! {
    /// Windows of `size` along `axis`, every `stride`-th: one axis for the windows, the next for
    /// the places in each.
    "sliding_windows" since Ios15 => SlidingWindows { x: Value; axis: i32; size: i32; stride: i32 = 1 }
}

impl OpDef for SlidingWindows {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let x = types.element(self.x)?;
        let axis = types.axis(self.x, self.axis)?;
        let positive = |n: i32| u64::try_from(n).ok().filter(|&n| n > 0);
        let (Some(size), Some(stride)) = (positive(self.size), positive(self.stride)) else {
            let why = format!("windows of {} every {}", self.size, self.stride);
            return Err(TypeError::param(why));
        };
        let mut shape = x.shape.clone();
        shape[axis] = match &x.shape[axis] {
            Dim::Fixed(n) => {
                let (found, expected) = (Dim::Fixed(*n), Dim::Fixed(size));
                let short = TypeError::Extent { at: self.x, axis, found, expected };
                let last = n.checked_sub(size).ok_or(short)?;
                Dim::Fixed(last / stride + 1)
            }
            Dim::Symbol(s) => named(&format!("{s}.windows{size}s{stride}")),
        };
        shape.insert(axis + 1, Dim::Fixed(size));
        Ok(TensorType { dtype: x.dtype, shape }.into())
    }
}

op! {
    /// The elements of the last two axes at most `lower` below and `upper` above the diagonal (any
    /// number when negative), zero elsewhere.
    "band_part" since Ios15 => BandPart { x: Value; lower: i32 = -1; upper: i32 = -1 }
}

impl OpDef for BandPart {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let x = types.wide(self.x)?;
        if x.rank() < 2 {
            return Err(TypeError::Rank { at: self.x, found: x.rank(), expected: "at least 2" });
        }
        Ok(x.clone().into())
    }
}

op! {
    /// `x` turned around along `axes` (all when absent).
    "reverse" since Ios15 => Reverse { x: Value; axes: Option<Vec<i32>> }
}

impl OpDef for Reverse {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        types.axes(self.x, self.axes.as_deref().unwrap_or(&[]))?;
        Ok(types.element(self.x)?.clone().into())
    }
}

op! {
    /// `x` with the first elements along `seq_axis` turned around, as many as `lengths` says for
    /// each place along `batch_axis`.
    "reverse_sequence" since Ios15 => ReverseSequence {
        x: Value; lengths: Value; seq_axis: i32 = 0; batch_axis: i32 = 0
    }
}

impl OpDef for ReverseSequence {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let x = types.element(self.x)?;
        types.axis(self.x, self.seq_axis)?;
        let batch = types.axis(self.x, self.batch_axis)?;
        types.int(self.lengths)?;
        types.same_shape(self.lengths, &x.shape[batch..=batch])?;
        Ok(x.clone().into())
    }
}

op! {
    /// The places of all elements that are not zero, one row `[rank]` for each, in order.
    "non_zero" since Ios15 => NonZero { x: Value }
}

/// Elements up to which those of a constant are counted before running.
const COUNTED_MAX: u64 = 1 << 16;

impl OpDef for NonZero {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let x = types.wide(self.x)?;
        let constant = types.constant(self.x).filter(|t| t.n_elements() <= COUNTED_MAX);
        let n = match constant {
            Some(t) => Dim::Fixed(t.to_f32().iter().filter(|&&x| x != 0.0).count() as u64),
            None => named(&format!("{}.nonzero", types.name(self.x))),
        };
        Ok(TensorType { dtype: DType::I32, shape: vec![n, Dim::Fixed(x.rank() as u64)] }.into())
    }
}
