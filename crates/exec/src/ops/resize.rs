//! Images of another size: where each output point lies on the input, and what is there.

use russet_ir::Value;
use russet_ir::ops::{
    Affine, BoxMode, Coordinates, CropResize, CropResizeRoi, Interpolation, Outside, Resample,
    Resize, ResizeBilinear, ResizeNearestNeighbor, Sampling, SamplingMode, UpsampleBilinear,
    UpsampleNearestNeighbor, scaled_extent,
};

use super::{Operands, checked_len};
use crate::{Array, ExecError, Numbers};

/// Two points of an axis and how much of the second.
#[derive(Clone, Copy)]
struct Tap {
    low: usize,
    high: usize,
    part: f32,
}

/// Point `i` of `out` points spread over an axis of `n` (see [`SamplingMode`]), not yet kept
/// inside. `n` is a number of points that need not be whole.
fn point(mode: SamplingMode, n: f32, out: usize, i: usize) -> f32 {
    let (i, y) = (i as f32, out as f32);
    let steps = (y - 1.0).max(1.0);
    match mode {
        SamplingMode::AlignCorners if out == 1 => (n - 1.0) / 2.0,
        SamplingMode::StrictAlignCorners | SamplingMode::AlignCorners => i * ((n - 1.0) / steps),
        SamplingMode::Default if out == 1 => 0.0,
        SamplingMode::Default => i * ((n - n / y) / steps),
        SamplingMode::OffsetCorners => (i + 0.5) * ((n - 1.0).max(1.0) / y),
        SamplingMode::UnalignCorners => i * (n / y) + 0.5 * (n / y) - 0.5,
    }
}

/// The taps of a point kept inside an axis of `n`.
fn tap(at: f32, n: usize) -> Tap {
    let at = at.clamp(0.0, (n - 1) as f32);
    let low = at as usize;
    Tap { low, high: (low + 1).min(n - 1), part: at - low as f32 }
}

fn taps(mode: SamplingMode, n: usize, out: usize) -> Vec<Tap> {
    (0..out).map(|i| tap(point(mode, n as f32, out, i), n)).collect()
}

/// A single point, nothing between.
fn whole(i: usize) -> Tap {
    Tap { low: i, high: i, part: 0.0 }
}

/// The mix of two numbers; where there is only one, that one, whatever the other (NaN) is.
fn mix(low: f32, high: f32, part: f32) -> f32 {
    if part == 0.0 { low } else { low + (high - low) * part }
}

/// The last axes of `x` at these taps, one axis after the other.
fn resample_axes(
    x: &Operands<'_>,
    a: &Array,
    axes: &[(usize, Vec<Tap>)],
) -> Result<Array, ExecError> {
    let (mut shape, mut data) = (a.shape.clone(), x.floats(a)?.to_vec());
    for (axis, taps) in axes {
        let inner: usize = shape[axis + 1..].iter().product();
        let n = shape[*axis];
        shape[*axis] = taps.len();
        let mut out = Vec::with_capacity(checked_len(&shape)?);
        for block in data.chunks_exact((n * inner).max(1)) {
            for t in taps {
                let (low, high) = (&block[t.low * inner..][..inner], &block[t.high * inner..]);
                out.extend(low.iter().zip(high).map(|(&l, &h)| mix(l, h, t.part)));
            }
        }
        data = out;
    }
    Ok(x.stored(shape, data))
}

/// The last two axes, each with what makes its taps.
fn image(
    x: &Operands<'_>,
    v: Value,
    size: impl Fn(usize, usize) -> Option<usize>,
    taps: impl Fn(usize, usize, usize) -> Vec<Tap>,
) -> Result<Array, ExecError> {
    let a = x.array(v)?;
    let rank = a.shape.len();
    if rank < 2 || a.shape[rank - 2..].contains(&0) {
        return Err(x.fail(format!("{:?} is no image", a.shape)));
    }
    let mut axes = Vec::new();
    for i in 0..2 {
        let n = a.shape[rank - 2 + i];
        let out = size(i, n).filter(|&n| n > 0);
        let out = out.ok_or_else(|| x.fail(format!("{:?} cannot be brought there", a.shape)))?;
        checked_len(&[out])?;
        axes.push((rank - 2 + i, taps(i, n, out)));
    }
    resample_axes(x, &a, &axes)
}

fn extent(n: i32) -> Option<usize> {
    usize::try_from(n).ok()
}

