//! Pools: of windows, and of everything.

use russet_ir::ops::*;
use russet_ir::{DType, Value};

use super::super::cx::{Cx, Import, Outs, params, small};
use super::super::importer::Why;
use super::conv::Window;
use super::movement::{fixed_slice, padded};

pub fn find(op: &str) -> Option<Import> {
    Some(match op {
        "MaxPool" => max_pool,
        "AveragePool" => average_pool,
        "LpPool" => lp_pool,
        "GlobalAveragePool" | "GlobalMaxPool" | "GlobalLpPool" => global,
        _ => return None,
    })
}

/// The window, with more padding behind where the last one begins inside and ends outside.
/// Returns also how much of the padding behind is such.
fn window(cx: &Cx<'_, '_>, x: Value) -> Result<(Window, Vec<i64>), Why> {
    let kernel = cx.attrs.ints("kernel_shape").ok_or("`kernel_shape` is missing")?.to_vec();
    let n = kernel.len();
    let mut window = Window::of(cx, x, kernel)?;
    let mut added = vec![0; n];
    if cx.flag("ceil_mode", false) {
        for (i, added) in added.iter_mut().enumerate() {
            let extent = cx.need_extent(x, i + 2, "a pool that rounds up")? as i64;
            let (stride, (before, after)) = (window.strides[i], window.pads[i]);
            let free = extent + before + after - window.span(i);
            if free < 0 {
                continue;
            }
            let mut out = (free + stride - 1) / stride + 1;
            if (out - 1) * stride >= extent + before {
                out -= 1;
            }
            let needed = (out - 1) * stride + window.span(i) - extent - before;
            *added = (needed - after).max(0);
            window.pads[i].1 += *added;
        }
    }
    Ok((window, added))
}

/// `x` padded as the window says.
fn around(window: &Window) -> Vec<(i64, i64)> {
    let mut all = vec![(0, 0); 2];
    all.extend(&window.pads);
    all
}

/// Elements of a window along its axes up to which each is a slice of its own.
const TAPS_MAX: i64 = 256;

/// For windows with gaps: every `stride`-th element at each place of the window, combined, one axis
/// after another.
fn taps(
    cx: &mut Cx<'_, '_>,
    x: Value,
    window: &Window,
    mut combine: impl FnMut(&mut Cx<'_, '_>, Value, Value) -> Result<Value, Why>,
) -> Result<Value, Why> {
    let count = window.kernel.iter().fold(0i64, |n, &k| n.saturating_add(k));
    if count > TAPS_MAX {
        return Err(Why(format!("a pool over windows with gaps of {:?} elements", window.kernel)));
    }
    let mut x = x;
    for (i, &kernel) in window.kernel.iter().enumerate() {
        let stride = window.strides[i];
        let extent = cx.need_extent(x, i + 2, "a pool over windows with gaps")? as i64;
        let out = (extent - window.span(i)) / stride + 1;
        let mut total = None;
        for at in (0..kernel).map(|k| k * window.dilations[i]) {
            let end = at + (out - 1) * stride + 1;
            let part = fixed_slice(cx, x, &[(i + 2, [at, end, stride])])?;
            total = Some(match total {
                Some(t) => combine(cx, t, part)?,
                None => part,
            });
        }
        x = total.ok_or_else(|| Why::from("a window of nothing"))?;
    }
    Ok(x)
}

fn has_gaps(window: &Window) -> bool {
    window.dilations.iter().zip(&window.kernel).any(|(&d, &k)| d != 1 && k != 1)
}

fn max_pool(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.x(0)?;
    let (window, _) = window(cx, x)?;
    let dtype = cx.dtype(x);
    // Integers of 8 bits are exact in fp32.
    let float = if dtype.is_float() { x } else { cx.cast(x, DType::F32)? };
    let y = if has_gaps(&window) {
        let low = if cx.dtype(float) == DType::F16 { -65504.0 } else { f64::from(f32::MIN) };
        let wide = padded(cx, float, &around(&window), "constant", low)?;
        taps(cx, wide, &window, |cx, x, y| cx.max(x, y))?
    } else {
        cx.push(MaxPool {
            x: float,
            kernel_sizes: params("kernel_shape", &window.kernel)?,
            strides: Some(params("strides", &window.strides)?),
            pad_type: PadType::Custom,
            pad: Some(window.flat_pads()?),
            ceil_mode: false,
        })?
    };
    let y = cx.cast(y, dtype)?;
    cx.same(y)
}

