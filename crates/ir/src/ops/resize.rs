//! Images of another size: upsampling, resizing, crops, resampling.

use crate::dims::named;
use crate::infer::{Outputs, TypeError, Types};
use crate::{Dim, Number, OpDef, Symbol, TensorType, Value, Work, op, string_param};

string_param! {
    /// Where on the input axis the points of the output axis lie.
    ///
    /// With `X` input and `Y` output points, point `i` lies at: `i * (X-1)/(Y-1)` when the corners
    /// are aligned (strictly: at 0 for `Y` = 1, else in the middle), at `i * (X - X/Y)/(Y-1)` by
    /// default, at `(i + 0.5) * max(1, X-1)/Y` with offset corners, and at `(i + 0.5) * X/Y - 0.5`
    /// with unaligned ones, each kept inside. (Core ML's documentation of `resize_bilinear`.)
    SamplingMode {
        Default = "DEFAULT",
        StrictAlignCorners = "STRICT_ALIGN_CORNERS",
        AlignCorners = "ALIGN_CORNERS",
        OffsetCorners = "OFFSET_CORNERS",
        UnalignCorners = "UNALIGN_CORNERS",
    }
}
string_param! {
    /// How a value between points is made.
    Interpolation { Linear = "LINEAR", NearestNeighbor = "NEAREST_NEIGHBOR" }
}
string_param! {
    /// What the four numbers of a box are.
    BoxMode {
        CornersHeightFirst = "CORNERS_HEIGHT_FIRST",
        CornersWidthFirst = "CORNERS_WIDTH_FIRST",
        CenterSizeHeightFirst = "CENTER_SIZE_HEIGHT_FIRST",
        CenterSizeWidthFirst = "CENTER_SIZE_WIDTH_FIRST",
    }
}
string_param! {
    /// How `resample` and `affine` make a value between pixels.
    Sampling { Bilinear = "bilinear", Nearest = "nearest" }
}
string_param! {
    /// What lies outside of an image: a value, its border, itself mirrored without or with it.
    Outside {
        Constant = "constant", Border = "border", Reflection = "reflection", Symmetric = "symmetric"
    }
}
string_param! {
    /// The scale of coordinates.
    Coordinates {
        Unnormalized = "unnormalized",
        MinusOneToOne = "normalized_minus_one_to_one",
        ZeroToOne = "normalized_zero_to_one",
    }
}

/// The extent of an axis of `n` scaled by `factor`; `None` when it is no extent.
pub fn scaled_extent(factor: Number, n: u64) -> Option<u64> {
    let scaled = match factor {
        Number::Int(k) => f64::from(k) * n as f64,
        // In double, as converters compute it: 4/3 * 3 stays 4 only so.
        Number::Float(k) => (f64::from(k) * n as f64).floor(),
    };
    (1.0..1e9).contains(&scaled).then_some(scaled as u64)
}

op! {
    /// The last two axes of `x` made larger by repeating.
    "upsample_nearest_neighbor" since Ios15 => UpsampleNearestNeighbor {
        x: Value;
        scale_factor_height: Number = Number::Int(1);
        scale_factor_width: Number = Number::Int(1);
    }
}
op! {
    /// The last two axes of `x` made larger, values between pixels on a straight line.
    "upsample_bilinear" since Ios15 => UpsampleBilinear {
        x: Value;
        scale_factor_height: Number = Number::Int(1);
        scale_factor_width: Number = Number::Int(1);
        align_corners: bool = true;
        half_pixel_centers: Option<bool>, since Ios16;
    }
}
op! {
    /// The last two axes of `x` brought to these extents by taking the nearest pixel.
    "resize_nearest_neighbor" since Ios15 => ResizeNearestNeighbor {
        x: Value; target_size_height: i32; target_size_width: i32
    }
}
op! {
    /// The last two axes of `x` brought to these extents, values between pixels on a straight line.
    "resize_bilinear" since Ios15 => ResizeBilinear {
        x: Value;
        target_size_height: i32 = 1;
        target_size_width: i32 = 1;
        sampling_mode: SamplingMode = SamplingMode::Default;
    }
}
op! {
    /// The last `resized_dims` axes of `x` brought to the last extents of `shape`; a 0 there keeps
    /// the extent of `x`.
    "resize" since Ios17 => Resize {
        x: Value;
        shape: Value;
        resized_dims: i32;
        interpolation_mode: Interpolation = Interpolation::Linear;
        sampling_mode: SamplingMode = SamplingMode::Default;
    }
}
op! {
    /// The boxes `roi` `[N, 1, 4 or 5, 1, 1]` cut out of `x` `[B, C, H, W]` and resized: every box
    /// of every image, or, with five numbers, of the image the first one tells. Returns
    /// `[N, B or 1, C, target_height, target_width]`.
    "crop_resize" since Ios15 until Ios17 => CropResizeRoi {
        x: Value;
        roi: Value;
        target_height: i32 = 1;
        target_width: i32 = 1;
        normalized_coordinates: bool = false;
        spatial_scale: f32 = 1.0;
        box_coordinate_mode: BoxMode = BoxMode::CornersHeightFirst;
        sampling_mode: SamplingMode = SamplingMode::Default;
        pad_value: f32 = 0.0, since Ios16;
    }
}
op! {
    /// The `boxes` `[N, 4]` cut out of the images `box_indices` `[N]` of `x` `[B, C, H, W]` and
    /// resized to `[N, C, target_height, target_width]`.
    "crop_resize" since Ios17 => CropResize {
        x: Value;
        boxes: Value;
        box_indices: Option<Value>;
        target_height: i32 = 1;
        target_width: i32 = 1;
        normalized_coordinates: bool = false;
        spatial_scale: f32 = 1.0;
        box_coordinate_mode: BoxMode = BoxMode::CornersHeightFirst;
        sampling_mode: SamplingMode = SamplingMode::Default;
        pad_value: f32 = 0.0;
    }
}
op! {
    /// `x` `[B, C, H, W]` at `coordinates` `[B, H2, W2, 2]`, each `(x, y)`.
    "resample" since Ios15 => Resample {
        x: Value;
        coordinates: Value;
        sampling_mode: Sampling;
        padding_mode: Outside;
        padding_value: f32;
        coordinates_mode: Coordinates;
        align_corners: bool;
    }
}
op! {
    /// `x` `[B, C, H, W]` seen through the matrix `transform_matrix` `[B or 1, 6]`: the output at
    /// `(x, y)` is the input at `(a0 x + a1 y + a2, b0 x + b1 y + b2)`.
    "affine" since Ios15 => Affine {
        x: Value;
        transform_matrix: Value;
        output_height: i32;
        output_width: i32;
        sampling_mode: Sampling;
        padding_mode: Outside;
        padding_value: f32;
        coordinates_mode: Coordinates;
        align_corners: bool;
    }
}