pub(super) fn upsample_nearest(
    x: &Operands<'_>,
    op: &UpsampleNearestNeighbor,
) -> Result<Array, ExecError> {
    let scales = [op.scale_factor_height, op.scale_factor_width];
    let size = |i: usize, n: usize| Some(scaled_extent(scales[i], n as u64)? as usize);
    image(x, op.x, size, |i, n, out| {
        let at = |k: usize| ((k as f32 / scales[i].to_f32()) as usize).min(n - 1);
        (0..out).map(|k| whole(at(k))).collect()
    })
}

pub(super) fn upsample_bilinear(
    x: &Operands<'_>,
    op: &UpsampleBilinear,
) -> Result<Array, ExecError> {
    let scales = [op.scale_factor_height, op.scale_factor_width];
    let size = |i: usize, n: usize| Some(scaled_extent(scales[i], n as u64)? as usize);
    let mode = match (op.align_corners, op.half_pixel_centers.unwrap_or(!op.align_corners)) {
        (true, _) => SamplingMode::StrictAlignCorners,
        (false, true) => SamplingMode::UnalignCorners,
        (false, false) => SamplingMode::Default,
    };
    image(x, op.x, size, |_, n, out| match mode {
        // Without either, point `i` lies at `i * X / Y`.
        SamplingMode::Default => {
            (0..out).map(|i| tap(i as f32 * (n as f32 / out as f32), n)).collect()
        }
        mode => taps(mode, n, out),
    })
}

pub(super) fn resize_nearest(
    x: &Operands<'_>,
    op: &ResizeNearestNeighbor,
) -> Result<Array, ExecError> {
    let size = |i: usize, _| extent([op.target_size_height, op.target_size_width][i]);
    image(x, op.x, size, |_, n, out| (0..out).map(|i| whole(((i * n) / out).min(n - 1))).collect())
}

pub(super) fn resize_bilinear(x: &Operands<'_>, op: &ResizeBilinear) -> Result<Array, ExecError> {
    let size = |i: usize, _| extent([op.target_size_height, op.target_size_width][i]);
    image(x, op.x, size, |_, n, out| taps(op.sampling_mode, n, out))
}

pub(super) fn resize(x: &Operands<'_>, op: &Resize) -> Result<Array, ExecError> {
    let (a, shape) = (x.array(op.x)?, x.ints(op.shape)?);
    let resized = usize::try_from(op.resized_dims).ok();
    let resized = resized.filter(|&r| r <= a.shape.len() && r <= shape.len());
    let resized = resized.ok_or_else(|| x.fail(format!("{} resized dims", op.resized_dims)))?;
    let first = a.shape.len() - resized;
    let mut axes = Vec::new();
    for (axis, &wanted) in (first..).zip(&shape[shape.len() - resized..]) {
        let n = a.shape[axis];
        let out = if wanted == 0 { Some(n) } else { usize::try_from(wanted).ok() };
        let out = out.filter(|_| n > 0).ok_or_else(|| x.fail(format!("an extent of {wanted}")))?;
        checked_len(&[out])?;
        axes.push((
            axis,
            match op.interpolation_mode {
                Interpolation::Linear => taps(op.sampling_mode, n, out),
                Interpolation::NearestNeighbor => (0..out)
                    .map(|i| {
                        let at = point(op.sampling_mode, n as f32, out, i);
                        whole(nearest(op.sampling_mode, at).clamp(0.0, (n - 1) as f32) as usize)
                    })
                    .collect(),
            },
        ));
    }
    match &a.data {
        Numbers::I32(ints) => {
            let floats = Array::f32(a.shape.clone(), ints.iter().map(|&i| i as f32).collect());
            let made = resample_axes(x, &floats, &axes)?;
            let rounded = made.as_f32().unwrap_or_default().iter().map(|&v| v as i32).collect();
            Ok(Array::i32(made.shape, rounded))
        }
        _ => resample_axes(x, &a, &axes),
    }
}

/// The point a place between points belongs to: the one before it where points stand for what
/// follows them, else the nearer one.
fn nearest(mode: SamplingMode, at: f32) -> f32 {
    match mode {
        SamplingMode::Default => at.floor(),
        _ => (at + 0.5).floor(),
    }
}

