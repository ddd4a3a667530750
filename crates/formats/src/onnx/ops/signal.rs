//! Fourier transforms as matrix products, and windows.

use std::f64::consts::PI;

use russet_ir::DType;
use russet_ir::Value;
use russet_ir::ops::*;

use super::super::cx::{Cx, Import, Outs};
use super::super::elem::Elem;
use super::super::importer::Why;
use super::resize::times;

pub fn find(op: &str) -> Option<Import> {
    Some(match op {
        "DFT" => dft,
        "STFT" => stft,
        "HannWindow" | "HammingWindow" | "BlackmanWindow" => window,
        "MelWeightMatrix" => mel,
        _ => return None,
    })
}

/// Numbers in a matrix of a transform.
const MATRIX_MAX: u64 = 1 << 24;

/// `[n, m]` cosines and sines of `2 pi i j / length`.
fn waves(
    cx: &mut Cx<'_, '_>,
    (n, m): (u64, u64),
    length: u64,
    factor: f64,
) -> Result<(Value, Value), Why> {
    if n.saturating_mul(m) > MATRIX_MAX || length == 0 {
        return Err(Why(format!("a transform of {n} to {m} numbers")));
    }
    let angle = |i: u64, j: u64| 2.0 * PI * ((i * j) % length) as f64 / length as f64;
    let all = |f: fn(f64) -> f64| -> Vec<f32> {
        let rows = (0..n).flat_map(|i| (0..m).map(move |j| (i, j)));
        rows.map(|(i, j)| (f(angle(i, j)) * factor) as f32).collect()
    };
    let cos = cx.floats(vec![n, m], &all(f64::cos), DType::F32)?;
    let sin = cx.floats(vec![n, m], &all(f64::sin), DType::F32)?;
    Ok((cos, sin))
}

fn dft(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.x(0)?;
    let rank = cx.rank(x);
    let inverse = cx.flag("inverse", false);
    let onesided = cx.flag("onesided", false);
    let axis = match cx.version < 20 {
        true => cx.int_attr("axis", 1),
        false => cx.opt_ints(2, "axis")?.and_then(|a| a.first().copied()).unwrap_or(-2),
    };
    let axis = cx.axis(x, axis)?;
    let n = cx.need_extent(x, axis, "a transform")?;
    let length = cx.opt_ints(1, "dft_length")?.and_then(|l| l.first().copied());
    let length = length.map_or(n, |l| l.max(0) as u64);
    let complex = cx.need_extent(x, rank - 1, "a transform")? == 2;
    if onesided && inverse {
        return Err(Why::from("half a spectrum transformed back is not read"));
    }
    // More numbers than are transformed are left out, fewer are as if followed by zeros.
    let used = n.min(length);
    let x = if used < n { cx.slice(x, axis, 0, Some(used as i64))? } else { x };
    let out = if onesided { length / 2 + 1 } else { length };
    let factor = if inverse { 1.0 / length as f64 } else { 1.0 };
    let (cos, sin) = waves(cx, (used, out), length, factor)?;
    let real = cx.slice(x, rank - 1, 0, Some(1))?;
    // The sign of the sine is that of the exponent.
    let (rc, rs) = (times(cx, real, cos, axis)?, times(cx, real, sin, axis)?);
    let minus = |cx: &mut Cx<'_, '_>, v: Value| cx.scale(v, -1.0);
    let (re, im) = if complex {
        let imaginary = cx.slice(x, rank - 1, 1, Some(2))?;
        let (ic, is) = (times(cx, imaginary, cos, axis)?, times(cx, imaginary, sin, axis)?);
        match inverse {
            false => (cx.add(rc, is)?, cx.sub(ic, rs)?),
            true => (cx.sub(rc, is)?, cx.add(ic, rs)?),
        }
    } else {
        let im = if inverse { rs } else { minus(cx, rs)? };
        (rc, im)
    };
    let y = cx.concat(vec![re, im], rank - 1)?;
    cx.same(y)
}

