//! Ops that rearrange, frame or cut images and windows.

use russet_ir::ops::{
    BandPart, BatchToSpace, Crop, DepthToSpace, NonZero, Pad, PadMode, PixelShuffle,
    PixelUnshuffle, Reverse, ReverseSequence, SlidingWindows, SpaceToBatch, SpaceToDepth,
    block_numbers,
};
use russet_ir::{Number, Value};

use super::places::{each_index, place, rearranged, separable, viewed};
use super::{Operands, checked_len};
use crate::kernels::strided::{self, Axis};
use crate::{Array, ExecError, Numbers};

pub(super) fn pad(x: &Operands<'_>, op: &Pad) -> Result<Array, ExecError> {
    let (a, pads) = (x.array(op.x)?, x.extents(op.pad)?);
    let constant = match (&a.data, op.constant_val) {
        (data, None) => data.zero(),
        (Numbers::F32(_), Some(value)) => {
            let mut value = [value.to_f32()];
            x.rounding.store(&mut value);
            Numbers::F32(value.to_vec())
        }
        (Numbers::I32(_), Some(Number::Int(value))) => Numbers::I32(vec![value]),
        _ => return Err(x.fail("its constant is of another kind")),
    };
    framed(x, &a, &pads, op.mode, &constant)
}

/// `a` with padding around its last axes, two numbers for each.
fn framed(
    x: &Operands<'_>,
    a: &Array,
    pads: &[usize],
    mode: PadMode,
    constant: &Numbers,
) -> Result<Array, ExecError> {
    let first = a.shape.len().checked_sub(pads.len() / 2).filter(|_| pads.len().is_multiple_of(2));
    let first = first.ok_or_else(|| x.fail(format!("a padding of {pads:?} for {:?}", a.shape)))?;
    let mut pairs = vec![(0, 0); first];
    pairs.extend(pads.chunks(2).map(|p| (p[0], p[1])));
    let fits = |(&n, &(before, after)): (&usize, &(usize, usize))| match mode {
        PadMode::Constant => true,
        PadMode::Replicate => n > 0 || before.max(after) == 0,
        PadMode::Reflect => before.max(after) < n.max(1),
    };
    if !a.shape.iter().zip(&pairs).all(fits) {
        return Err(x.fail(format!("{:?} has too few elements to pad with {pads:?}", a.shape)));
    }
    let whole = |(&n, &(b, c)): (&usize, &(usize, usize))| n.saturating_add(b).saturating_add(c);
    let shape: Vec<usize> = a.shape.iter().zip(&pairs).map(whole).collect();
    checked_len(&shape)?;
    let chosen = a.shape.iter().zip(&pairs).map(|(&n, &(b, c))| padded(n, b, c, mode));
    let places = separable(&a.shape, &chosen.collect::<Vec<_>>());
    let data = a.data.pick_or(&places, constant);
    Ok(Array { shape, data: data.ok_or_else(|| x.fail("its constant is of another kind"))? })
}

/// For every place along an axis of `n` with padding, the place it shows.
fn padded(n: usize, before: usize, after: usize, mode: PadMode) -> Vec<Option<usize>> {
    let source = |i: usize| match (i.checked_sub(before).filter(|&i| i < n), mode) {
        (Some(i), _) => Some(i),
        (None, PadMode::Constant) => None,
        (None, PadMode::Replicate) => Some(if i < before { 0 } else { n - 1 }),
        (None, PadMode::Reflect) if i < before => Some(before - i),
        (None, PadMode::Reflect) => Some(2 * (n - 1) - (i - before)),
    };
    (0..before + n + after).map(source).collect()
}

/// `a` without its first and last elements along the last two axes.
fn cropped(x: &Operands<'_>, a: &Array, cuts: [[usize; 2]; 2]) -> Result<Array, ExecError> {
    let first = a.shape.len().checked_sub(2).ok_or_else(|| x.fail("it crops images"))?;
    let mut chosen: Vec<Vec<Option<usize>>> =
        a.shape[..first].iter().map(|&n| (0..n).map(Some).collect()).collect();
    for (&n, [before, after]) in a.shape[first..].iter().zip(cuts) {
        let end = n.checked_sub(after).filter(|&end| before <= end);
        let end = end.ok_or_else(|| x.fail(format!("{before} and {after} cut from {n}")))?;
        chosen.push((before..end).map(Some).collect());
    }
    let places: Vec<usize> = separable(&a.shape, &chosen).into_iter().flatten().collect();
    let shape = chosen.iter().map(Vec::len).collect();
    Ok(Array { shape, data: a.data.pick(&places) })
}

