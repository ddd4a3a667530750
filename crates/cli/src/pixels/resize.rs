//! Pictures of another size, as PIL resizes them: columns, then rows, each new level a weighted sum of
//! old ones in fixed point, rounded to a whole level in between.
//!
//! Models were trained on what it makes, rounding included.

use russet_formats::huggingface::usage::image::Filter;

use super::Picture;

/// Bits behind the point of a weight.
const BITS: u32 = 22;

pub fn resized(picture: &Picture, height: usize, width: usize, filter: Filter) -> Picture {
    if filter == Filter::Nearest {
        return nearest(picture, height, width);
    }
    let mut made = picture.clone();
    if width != picture.width {
        made = columns(&made, &weights(picture.width, width, filter));
    }
    if height != picture.height {
        made = rows(&made, &weights(picture.height, height, filter));
    }
    made
}

/// What one new level is made of: the first old one, and weights of it and those behind it.
struct Taps {
    first: usize,
    weights: Vec<i64>,
}

fn weights(from: usize, to: usize, filter: Filter) -> Vec<Taps> {
    let scale = from as f64 / to as f64;
    // A smaller picture sees more of the old one: the filter grows with it.
    let spread = scale.max(1.0);
    let support = support(filter) * spread;
    let one = |i: usize| {
        let centre = (i as f64 + 0.5) * scale;
        let first = (centre - support + 0.5).max(0.0) as usize;
        let last = ((centre + support + 0.5) as usize).min(from);
        let weight = |k: usize| kernel(filter, (k as f64 - centre + 0.5) / spread);
        let all: Vec<f64> = (first..last).map(weight).collect();
        let sum: f64 = all.iter().sum();
        let fixed = |w: &f64| {
            let w = if sum != 0.0 { w / sum } else { *w };
            (w * f64::from(1u32 << BITS) + 0.5f64.copysign(w)) as i64
        };
        Taps { first, weights: all.iter().map(fixed).collect() }
    };
    (0..to).map(one).collect()
}

fn support(filter: Filter) -> f64 {
    match filter {
        Filter::Nearest => 0.0,
        Filter::Box => 0.5,
        Filter::Bilinear | Filter::Hamming => 1.0,
        Filter::Bicubic => 2.0,
        Filter::Lanczos => 3.0,
    }
}

fn kernel(filter: Filter, x: f64) -> f64 {
    let sinc = |x: f64| {
        let x = x * std::f64::consts::PI;
        if x == 0.0 { 1.0 } else { x.sin() / x }
    };
    let d = x.abs();
    match filter {
        Filter::Nearest => 1.0,
        Filter::Box => f64::from(u8::from(x > -0.5 && x <= 0.5)),
        Filter::Bilinear => (1.0 - d).max(0.0),
        Filter::Hamming if d >= 1.0 => 0.0,
        Filter::Hamming => sinc(x) * (0.54 + 0.46 * (x * std::f64::consts::PI).cos()),
        // The cubic of slope -1/2.
        Filter::Bicubic if d < 1.0 => (1.5 * d - 2.5) * d * d + 1.0,
        Filter::Bicubic if d < 2.0 => ((-0.5 * d + 2.5) * d - 4.0) * d + 2.0,
        Filter::Bicubic => 0.0,
        Filter::Lanczos if (-3.0..3.0).contains(&x) => sinc(x) * sinc(x / 3.0),
        Filter::Lanczos => 0.0,
    }
}

/// The sum of levels, rounded and kept within what a level can be.
fn level(taps: &Taps, at: impl Fn(usize) -> u8) -> u8 {
    let half = 1i64 << (BITS - 1);
    let weighted = |(k, w): (usize, &i64)| i64::from(at(taps.first + k)) * w;
    let sum: i64 = taps.weights.iter().enumerate().map(weighted).sum();
    ((sum + half) >> BITS).clamp(0, 255) as u8
}

fn columns(p: &Picture, weights: &[Taps]) -> Picture {
    let (width, n) = (weights.len(), p.channels);
    let mut levels = Vec::with_capacity(p.height * width * n);
    for row in p.levels.chunks(p.width * n) {
        for taps in weights {
            levels.extend((0..n).map(|c| level(taps, |x| row[x * n + c])));
        }
    }
    Picture { width, levels, ..*p }
}

fn rows(p: &Picture, weights: &[Taps]) -> Picture {
    let line = p.width * p.channels;
    let mut levels = Vec::with_capacity(weights.len() * line);
    for taps in weights {
        levels.extend((0..line).map(|i| level(taps, |y| p.levels[y * line + i])));
    }
    Picture { height: weights.len(), levels, ..*p }
}

fn nearest(p: &Picture, height: usize, width: usize) -> Picture {
    let place = |i: usize, from: usize, to: usize| {
        (((i as f64 + 0.5) * from as f64 / to as f64) as usize).min(from - 1)
    };
    let mut levels = Vec::with_capacity(height * width * p.channels);
    for y in 0..height {
        let y = place(y, p.height, height);
        for x in 0..width {
            let at = (y * p.width + place(x, p.width, width)) * p.channels;
            levels.extend(&p.levels[at..at + p.channels]);
        }
    }
    Picture { height, width, channels: p.channels, levels }
}