/// `x`, of at least three axes, with two other last extents.
fn image(types: &Types<'_>, x: Value, height: Dim, width: Dim) -> Result<Outputs, TypeError> {
    let t = types.float(x)?;
    if t.rank() < 3 {
        return Err(TypeError::Rank { at: x, found: t.rank(), expected: "at least 3" });
    }
    let mut out = t.clone();
    let rank = out.rank();
    (out.shape[rank - 2], out.shape[rank - 1]) = (height, width);
    Ok(out.into())
}

fn target(n: i32) -> Result<Dim, TypeError> {
    match u64::try_from(n) {
        Ok(n) if n > 0 => Ok(Dim::Fixed(n)),
        _ => Err(TypeError::param(format!("a target size of {n}"))),
    }
}

fn upsampled(
    types: &Types<'_>,
    x: Value,
    height: Number,
    width: Number,
) -> Result<Outputs, TypeError> {
    let t = types.float(x)?;
    if t.rank() < 3 {
        return Err(TypeError::Rank { at: x, found: t.rank(), expected: "at least 3" });
    }
    let scaled = |d: &Dim, scale: Number| match d {
        Dim::Fixed(n) => scaled_extent(scale, *n).map(Dim::Fixed).ok_or_else(|| {
            TypeError::param(format!("an extent of {n} scaled by {}", scale.to_f32()))
        }),
        Dim::Symbol(s) => {
            Ok(Dim::Symbol(Symbol::new(&format!("{s}.times{}", scale.to_f32()).replace('-', "m"))))
        }
    };
    let (h, w) = (&t.shape[t.rank() - 2], &t.shape[t.rank() - 1]);
    image(types, x, scaled(h, height)?, scaled(w, width)?)
}

fn work_per_output(op: &impl OpDef, types: &Types<'_>, flops: u64) -> Work {
    let n = op.infer(types).ok().and_then(|o| o.0[0].0.tensor()?.n_elements());
    Work { flops: n.unwrap_or(0).saturating_mul(flops), ..Work::default() }
}

impl OpDef for UpsampleNearestNeighbor {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        upsampled(types, self.x, self.scale_factor_height, self.scale_factor_width)
    }
}

impl OpDef for UpsampleBilinear {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        upsampled(types, self.x, self.scale_factor_height, self.scale_factor_width)
    }

    fn work(&self, types: &Types<'_>) -> Work {
        work_per_output(self, types, 6)
    }
}

impl OpDef for ResizeNearestNeighbor {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let (h, w) = (target(self.target_size_height)?, target(self.target_size_width)?);
        image(types, self.x, h, w)
    }
}

impl OpDef for ResizeBilinear {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let (h, w) = (target(self.target_size_height)?, target(self.target_size_width)?);
        image(types, self.x, h, w)
    }

    fn work(&self, types: &Types<'_>) -> Work {
        work_per_output(self, types, 6)
    }
}