pub(super) fn crop(x: &Operands<'_>, op: &Crop) -> Result<Array, ExecError> {
    let pair = |cut: &[i32]| match cut {
        [a, b] => Some([usize::try_from(*a).ok()?, usize::try_from(*b).ok()?]),
        _ => None,
    };
    let cuts = pair(&op.crop_height).zip(pair(&op.crop_width));
    let (h, w) = cuts.ok_or_else(|| x.fail("two numbers are cut from each axis"))?;
    cropped(x, x.array(op.x)?.as_ref(), [h, w])
}

/// `[N, C, H, W]` and the extent of blocks.
fn image(x: &Operands<'_>, a: &Array, block: i64) -> Result<([usize; 4], usize), ExecError> {
    let b = usize::try_from(block).ok().filter(|b| (1..1 << 16).contains(b));
    let shape = <[usize; 4]>::try_from(&a.shape[..]).ok();
    shape.zip(b).ok_or_else(|| x.fail(format!("blocks of {block} in {:?}", a.shape)))
}

/// Which axis of a channel counts first: the place in its block, or what it belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ChannelOrder {
    PlaceFirst,
    ChannelFirst,
}

fn to_space(
    x: &Operands<'_>,
    a: &Array,
    block: i64,
    order: ChannelOrder,
) -> Result<Array, ExecError> {
    let ([n, c, h, w], b) = image(x, a, block)?;
    let channels = c / (b * b);
    let shape = vec![n, channels, h.saturating_mul(b), w.saturating_mul(b)];
    match order {
        ChannelOrder::PlaceFirst => {
            rearranged(x, a, &[n, b, b, channels, h, w], &[0, 3, 4, 1, 5, 2], shape)
        }
        ChannelOrder::ChannelFirst => {
            rearranged(x, a, &[n, channels, b, b, h, w], &[0, 1, 4, 2, 5, 3], shape)
        }
    }
}

fn to_channels(
    x: &Operands<'_>,
    a: &Array,
    block: i64,
    order: ChannelOrder,
) -> Result<Array, ExecError> {
    let ([n, c, h, w], b) = image(x, a, block)?;
    let split = [n, c, h / b, b, w / b, b];
    let shape = vec![n, c.saturating_mul(b * b), h / b, w / b];
    match order {
        ChannelOrder::PlaceFirst => rearranged(x, a, &split, &[0, 3, 5, 1, 2, 4], shape),
        ChannelOrder::ChannelFirst => rearranged(x, a, &split, &[0, 1, 3, 5, 2, 4], shape),
    }
}

pub(super) fn depth_to_space(x: &Operands<'_>, op: &DepthToSpace) -> Result<Array, ExecError> {
    to_space(x, x.array(op.x)?.as_ref(), op.block_size.into(), ChannelOrder::PlaceFirst)
}

pub(super) fn space_to_depth(x: &Operands<'_>, op: &SpaceToDepth) -> Result<Array, ExecError> {
    to_channels(x, x.array(op.x)?.as_ref(), op.block_size.into(), ChannelOrder::PlaceFirst)
}

pub(super) fn pixel_shuffle(x: &Operands<'_>, op: &PixelShuffle) -> Result<Array, ExecError> {
    to_space(x, x.array(op.x)?.as_ref(), op.upscale_factor.into(), ChannelOrder::ChannelFirst)
}

pub(super) fn pixel_unshuffle(x: &Operands<'_>, op: &PixelUnshuffle) -> Result<Array, ExecError> {
    let factor = x.one_int(op.downscale_factor)?;
    to_channels(x, x.array(op.x)?.as_ref(), factor, ChannelOrder::ChannelFirst)
}

/// The extents of blocks and the margins of each axis.
fn margins(
    x: &Operands<'_>,
    block_shape: &[i32],
    margins: Value,
) -> Result<([usize; 2], [[usize; 2]; 2]), ExecError> {
    let numbers = block_numbers(block_shape, &x.ints(margins)?);
    let (block, margins) = numbers.ok_or_else(|| x.fail("its blocks make no sense"))?;
    Ok((block.map(|b| b as usize), margins.map(|m| m.map(|n| n as usize))))
}

pub(super) fn space_to_batch(x: &Operands<'_>, op: &SpaceToBatch) -> Result<Array, ExecError> {
    let a = x.array(op.x)?;
    let ([bh, bw], pads) = margins(x, &op.block_shape, op.paddings)?;
    let a = framed(x, &a, &pads.concat(), PadMode::Constant, &a.data.zero())?;
    let ([n, c, h, w], _) = image(x, &a, 1)?;
    let shape = vec![n.saturating_mul(bh * bw), c, h / bh, w / bw];
    rearranged(x, &a, &[n, c, h / bh, bh, w / bw, bw], &[3, 5, 0, 1, 2, 4], shape)
}