/// The top, left, bottom and right of a box.
fn corners(mode: BoxMode, b: &[f32]) -> [f32; 4] {
    let centered = |y: f32, x: f32, h: f32, w: f32| {
        let (dy, dx) = ((h - 1.0) / 2.0, (w - 1.0) / 2.0);
        [y - dy, x - dx, y + dy, x + dx]
    };
    match mode {
        BoxMode::CornersHeightFirst => [b[0], b[1], b[2], b[3]],
        BoxMode::CornersWidthFirst => [b[1], b[0], b[3], b[2]],
        BoxMode::CenterSizeHeightFirst => centered(b[0], b[1], b[2], b[3]),
        BoxMode::CenterSizeWidthFirst => centered(b[1], b[0], b[3], b[2]),
    }
}

/// How boxes are cut out.
struct Crop {
    out: [usize; 2],
    normalized: bool,
    spatial_scale: f32,
    boxes: BoxMode,
    sampling: SamplingMode,
    pad_value: f32,
}

impl Crop {
    fn extents(x: &Operands<'_>, height: i32, width: i32) -> Result<[usize; 2], ExecError> {
        let size = extent(height).zip(extent(width)).filter(|&(h, w)| h > 0 && w > 0);
        let (h, w) = size.ok_or_else(|| x.fail(format!("a crop of {height} x {width}")))?;
        checked_len(&[h, w])?;
        Ok([h, w])
    }

    /// Cuts one box out of every channel of `image` `[C, H, W]`.
    fn cut(&self, image: &[f32], [h, w]: [usize; 2], given: &[f32], out: &mut Vec<f32>) {
        let mut corners = corners(self.boxes, given).map(|c| c * self.spatial_scale);
        if self.normalized {
            let last = [h as f32 - 1.0, w as f32 - 1.0];
            corners = std::array::from_fn(|i| corners[i] * last[i % 2]);
        }
        let points = |axis: usize, n: usize| -> Vec<Option<Tap>> {
            let (start, end) = (corners[axis], corners[axis + 2]);
            let inside = |i: usize| {
                let at = start + point(self.sampling, end - start + 1.0, self.out[axis], i);
                (at >= 0.0 && at <= (n - 1) as f32).then(|| tap(at, n))
            };
            (0..self.out[axis]).map(inside).collect()
        };
        let (rows, cols) = (points(0, h), points(1, w));
        for plane in image.chunks_exact(h * w) {
            for row in &rows {
                out.extend(cols.iter().map(|col| match (row, col) {
                    (Some(r), Some(c)) => {
                        let along =
                            |y: usize| mix(plane[y * w + c.low], plane[y * w + c.high], c.part);
                        mix(along(r.low), along(r.high), r.part)
                    }
                    _ => self.pad_value,
                }));
            }
        }
    }
}

/// The images of `[B, C, H, W]`: their number, channels and extents.
fn images(x: &Operands<'_>, a: &Array) -> Result<(usize, usize, [usize; 2]), ExecError> {
    match a.shape[..] {
        [b, c, h, w] if h > 0 && w > 0 => Ok((b, c, [h, w])),
        _ => Err(x.fail(format!("{:?} are no images", a.shape))),
    }
}

pub(super) fn crop_resize_roi(x: &Operands<'_>, op: &CropResizeRoi) -> Result<Array, ExecError> {
    let (a, roi) = (x.array(op.x)?, x.array(op.roi)?);
    let (n_images, c, extents) = images(x, &a)?;
    let (n, numbers) = match roi.shape[..] {
        [n, 1, k @ (4 | 5), 1, 1] => (n, k),
        _ => return Err(x.fail(format!("boxes of {:?}", roi.shape))),
    };
    let crop = Crop {
        out: Crop::extents(x, op.target_height, op.target_width)?,
        normalized: op.normalized_coordinates,
        spatial_scale: op.spatial_scale,
        boxes: op.box_coordinate_mode,
        sampling: op.sampling_mode,
        pad_value: op.pad_value,
    };
    let per_box = if numbers == 5 { 1 } else { n_images };
    let shape = vec![n, per_box, c, crop.out[0], crop.out[1]];
    let mut out = Vec::with_capacity(checked_len(&shape)?);
    let size = c * extents[0] * extents[1];
    let data = x.floats(&a)?;
    for given in x.floats(&roi)?.chunks_exact(numbers) {
        let (chosen, given) = match numbers {
            5 => (index(x, given[0], n_images)?..index(x, given[0], n_images)? + 1, &given[1..]),
            _ => (0..n_images, given),
        };
        chosen.for_each(|i| crop.cut(&data[i * size..][..size], extents, given, &mut out));
    }
    Ok(x.stored(shape, out))
}