impl OpDef for Resize {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let x = types.number(self.x)?;
        let shape = types.int(self.shape)?;
        let resized = usize::try_from(self.resized_dims).ok();
        let stated = match &shape.shape[..] {
            [n] => n.fixed(),
            _ => {
                return Err(TypeError::Rank { at: self.shape, found: shape.rank(), expected: "1" });
            }
        };
        let fits = |r: &usize| *r <= x.rank() && stated.is_none_or(|n| *r as u64 <= n);
        let resized = resized.filter(fits);
        let resized = resized.ok_or_else(|| {
            TypeError::param(format!("resized_dims {} of rank {}", self.resized_dims, x.rank()))
        })?;
        let dims = types.dims(self.shape);
        let mut out = x.clone();
        for i in 0..resized {
            let at = x.rank() - resized + i;
            let given = dims.as_ref().map(|d| d[d.len() - resized + i].clone());
            out.shape[at] = match given {
                Some(Dim::Fixed(0)) => continue,
                Some(Dim::Fixed(n)) if n > i32::MAX as u64 => {
                    return Err(TypeError::param("a negative extent"));
                }
                Some(d) => d,
                None => named(&format!("{}.size.{i}", types.name(self.shape))),
            };
        }
        Ok(out.into())
    }

    fn work(&self, types: &Types<'_>) -> Work {
        work_per_output(self, types, 6)
    }
}

fn rank_4(types: &Types<'_>, at: Value) -> Result<TensorType, TypeError> {
    let t = types.float(at)?;
    match t.rank() {
        4 => Ok(t.clone()),
        found => Err(TypeError::Rank { at, found, expected: "4" }),
    }
}

fn require(types: &Types<'_>, at: Value, axis: usize, allowed: &[u64]) -> Result<(), TypeError> {
    let found = types.tensor(at)?.shape[axis].clone();
    if found.fixed().is_some_and(|n| !allowed.contains(&n)) {
        return Err(TypeError::Extent { at, axis, found, expected: Dim::Fixed(allowed[0]) });
    }
    Ok(())
}

impl OpDef for CropResizeRoi {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let x = rank_4(types, self.x)?;
        let roi = types.float(self.roi)?;
        if roi.rank() != 5 {
            return Err(TypeError::Rank { at: self.roi, found: roi.rank(), expected: "5" });
        }
        require(types, self.roi, 2, &[4, 5])?;
        [1, 3, 4].iter().try_for_each(|&axis| require(types, self.roi, axis, &[1]))?;
        // With an index a box is cut out of one image.
        let images = if roi.shape[2] == Dim::Fixed(5) { Dim::Fixed(1) } else { x.shape[0].clone() };
        let (h, w) = (target(self.target_height)?, target(self.target_width)?);
        let shape = vec![roi.shape[0].clone(), images, x.shape[1].clone(), h, w];
        Ok(TensorType { dtype: x.dtype, shape }.into())
    }

    fn work(&self, types: &Types<'_>) -> Work {
        work_per_output(self, types, 6)
    }
}

impl OpDef for CropResize {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let x = rank_4(types, self.x)?;
        let boxes = types.element(self.boxes)?;
        if boxes.rank() != 2 {
            return Err(TypeError::Rank { at: self.boxes, found: boxes.rank(), expected: "2" });
        }
        require(types, self.boxes, 1, &[4])?;
        if let Some(at) = self.box_indices {
            let indices = types.int(at)?;
            if indices.rank() != 1 {
                return Err(TypeError::Rank { at, found: indices.rank(), expected: "1" });
            }
        }
        let (h, w) = (target(self.target_height)?, target(self.target_width)?);
        let shape = vec![boxes.shape[0].clone(), x.shape[1].clone(), h, w];
        Ok(TensorType { dtype: x.dtype, shape }.into())
    }

    fn work(&self, types: &Types<'_>) -> Work {
        work_per_output(self, types, 6)
    }
}

impl OpDef for Resample {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let x = rank_4(types, self.x)?;
        let at = types.element(self.coordinates)?;
        if at.rank() != 4 {
            return Err(TypeError::Rank { at: self.coordinates, found: at.rank(), expected: "4" });
        }
        require(types, self.coordinates, 3, &[2])?;
        if let Some(n) = x.shape[0].fixed() {
            require(types, self.coordinates, 0, &[n])?;
        }
        let [_, h, w, _] = &at.shape[..] else { unreachable!("rank 4") };
        let shape = vec![x.shape[0].clone(), x.shape[1].clone(), h.clone(), w.clone()];
        Ok(TensorType { dtype: x.dtype, shape }.into())
    }

    fn work(&self, types: &Types<'_>) -> Work {
        work_per_output(self, types, 8)
    }
}

impl OpDef for Affine {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let x = rank_4(types, self.x)?;
        let matrix = types.float(self.transform_matrix)?;
        if matrix.rank() != 2 {
            let (at, found) = (self.transform_matrix, matrix.rank());
            return Err(TypeError::Rank { at, found, expected: "2" });
        }
        require(types, self.transform_matrix, 1, &[6])?;
        if let Some(n) = x.shape[0].fixed() {
            require(types, self.transform_matrix, 0, &[n, 1])?;
        }
        let (h, w) = (target(self.output_height)?, target(self.output_width)?);
        let shape = vec![x.shape[0].clone(), x.shape[1].clone(), h, w];
        Ok(TensorType { dtype: x.dtype, shape }.into())
    }

    fn work(&self, types: &Types<'_>) -> Work {
        work_per_output(self, types, 10)
    }
}
