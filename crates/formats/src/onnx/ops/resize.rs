//! Other extents, and values between places: resizing, grids.
//!
//! Every resize is, axis by axis, a product with a matrix that is known before running (or, for the
//! nearest place, a `gather`); where an op of MIL for images computes the same, that is used.

use russet_ir::ops::*;
use russet_ir::{DType, Dim, Number, Opset, Tensor, Value};

use super::super::cx::{Cx, Import, Outs, Part};
use super::super::importer::{Out, Why};
use super::movement::take;

pub fn find(op: &str) -> Option<Import> {
    Some(match op {
        "Resize" | "Upsample" => resize,
        "GridSample" => grid_sample,
        "AffineGrid" => affine_grid,
        _ => return None,
    })
}

/// One axis to be resized.
struct Axis {
    axis: usize,
    /// None while the extent is a symbol.
    from: Option<u64>,
    /// As the file says, or to / from.
    scale: f64,
    to: Option<u64>,
    /// Begin and end of the part that is resized, in units of the extent.
    roi: (f64, f64),
}

/// How places of the output lie on the input.
struct Rule {
    mode: String,
    places: String,
    nearest: String,
    cubic: f64,
    exclude_outside: bool,
    antialias: bool,
}

fn resize(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.x(0)?;
    let rank = cx.rank(x);
    let old = cx.op == "Upsample" || cx.version < 11;
    let text = |cx: &Cx<'_, '_>, name: &str, absent: &'static str| {
        cx.attrs.text(name).unwrap_or(absent).to_owned()
    };
    let rule = Rule {
        mode: text(cx, "mode", "nearest"),
        places: text(
            cx,
            "coordinate_transformation_mode",
            if old { "asymmetric" } else { "half_pixel" },
        ),
        nearest: text(cx, "nearest_mode", if old { "floor" } else { "round_prefer_floor" }),
        cubic: f64::from(cx.float_attr("cubic_coeff_a", -0.75)),
        exclude_outside: cx.flag("exclude_outside", false),
        antialias: cx.flag("antialias", false),
    };
    let axes = match cx.attrs.ints("axes") {
        Some(axes) => {
            let axes = axes.to_vec();
            cx.axes(x, &axes)?
        }
        None => (0..rank).collect(),
    };
    let scales = match cx.op {
        "Upsample" if cx.version < 9 => {
            let scales = cx.attrs.floats("scales").ok_or("`scales` are missing")?;
            Some(scales.iter().map(|&s| f64::from(s)).collect())
        }
        _ => cx.opt_floats(if old { 1 } else { 2 }, "scales")?.filter(|s| !s.is_empty()),
    };
    let sizes = if old { None } else { cx.opt_ints(3, "sizes")? };
    let roi =
        if old || rule.places != "tf_crop_and_resize" { None } else { cx.opt_floats(1, "roi")? };
    let mut all = sized(cx, x, &axes, scales, sizes)?;
    if let Some(roi) = roi.filter(|r| r.len() == 2 * axes.len()) {
        all.iter_mut().enumerate().for_each(|(i, a)| a.roi = (roi[i], roi[axes.len() + i]));
    }
    let crop = rule.places == "tf_crop_and_resize";
    all.retain(|a| a.scale != 1.0 || a.from != a.to || crop);
    if all.is_empty() {
        return Ok(vec![Out::Same(cx.val(0)?)]);
    }
    if let Some(y) = native(cx, x, &all, &rule)? {
        return cx.same(y);
    }
    let dtype = cx.dtype(x);
    let moves = rule.mode == "nearest";
    let mut y = if moves || dtype.is_float() { x } else { cx.cast(x, DType::F32)? };
    let outside = cx.float_attr("extrapolation_value", 0.0);
    for a in &all {
        y = along(cx, y, a, &rule, f64::from(outside))?;
    }
    if !moves && !dtype.is_float() {
        y = cx.push(Round { x: y })?;
    }
    let y = cx.cast(y, dtype)?;
    cx.same(y)
}