/// Frames `[B, F, L]` of a signal, weighed and transformed: `[B, F, L / 2 + 1 or L, 2]`.
fn stft(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.x(0)?;
    let step = cx.int(1, "frame_step")?;
    let window = cx.opt(2)?;
    let length = match cx.opt_ints(3, "frame_length")?.and_then(|l| l.first().copied()) {
        Some(l) => l,
        None => match window {
            Some(w) => cx.need_extent(w, 0, "frames")? as i64,
            None => return Err(Why::from("neither a window nor `frame_length` is given")),
        },
    };
    if step < 1 || !(1..=1 << 16).contains(&length) {
        return Err(Why(format!("frames of {length}, every {step}")));
    }
    let rank = cx.rank(x);
    let complex = rank == 3 && cx.need_extent(x, 2, "a signal")? == 2;
    let onesided = cx.flag("onesided", true);
    let out = (if onesided { length / 2 + 1 } else { length }) as u64;
    let (cos, sin) = waves(cx, (length as u64, out), length as u64, 1.0)?;
    let mut frames = |part: i64| -> Result<Value, Why> {
        let signal = match rank {
            3 => {
                let one = cx.slice(x, 2, part, Some(part + 1))?;
                cx.squeeze(one, &[2])?
            }
            _ => x,
        };
        let (axis, size, stride) = (1, length as i32, step as i32);
        let frames = cx.push(SlidingWindows { x: signal, axis, size, stride })?;
        match window {
            Some(w) => cx.mul(frames, w),
            None => Ok(frames),
        }
    };
    let real = frames(0)?;
    let imaginary = if complex { Some(frames(1)?) } else { None };
    let (rc, rs) = (cx.matmul(real, cos)?, cx.matmul(real, sin)?);
    let (re, im) = match imaginary {
        Some(i) => {
            let (ic, is) = (cx.matmul(i, cos)?, cx.matmul(i, sin)?);
            (cx.add(rc, is)?, cx.sub(ic, rs)?)
        }
        None => (rc, cx.scale(rs, -1.0)?),
    };
    let y = cx.push(Stack { values: vec![re, im], axis: 3 })?;
    cx.same(y)
}

/// A sum of cosines over `size` places.
fn window(cx: &mut Cx<'_, '_>) -> Outs {
    let weights: &[f64] = match cx.op {
        "HannWindow" => &[0.5, -0.5],
        "HammingWindow" => &[25.0 / 46.0, -21.0 / 46.0],
        _ => &[0.42, -0.5, 0.08],
    };
    let periodic = cx.flag("periodic", true);
    let elem = Elem::from_code(cx.int_attr("output_datatype", 1) as i32)?;
    let size = cx.x(0)?;
    let rank = cx.rank(size);
    let size = cx.squeeze(size, &(0..rank).collect::<Vec<_>>())?;
    let size = cx.cast(size, DType::F32)?;
    let (zero, one) = (cx.number_of(0.0, DType::F32)?, cx.number_of(1.0, DType::F32)?);
    let places = cx.push(Range1d { end: size, start: zero, step: one })?;
    let period = if periodic { size } else { cx.sub(size, one)? };
    let turns = cx.div(places, period)?;
    let mut total = None;
    for (k, &w) in weights.iter().enumerate() {
        let angle = cx.scale(turns, 2.0 * PI * k as f64)?;
        let wave = cx.push(Cos { x: angle })?;
        let part = cx.scale(wave, w)?;
        total = Some(match total {
            Some(t) => cx.add(t, part)?,
            None => part,
        });
    }
    let y = total.ok_or("a window of nothing")?;
    let y = cx.cast(y, elem.computed())?;
    cx.one(y, elem)
}

/// Triangles over the bins of a spectrum, evenly apart on the mel scale.
fn mel(cx: &mut Cx<'_, '_>) -> Outs {
    let one = |cx: &Cx<'_, '_>, i: usize, name: &str| -> Result<f64, Why> {
        let v = cx.opt_floats(i, name)?;
        v.and_then(|v| v.first().copied()).ok_or_else(|| Why(format!("`{name}` is missing")))
    };
    let bins = one(cx, 0, "num_mel_bins")?;
    let length = one(cx, 1, "dft_length")?;
    let rate = one(cx, 2, "sample_rate")?;
    let (low, high) = (one(cx, 3, "lower_edge_hertz")?, one(cx, 4, "upper_edge_hertz")?);
    let elem = Elem::from_code(cx.int_attr("output_datatype", 1) as i32)?;
    if !(1.0..1e4).contains(&bins) || !(1.0..1e6).contains(&length) || rate <= 0.0 {
        return Err(Why(format!("{bins} bands of {length} bins")));
    }
    let (n, rows) = (bins as usize, (length / 2.0).floor() as usize + 1);
    let to_mel = |hz: f64| 2595.0 * (1.0 + hz / 700.0).log10();
    let step = (to_mel(high) - to_mel(low)) / (bins + 2.0);
    let bin = |i: usize| {
        let mel = i as f64 * step + to_mel(low);
        let hz = 700.0 * (10f64.powf(mel / 2595.0) - 1.0);
        ((length + 1.0) * hz / rate).floor() as i64
    };
    let mut matrix = vec![0f32; rows * n];
    for band in 0..n {
        let (first, middle, last) = (bin(band), bin(band + 1), bin(band + 2));
        let mut put = |row: i64, value: f64| {
            if let Some(at) = usize::try_from(row).ok().filter(|&r| r < rows) {
                matrix[at * n + band] = value as f32;
            }
        };
        if middle == first {
            put(middle, 1.0);
        } else {
            (first..=middle).for_each(|j| put(j, (j - first) as f64 / (middle - first) as f64));
        }
        if last > middle {
            (middle..last).for_each(|j| put(j, (last - j) as f64 / (last - middle) as f64));
        }
    }
    let y = cx.floats(vec![rows as u64, n as u64], &matrix, elem.computed())?;
    cx.one(y, elem)
}