pub(super) fn batch_to_space(x: &Operands<'_>, op: &BatchToSpace) -> Result<Array, ExecError> {
    let a = x.array(op.x)?;
    let ([bh, bw], cuts) = margins(x, &op.block_shape, op.crops)?;
    let ([n, c, h, w], _) = image(x, &a, 1)?;
    let n = n / (bh * bw);
    let shape = vec![n, c, h.saturating_mul(bh), w.saturating_mul(bw)];
    let a = rearranged(x, &a, &[bh, bw, n, c, h, w], &[2, 3, 4, 0, 5, 1], shape)?;
    cropped(x, &a, cuts)
}

pub(super) fn sliding_windows(x: &Operands<'_>, op: &SlidingWindows) -> Result<Array, ExecError> {
    let a = x.array(op.x)?;
    let axis = x.axis(op.axis, a.shape.len())?;
    let positive = |n: i32| usize::try_from(n).ok().filter(|&n| n > 0);
    let windows = positive(op.size).zip(positive(op.stride));
    let last = windows.and_then(|(size, _)| a.shape[axis].checked_sub(size));
    let (Some((size, stride)), Some(last)) = (windows, last) else {
        let why = format!("windows of {} every {} in {:?}", op.size, op.stride, a.shape);
        return Err(x.fail(why));
    };
    let mut axes = strided::axes(&a.shape);
    let step = axes[axis].stride;
    axes[axis] = Axis { len: last / stride + 1, stride: step * stride as isize };
    axes.insert(axis + 1, Axis { len: size, stride: step });
    let shape = axes.iter().map(|a| a.len).collect();
    viewed(&a, axes, shape)
}

pub(super) fn band_part(x: &Operands<'_>, op: &BandPart) -> Result<Array, ExecError> {
    let a = x.array(op.x)?;
    let [.., rows, cols] = a.shape[..] else { return Err(x.fail("it has no diagonal")) };
    let inside = |place: usize| {
        let (row, col) = ((place / cols % rows) as i64, (place % cols) as i64);
        let below = op.lower < 0 || row - col <= i64::from(op.lower);
        below && (op.upper < 0 || col - row <= i64::from(op.upper))
    };
    let places: Vec<Option<usize>> =
        (0..a.n_elements()).map(|place| inside(place).then_some(place)).collect();
    let data = a.data.pick_or(&places, &a.data.zero()).expect("a zero of the same kind");
    Ok(Array { shape: a.shape.clone(), data })
}

pub(super) fn reverse(x: &Operands<'_>, op: &Reverse) -> Result<Array, ExecError> {
    let a = x.array(op.x)?;
    let mut turned = vec![op.axes.is_none(); a.shape.len()];
    for &axis in op.axes.as_deref().unwrap_or(&[]) {
        turned[x.axis(axis, a.shape.len())?] = true;
    }
    let axis = |(&n, &turned): (&usize, &bool)| {
        (0..n).map(|i| Some(if turned { n - 1 - i } else { i })).collect()
    };
    let chosen: Vec<Vec<Option<usize>>> = a.shape.iter().zip(&turned).map(axis).collect();
    let places: Vec<usize> = separable(&a.shape, &chosen).into_iter().flatten().collect();
    Ok(Array { shape: a.shape.clone(), data: a.data.pick(&places) })
}

pub(super) fn reverse_sequence(x: &Operands<'_>, op: &ReverseSequence) -> Result<Array, ExecError> {
    let (a, lengths) = (x.array(op.x)?, x.extents(op.lengths)?);
    let rank = a.shape.len();
    let (seq, batch) = (x.axis(op.seq_axis, rank)?, x.axis(op.batch_axis, rank)?);
    if lengths.len() != a.shape[batch] || lengths.iter().any(|&n| n > a.shape[seq]) {
        return Err(x.fail(format!("lengths {lengths:?} of {:?}", a.shape)));
    }
    let strides = strided::strides(&a.shape);
    let mut places = Vec::with_capacity(a.n_elements());
    each_index(&a.shape, |index| {
        let (at, n) = (index[seq], lengths[index[batch]]);
        let from = if at < n { n - 1 - at } else { at };
        places.push(place(index, &strides) - at * strides[seq] + from * strides[seq]);
    });
    Ok(Array { shape: a.shape.clone(), data: a.data.pick(&places) })
}

pub(super) fn non_zero(x: &Operands<'_>, op: &NonZero) -> Result<Array, ExecError> {
    let a = x.array(op.x)?;
    let set: Vec<bool> = match &a.data {
        Numbers::F32(v) => v.iter().map(|&f| f != 0.0).collect(),
        Numbers::I32(v) => v.iter().map(|&i| i != 0).collect(),
        Numbers::Bool(v) => v.clone(),
    };
    let n = set.iter().filter(|&&b| b).count();
    let shape = vec![n, a.shape.len()];
    let mut out = Vec::with_capacity(checked_len(&shape)?);
    let mut set = set.into_iter();
    each_index(&a.shape, |index| {
        if set.next() == Some(true) {
            out.extend(index.iter().map(|&i| i as i32));
        }
    });
    Ok(Array::i32(shape, out))
}