/// What extents become, from scales or from sizes.
fn sized(
    cx: &Cx<'_, '_>,
    x: Value,
    axes: &[usize],
    scales: Option<Vec<f64>>,
    sizes: Option<Vec<i64>>,
) -> Result<Vec<Axis>, Why> {
    let shape = cx.shape(x);
    let from = |a: usize| shape[a].fixed();
    let axis = |a: usize, scale: f64, to: Option<u64>| Axis {
        axis: a,
        from: from(a),
        scale,
        to,
        roi: (0.0, 1.0),
    };
    if let Some(scales) = scales {
        if scales.len() != axes.len() || scales.iter().any(|s| !(*s > 0.0 && *s < 1e6)) {
            return Err(Why(format!("scales {scales:?} for {} axes", axes.len())));
        }
        let huge = |(&a, &s): (&usize, &f64)| from(a).is_some_and(|n| n as f64 * s > 1e6);
        if axes.iter().zip(&scales).any(huge) {
            return Err(Why(format!("scales {scales:?} make images nobody has")));
        }
        let one =
            |(&a, &s): (&usize, &f64)| axis(a, s, from(a).map(|n| (n as f64 * s).floor() as u64));
        return Ok(axes.iter().zip(&scales).map(one).collect());
    }
    let sizes = sizes.ok_or("neither scales nor sizes are given")?;
    if sizes.len() != axes.len() || sizes.iter().any(|s| !(1..1 << 24).contains(s)) {
        return Err(Why(format!("sizes {sizes:?} for {} axes", axes.len())));
    }
    let mut all = Vec::new();
    let ratio = |a: usize, n: i64| from(a).filter(|&m| m > 0).map(|m| n as f64 / m as f64);
    let ratios: Option<Vec<f64>> = axes.iter().zip(&sizes).map(|(&a, &n)| ratio(a, n)).collect();
    let policy = cx.text_attr("keep_aspect_ratio_policy", "stretch");
    for (i, (&a, &n)) in axes.iter().zip(&sizes).enumerate() {
        let Some(ratios) = &ratios else {
            let Some(m) = from(a) else {
                return Err(Why(format!("sizes for an extent that is not known, {}", shape[a])));
            };
            all.push(axis(a, n as f64 / m as f64, Some(n as u64)));
            continue;
        };
        let (scale, to) = match policy {
            "stretch" => (ratios[i], n as u64),
            _ => {
                let pick = if policy == "not_larger" { f64::min } else { f64::max };
                let scale = ratios.iter().copied().reduce(pick).unwrap_or(1.0);
                let m = from(a).unwrap_or(0) as f64;
                (scale, (scale * m + 0.5).floor() as u64)
            }
        };
        all.push(axis(a, scale, Some(to)));
    }
    Ok(all)
}