fn index(x: &Operands<'_>, i: f32, n: usize) -> Result<usize, ExecError> {
    let inside = i >= 0.0 && (i as usize) < n;
    inside.then_some(i as usize).ok_or_else(|| x.fail(format!("image {i} of {n}")))
}

pub(super) fn crop_resize(x: &Operands<'_>, op: &CropResize) -> Result<Array, ExecError> {
    let (a, boxes) = (x.array(op.x)?, x.array(op.boxes)?);
    let (n_images, c, extents) = images(x, &a)?;
    let [n, 4] = boxes.shape[..] else { return Err(x.fail(format!("boxes of {:?}", boxes.shape))) };
    let given: Vec<f32> = match &boxes.data {
        Numbers::F32(f) => f.clone(),
        Numbers::I32(i) => i.iter().map(|&i| i as f32).collect(),
        Numbers::Bool(_) => return Err(x.fail("its boxes are no numbers")),
    };
    let which: Vec<i64> = match op.box_indices {
        Some(v) => x.ints(v)?,
        None => (0..n as i64).collect(),
    };
    if which.len() != n {
        return Err(x.fail(format!("{} indices for {n} boxes", which.len())));
    }
    let crop = Crop {
        out: Crop::extents(x, op.target_height, op.target_width)?,
        normalized: op.normalized_coordinates,
        spatial_scale: op.spatial_scale,
        boxes: op.box_coordinate_mode,
        sampling: op.sampling_mode,
        pad_value: op.pad_value,
    };
    let shape = vec![n, c, crop.out[0], crop.out[1]];
    let mut out = Vec::with_capacity(checked_len(&shape)?);
    let size = c * extents[0] * extents[1];
    let data = x.floats(&a)?;
    for (&i, given) in which.iter().zip(given.chunks_exact(4)) {
        let i = index(x, i as f32, n_images)?;
        crop.cut(&data[i * size..][..size], extents, given, &mut out);
    }
    Ok(x.stored(shape, out))
}

/// How images are read at any point.
struct Sampler {
    sampling: Sampling,
    outside: Outside,
    padding_value: f32,
    coordinates: Coordinates,
    align_corners: bool,
}

impl Sampler {
    /// A coordinate in points of an axis of `n`.
    fn place(&self, at: f32, n: usize) -> f32 {
        let n = n as f32;
        match (self.coordinates, self.align_corners) {
            (Coordinates::Unnormalized, _) => at,
            (Coordinates::MinusOneToOne, true) => (at + 1.0) / 2.0 * (n - 1.0),
            (Coordinates::MinusOneToOne, false) => ((at + 1.0) * n - 1.0) / 2.0,
            (Coordinates::ZeroToOne, true) => at * (n - 1.0),
            (Coordinates::ZeroToOne, false) => at * n - 0.5,
        }
    }

    /// The point that stands at place `i` of an axis of `n` and what surrounds it; `None` for the
    /// padding value.
    fn index(&self, i: i64, n: usize) -> Option<usize> {
        let n = n as i64;
        let inside = match self.outside {
            Outside::Constant => return (0..n).contains(&i).then_some(i as usize),
            Outside::Border => i.clamp(0, n - 1),
            Outside::Reflection if n == 1 => 0,
            Outside::Reflection => {
                let i = i.rem_euclid(2 * (n - 1));
                if i < n { i } else { 2 * (n - 1) - i }
            }
            Outside::Symmetric => {
                let i = i.rem_euclid(2 * n);
                if i < n { i } else { 2 * n - 1 - i }
            }
        };
        Some(inside as usize)
    }

    /// The value of a plane at a place.
    fn at(&self, plane: &[f32], [h, w]: [usize; 2], y: f32, x: f32) -> f32 {
        // Far away everything is padding; beyond i64 a cast would stop at its ends.
        let (y, x) = (y.clamp(-1e9, 1e9), x.clamp(-1e9, 1e9));
        let pixel = |i: i64, j: i64| match (self.index(i, h), self.index(j, w)) {
            (Some(i), Some(j)) => plane[i * w + j],
            _ => self.padding_value,
        };
        match self.sampling {
            Sampling::Nearest => pixel(y.round_ties_even() as i64, x.round_ties_even() as i64),
            Sampling::Bilinear => {
                let (i, j) = (y.floor(), x.floor());
                let (dy, dx) = (y - i, x - j);
                let (i, j) = (i as i64, j as i64);
                let row = |i: i64| {
                    let low = pixel(i, j);
                    if dx == 0.0 { low } else { mix(low, pixel(i, j + 1), dx) }
                };
                let low = row(i);
                if dy == 0.0 { low } else { mix(low, row(i + 1), dy) }
            }
        }
    }
}