fn average_pool(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.x(0)?;
    let (mut window, added) = window(cx, x)?;
    let counted = cx.flag("count_include_pad", false);
    if has_gaps(&window) {
        let count = |cx: &mut Cx<'_, '_>, v: Value, value: f64, pads: &[(i64, i64)]| {
            padded(cx, v, pads, "constant", value)
        };
        let sum =
            |cx: &mut Cx<'_, '_>, v: Value, w: &Window| taps(cx, v, w, |cx, x, y| cx.add(x, y));
        let wide = count(cx, x, 0.0, &around(&window))?;
        let total = sum(cx, wide, &window)?;
        // How many elements of each window count.
        let mut shape = cx.need_shape(x, "a pool over windows with gaps")?;
        (shape[0], shape[1]) = (1, 1);
        let n = shape.iter().product::<u64>() as usize;
        if n > 1 << 24 {
            return Err(Why(format!("a pool over {n} places")));
        }
        let dtype = cx.dtype(x);
        let ones = cx.floats(shape, &vec![1.0; n], dtype)?;
        let mut inner = around(&window);
        let mut outer = vec![(0, 0); inner.len()];
        for (i, &more) in added.iter().enumerate() {
            inner[i + 2].1 -= more;
            outer[i + 2].1 = more;
        }
        let ones = count(cx, ones, f64::from(u8::from(counted)), &inner)?;
        let ones = count(cx, ones, 0.0, &outer)?;
        let counts = sum(cx, ones, &window)?;
        let y = cx.div(total, counts)?;
        return cx.same(y);
    }
    let mut x = x;
    if counted {
        // Padding that counts are zeros; what was added to round up never counts.
        let mut all = around(&window);
        all.iter_mut().skip(2).zip(&added).for_each(|(p, more)| p.1 -= more);
        x = padded(cx, x, &all, "constant", 0.0)?;
        window.pads = added.iter().map(|&more| (0, more)).collect();
    }
    let y = cx.push(AvgPool {
        x,
        kernel_sizes: params("kernel_shape", &window.kernel)?,
        strides: Some(params("strides", &window.strides)?),
        pad_type: PadType::Custom,
        pad: Some(window.flat_pads()?),
        exclude_padding_from_average: true,
        ceil_mode: false,
    })?;
    cx.same(y)
}

/// `|x|` to the power `p`, and back.
fn power(cx: &mut Cx<'_, '_>, x: Value, p: f64) -> Result<Value, Why> {
    match p {
        1.0 => Ok(x),
        2.0 => cx.push(Square { x }),
        0.5 => cx.push(Sqrt { x }),
        _ => {
            let p = cx.number(p, x)?;
            cx.push(Pow { x, y: p })
        }
    }
}

/// The root of the sum of powers: of windows padded with zeros.
fn lp_pool(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.x(0)?;
    let (window, _) = window(cx, x)?;
    let p = cx.int_attr("p", 2) as f64;
    let magnitude = cx.push(Abs { x })?;
    let powers = power(cx, magnitude, p)?;
    let wide = padded(cx, powers, &around(&window), "constant", 0.0)?;
    let total = if has_gaps(&window) {
        taps(cx, wide, &window, |cx, x, y| cx.add(x, y))?
    } else {
        let mean = cx.push(AvgPool {
            x: wide,
            kernel_sizes: params("kernel_shape", &window.kernel)?,
            strides: Some(params("strides", &window.strides)?),
            pad_type: PadType::Valid,
            pad: None,
            exclude_padding_from_average: false,
            ceil_mode: false,
        })?;
        cx.scale(mean, window.kernel.iter().map(|&k| k as f64).product())?
    };
    let y = power(cx, total, 1.0 / p)?;
    cx.same(y)
}

fn global(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.x(0)?;
    let behind: Vec<usize> = (2..cx.rank(x)).collect();
    let axes = Some(small(&behind));
    let y = match cx.op {
        "GlobalAveragePool" => cx.push(ReduceMean { x, axes, keep_dims: true })?,
        "GlobalMaxPool" => cx.push(ReduceMax { x, axes, keep_dims: true })?,
        _ => {
            let p = cx.int_attr("p", 2) as f64;
            let magnitude = cx.push(Abs { x })?;
            let powers = power(cx, magnitude, p)?;
            let total = cx.sum(powers, &behind)?;
            power(cx, total, 1.0 / p)?
        }
    };
    cx.same(y)
}