/// The op of MIL for images that computes the same, if there is one.
fn native(cx: &mut Cx<'_, '_>, x: Value, all: &[Axis], rule: &Rule) -> Result<Option<Value>, Why> {
    let rank = cx.rank(x);
    if rank != 4 || all.iter().any(|a| a.axis < 2) || !cx.is_float(x) || rule.antialias {
        return Ok(None);
    }
    let of = |axis: usize| all.iter().find(|a| a.axis == axis);
    let scale = |axis: usize| of(axis).map_or(1.0, |a| a.scale);
    let whole = |axis: usize| scale(axis).fract() == 0.0 && (1.0..=64.0).contains(&scale(axis));
    if rule.mode == "nearest" && whole(2) && whole(3) {
        // Does every place repeat? Tried on as many as tell.
        let repeats = all.iter().all(|a| {
            let (n, s) = (a.from.unwrap_or(16), a.scale as u64);
            let probe =
                Axis { axis: a.axis, from: Some(n), scale: a.scale, to: Some(n * s), roi: a.roi };
            let places = nearest(&probe, rule);
            places.is_ok_and(|p| p.iter().enumerate().all(|(i, &at)| at == (i as u64 / s) as i64))
                && rule.places != "tf_crop_and_resize"
        });
        if repeats {
            let factor = |axis| Number::Int(scale(axis) as i32);
            let (scale_factor_height, scale_factor_width) = (factor(2), factor(3));
            let op = UpsampleNearestNeighbor { x, scale_factor_height, scale_factor_width };
            return cx.push(op).map(Some);
        }
    }
    if rule.mode != "linear" || rule.exclude_outside {
        return Ok(None);
    }
    let shape = cx.shape(x);
    let to = |axis: usize| of(axis).map_or(shape[axis].fixed(), |a| a.to);
    let exact = all.iter().all(|a| match (a.from, a.to) {
        (Some(n), Some(m)) => n as f64 * a.scale == m as f64 && m > 1,
        _ => false,
    });
    let sampling_mode = match rule.places.as_str() {
        "align_corners" => SamplingMode::StrictAlignCorners,
        "half_pixel" | "pytorch_half_pixel" => SamplingMode::UnalignCorners,
        _ => return Ok(None),
    };
    if let (true, Some(h), Some(w)) = (exact, to(2), to(3)) {
        let (target_size_height, target_size_width) = (h as i32, w as i32);
        let op = ResizeBilinear { x, target_size_height, target_size_width, sampling_mode };
        return cx.push(op).map(Some);
    }
    let symbolic = shape[2..].iter().any(|d| matches!(d, Dim::Symbol(_)));
    if symbolic && whole(2) && whole(3) {
        let align_corners = sampling_mode == SamplingMode::StrictAlignCorners;
        if !align_corners && cx.opset < Opset::Ios16 {
            return Ok(None);
        }
        let op = UpsampleBilinear {
            x,
            scale_factor_height: Number::Int(scale(2) as i32),
            scale_factor_width: Number::Int(scale(3) as i32),
            align_corners,
            half_pixel_centers: (!align_corners).then_some(true),
        };
        return cx.push(op).map(Some);
    }
    Ok(None)
}

/// Where the places of the output lie on the input.
fn positions(a: &Axis, rule: &Rule) -> Result<Vec<f64>, Why> {
    let (Some(n), Some(m)) = (a.from, a.to) else {
        return Err(Why::from("this resize needs fixed extents"));
    };
    if m > 1 << 20 {
        return Err(Why(format!("an axis of {m} places")));
    }
    let (n, m, s) = (n as f64, m as f64, a.scale);
    let place = |i: f64| {
        Ok(match rule.places.as_str() {
            "half_pixel" => (i + 0.5) / s - 0.5,
            "pytorch_half_pixel" if m > 1.0 => (i + 0.5) / s - 0.5,
            "pytorch_half_pixel" => 0.0,
            "half_pixel_symmetric" => {
                let adjustment = m / (s * n);
                n / 2.0 * (1.0 - adjustment) + (i + 0.5) / s - 0.5
            }
            // The standard's own implementation means the extent before it is rounded to a whole one.
            "align_corners" if n * s > 1.0 => i * (n - 1.0) / (n * s - 1.0),
            "align_corners" => 0.0,
            "asymmetric" => i / s,
            "tf_half_pixel_for_nn" => (i + 0.5) / s,
            "tf_crop_and_resize" => {
                let (start, end) = a.roi;
                match m > 1.0 {
                    true => start * (n - 1.0) + i * (end - start) * (n - 1.0) / (m - 1.0),
                    false => 0.5 * (start + end) * (n - 1.0),
                }
            }
            other => return Err(Why(format!("coordinates {other:?} are not known"))),
        })
    };
    (0..m as u64).map(|i| place(i as f64)).collect()
}

/// The nearest place of the input for each of the output.
fn nearest(a: &Axis, rule: &Rule) -> Result<Vec<i64>, Why> {
    let last = a.from.unwrap_or(1) as i64 - 1;
    let positions = positions(a, rule)?;
    let place = |x: f64| {
        Ok(match rule.nearest.as_str() {
            "round_prefer_floor" => (x - 0.5).ceil(),
            "round_prefer_ceil" => (x + 0.5).floor(),
            "floor" => x.floor(),
            "ceil" => x.ceil(),
            other => return Err(Why(format!("nearest mode {other:?} is not known"))),
        } as i64)
    };
    positions.into_iter().map(|x| place(x).map(|i| i.clamp(0, last.max(0)))).collect()
}