/// Every channel of every image at the places `place` gives for each output pixel.
fn sample(
    x: &Operands<'_>,
    a: &Array,
    sampler: &Sampler,
    [out_h, out_w]: [usize; 2],
    place: impl Fn(usize, usize, usize) -> (f32, f32),
) -> Result<Array, ExecError> {
    let (b, c, [h, w]) = images(x, a)?;
    let shape = vec![b, c, out_h, out_w];
    let mut out = Vec::with_capacity(checked_len(&shape)?);
    for (i, plane) in x.floats(a)?.chunks_exact(h * w).enumerate() {
        for row in 0..out_h {
            for col in 0..out_w {
                let (px, py) = place(i / c, row, col);
                let (px, py) = (sampler.place(px, w), sampler.place(py, h));
                out.push(sampler.at(plane, [h, w], py, px));
            }
        }
    }
    Ok(x.stored(shape, out))
}

pub(super) fn resample(x: &Operands<'_>, op: &Resample) -> Result<Array, ExecError> {
    let (a, at) = (x.array(op.x)?, x.array(op.coordinates)?);
    let [b, h, w, 2] = at.shape[..] else {
        return Err(x.fail(format!("coordinates of {:?}", at.shape)));
    };
    if a.shape.first() != Some(&b) {
        return Err(x.fail(format!("{:?} at coordinates of {:?}", a.shape, at.shape)));
    }
    let given: Vec<f32> = match &at.data {
        Numbers::F32(f) => f.clone(),
        Numbers::I32(i) => i.iter().map(|&i| i as f32).collect(),
        Numbers::Bool(_) => return Err(x.fail("its coordinates are no numbers")),
    };
    let sampler = Sampler {
        sampling: op.sampling_mode,
        outside: op.padding_mode,
        padding_value: op.padding_value,
        coordinates: op.coordinates_mode,
        align_corners: op.align_corners,
    };
    sample(x, &a, &sampler, [h, w], |i, row, col| {
        let at = ((i * h + row) * w + col) * 2;
        (given[at], given[at + 1])
    })
}

pub(super) fn affine(x: &Operands<'_>, op: &Affine) -> Result<Array, ExecError> {
    let (a, matrix) = (x.array(op.x)?, x.array(op.transform_matrix)?);
    let out = Crop::extents(x, op.output_height, op.output_width)?;
    let n = match matrix.shape[..] {
        [n, 6] if n == 1 || a.shape.first() == Some(&n) => n,
        _ => return Err(x.fail(format!("{:?} through {:?}", a.shape, matrix.shape))),
    };
    let matrix = x.floats(&matrix)?;
    let sampler = Sampler {
        sampling: op.sampling_mode,
        outside: op.padding_mode,
        padding_value: op.padding_value,
        coordinates: op.coordinates_mode,
        align_corners: op.align_corners,
    };
    // Output pixels have coordinates of the same kind as input pixels.
    let own = |i: usize, n: usize| {
        let (i, n) = (i as f32, n as f32);
        match (op.coordinates_mode, op.align_corners) {
            (Coordinates::Unnormalized, _) => i,
            (Coordinates::MinusOneToOne, true) => 2.0 * i / (n - 1.0).max(1.0) - 1.0,
            (Coordinates::MinusOneToOne, false) => (2.0 * i + 1.0) / n - 1.0,
            (Coordinates::ZeroToOne, true) => i / (n - 1.0).max(1.0),
            (Coordinates::ZeroToOne, false) => (i + 0.5) / n,
        }
    };
    sample(x, &a, &sampler, out, |i, row, col| {
        let m = &matrix[if n == 1 { 0 } else { i } * 6..][..6];
        let (px, py) = (own(col, out[1]), own(row, out[0]));
        (m[0] * px + m[1] * py + m[2], m[3] * px + m[4] * py + m[5])
    })
}