/// Weights of the neighbours of a place: of which the first is `first` away from the place at or
/// before it, `ratio` being the distance to that.
fn neighbours(ratio: f64, scale: f64, rule: &Rule) -> (i64, Vec<f64>) {
    let a = rule.cubic;
    let cubic = |x: f64| {
        let x = x.abs();
        match x {
            _ if x <= 1.0 => ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0,
            _ if x < 2.0 => ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a,
            _ => 0.0,
        }
    };
    let linear = |x: f64| (1.0 - x.abs()).clamp(0.0, 1.0);
    let (reach, is_cubic) = if rule.mode == "cubic" { (2.0, true) } else { (1.0, false) };
    // Smaller images look at more of the input.
    let scale = if rule.antialias { scale.min(1.0) } else { 1.0 };
    let first = (-reach / scale).floor() as i64 + 1;
    let weight = |i: i64| {
        let x = (i as f64 - ratio) * scale;
        if is_cubic { cubic(x) } else { linear(x) }
    };
    let mut weights: Vec<f64> = (first..2 - first).map(weight).collect();
    if rule.antialias {
        let total: f64 = weights.iter().sum();
        weights.iter_mut().for_each(|w| *w /= total);
    }
    (first, weights)
}

/// Resizes one axis.
fn along(cx: &mut Cx<'_, '_>, x: Value, a: &Axis, rule: &Rule, outside: f64) -> Result<Value, Why> {
    let positions = positions(a, rule)?;
    let n = a.from.unwrap_or(0);
    if n == 0 {
        return Err(Why::from("an axis without elements"));
    }
    let y = if rule.mode == "nearest" {
        let places = nearest(a, rule)?;
        let indices = cx.vector(&places)?;
        take(cx, x, indices, a.axis)?
    } else if matches!(rule.mode.as_str(), "linear" | "cubic") {
        let m = positions.len() as u64;
        if n * m > 1 << 24 {
            return Err(Why(format!("a matrix of {m} by {n}")));
        }
        // [n, m]: a column for each place of the output.
        let mut matrix = vec![0f64; (n * m) as usize];
        for (j, &at) in positions.iter().enumerate() {
            let whole = at.fract() == 0.0;
            let (floor, ratio) =
                if whole { (at - 1.0, 1.0) } else { (at.floor(), at - at.floor()) };
            let (first, mut weights) = neighbours(ratio, a.scale, rule);
            let index = |k: usize| floor as i64 + first + k as i64;
            if rule.exclude_outside {
                for (k, w) in weights.iter_mut().enumerate() {
                    if !(0..n as i64).contains(&index(k)) {
                        *w = 0.0;
                    }
                }
                let total: f64 = weights.iter().sum();
                weights.iter_mut().for_each(|w| *w /= total);
            }
            for (k, w) in weights.iter().enumerate() {
                let i = index(k).clamp(0, n as i64 - 1) as usize;
                matrix[i * m as usize + j] += w;
            }
        }
        let matrix: Vec<f32> = matrix.into_iter().map(|w| w as f32).collect();
        let dtype = cx.dtype(x);
        let matrix = cx.floats(vec![n, m], &matrix, dtype)?;
        times(cx, x, matrix, a.axis)?
    } else {
        return Err(Why(format!("a resize of mode {:?} is not known", rule.mode)));
    };
    if rule.places != "tf_crop_and_resize" {
        return Ok(y);
    }
    let inside = |&at: &f64| u8::from((0.0..=(n - 1) as f64).contains(&at));
    let mask: Vec<u8> = positions.iter().map(inside).collect();
    if !mask.contains(&0) {
        return Ok(y);
    }
    let mut shape = vec![1; cx.rank(x)];
    shape[a.axis] = mask.len() as u64;
    let mask = Tensor::new(DType::Bool, shape, mask.into()).map_err(|e| Why(e.to_string()))?;
    let mask = cx.constant(mask)?;
    let value = cx.number(outside, y)?;
    cx.select(mask, y, value)
}

/// `x` times `matrix` `[n, m]` along an axis.
pub fn times(cx: &mut Cx<'_, '_>, x: Value, matrix: Value, axis: usize) -> Result<Value, Why> {
    let rank = cx.rank(x);
    if rank == 1 {
        let row = cx.expand_dims(x, &[0])?;
        let y = cx.matmul(row, matrix)?;
        return cx.squeeze(y, &[0]);
    }
    if axis + 1 == rank {
        return cx.matmul(x, matrix);
    }
    let mut perm: Vec<usize> = (0..rank).collect();
    perm.swap(axis, rank - 1);
    let t = cx.transpose(x, &perm)?;
    let y = cx.matmul(t, matrix)?;
    cx.transpose(y, &perm)
}

fn grid_sample(cx: &mut Cx<'_, '_>) -> Outs {
    let (x, coordinates) = (cx.x(0)?, cx.x(1)?);
    if cx.rank(x) != 4 {
        return Err(Why(format!("MIL resamples images, this has {} axes", cx.rank(x))));
    }
    let sampling_mode = match cx.text_attr("mode", "linear") {
        "linear" | "bilinear" => Sampling::Bilinear,
        "nearest" => Sampling::Nearest,
        other => return Err(Why(format!("MIL does not resample by {other:?}"))),
    };
    let align_corners = cx.flag("align_corners", false);
    let padding_mode = match cx.text_attr("padding_mode", "zeros") {
        "zeros" => Outside::Constant,
        "border" => Outside::Border,
        "reflection" if align_corners => Outside::Reflection,
        "reflection" => Outside::Symmetric,
        other => return Err(Why(format!("padding {other:?} is not known"))),
    };
    let y = cx.push(Resample {
        x,
        coordinates,
        sampling_mode,
        padding_mode,
        padding_value: 0.0,
        coordinates_mode: Coordinates::MinusOneToOne,
        align_corners,
    })?;
    cx.same(y)
}

/// Points of a grid over -1 to 1 seen through matrices `theta` `[N, D, D + 1]`.
fn affine_grid(cx: &mut Cx<'_, '_>) -> Outs {
    let theta = cx.x(0)?;
    let size = cx.ints(1, "size")?;
    let extents: Vec<u64> = size.iter().skip(2).map(|&n| n.max(0) as u64).collect();
    let d = extents.len() as u64;
    let n = extents.iter().try_fold(1u64, |n, &e| n.checked_mul(e)).filter(|&n| n < 1 << 22);
    let n = n.filter(|_| d == 2 || d == 3).ok_or_else(|| Why(format!("a grid of {size:?}")))?;
    let aligned = cx.flag("align_corners", false);
    let at = |i: u64, n: u64| match (aligned, n) {
        (true, 1) => -1.0,
        (true, n) => -1.0 + 2.0 * i as f64 / (n - 1) as f64,
        (false, n) => (2.0 * i as f64 + 1.0) / n as f64 - 1.0,
    };
    // [D + 1, points]: x first, the last axis of the image, and a one.
    let mut points = vec![0f32; ((d + 1) * n) as usize];
    for p in 0..n {
        let mut rest = p;
        for (k, &extent) in extents.iter().rev().enumerate() {
            points[k * n as usize + p as usize] = at(rest % extent, extent) as f32;
            rest /= extent;
        }
        points[(d * n + p) as usize] = 1.0;
    }
    let dtype = cx.dtype(theta);
    let points = cx.floats(vec![d + 1, n], &points, dtype)?;
    let moved = cx.matmul(theta, points)?;
    let moved = cx.transpose(moved, &[0, 2, 1])?;
    let mut parts = vec![Part::Of(theta, 0)];
    parts.extend(extents.iter().map(|&e| Part::N(e)));
    parts.push(Part::N(d));
    let y = cx.reshape(moved, &parts)?;
    cx.same(y)
}
