//! Convolution: each output channel times the patches it sees.
//!
//! The definition is a loop over taps for every output number, chains of fused multiply-adds in the
//! order of the weight, [`CHAIN`] long, added one to another ([`convolve_plainly`]). The fast paths
//! keep that order. Mostly the input is put into a frame of its padding once, and what each tap reads is
//! that frame seen from another place ([`framed`]); where outputs are so small that most of a frame
//! is its edge, the patches of some places at a time are gathered and multiplied by the weight; and
//! where a group has one output channel only, shifted rows are added up.

mod framed;

use std::ops::Range;

use rayon::prelude::*;

use crate::kernels::gemm::{Epilogue, PackedLeft, Rows, View, multiply};

/// One group of a convolution, with three spatial axes; fewer are ones at the front.
#[derive(Clone, Copy, Debug)]
pub struct Windows {
    /// Input channels of the group.
    pub channels: usize,
    pub input: [usize; 3],
    pub output: [usize; 3],
    pub kernel: [usize; 3],
    pub stride: [usize; 3],
    pub dilation: [usize; 3],
    /// Zeros before each axis.
    pub pad: [usize; 3],
}

/// Products summed in one chain: of a longer sum, patches and weights would not stay in the cache.
const CHAIN: usize = 1 << 12;

/// Numbers of gathered patches kept at once: they fit the second-level cache.
const PATCHES: usize = 1 << 18;

impl Windows {
    pub fn n_taps(&self) -> usize {
        self.kernel.iter().product()
    }

    /// Numbers that each output number is a sum of.
    pub fn depth(&self) -> usize {
        self.channels * self.n_taps()
    }

    pub fn n_places(&self) -> usize {
        self.output.iter().product()
    }

    pub fn plane(&self) -> usize {
        self.input.iter().product()
    }

    fn tap(&self, tap: usize) -> [usize; 3] {
        let [_, h, w] = self.kernel;
        [tap / (h * w), tap / w % h, tap % w]
    }

    /// Where along axis `axis` place `i` reads for this tap, if not from the padding.
    fn reads(&self, axis: usize, i: usize, tap: usize) -> Option<usize> {
        let padded = i * self.stride[axis] + tap * self.dilation[axis];
        padded.checked_sub(self.pad[axis]).filter(|&p| p < self.input[axis])
    }

    /// Places along the last axis that read within the input for this tap.
    fn inside(&self, tap: usize) -> Range<usize> {
        let (stride, offset) = (self.stride[2], tap * self.dilation[2]);
        let first = self.pad[2].saturating_sub(offset).div_ceil(stride);
        let last = (self.input[2] + self.pad[2]).saturating_sub(offset).div_ceil(stride);
        let end = last.min(self.output[2]);
        first.min(end)..end
    }

    /// For each row of `len` output places from place `first` on: the row of the input that this
    /// tap reads (`None` in the padding), the first place and how many.
    fn rows(&self, tap: [usize; 3], first: usize, len: usize) -> impl Iterator<Item = Segment> {
        let [_, height, width] = self.output;
        let end = first + len;
        let windows = *self;
        let mut at = first;
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let (z, y, x) = (at / (height * width), at / width % height, at % width);
            let n = (width - x).min(end - at);
            let row = windows.reads(0, z, tap[0]).zip(windows.reads(1, y, tap[1]));
            let row = row.map(|(z, y)| (z * windows.input[1] + y) * windows.input[2]);
            at += n;
            Some(Segment { row, x, n })
        })
    }

    /// What each of some places multiplies by one tap of one channel.
    fn gather(&self, plane: &[f32], tap: usize, first: usize, out: &mut [f32]) {
        let tap = self.tap(tap);
        let inside = self.inside(tap[2]);
        let mut rest = out;
        let len = rest.len();
        for Segment { row, x, n } in self.rows(tap, first, len) {
            let (to, after) = std::mem::take(&mut rest).split_at_mut(n);
            rest = after;
            let (low, high) = (inside.start.clamp(x, x + n), inside.end.clamp(x, x + n));
            let Some(row) = row.filter(|_| low < high) else {
                to.fill(0.0);
                continue;
            };
            to[..low - x].fill(0.0);
            to[high - x..].fill(0.0);
            let from = row + low * self.stride[2] + tap[2] * self.dilation[2] - self.pad[2];
            let to = &mut to[low - x..high - x];
            match self.stride[2] {
                1 => to.copy_from_slice(&plane[from..][..to.len()]),
                stride => {
                    let source = plane[from..].iter().step_by(stride);
                    to.iter_mut().zip(source).for_each(|(to, &x)| *to = x);
                }
            }
        }
    }

    /// Adds one tap of one channel to the places of `out`, a whole plane.
    fn accumulate(&self, plane: &[f32], tap: usize, weight: f32, out: &mut [f32]) {
        let tap = self.tap(tap);
        let inside = self.inside(tap[2]);
        let mut rest = out;
        let len = rest.len();
        for Segment { row, n, .. } in self.rows(tap, 0, len) {
            let (to, after) = std::mem::take(&mut rest).split_at_mut(n);
            rest = after;
            let Some(row) = row.filter(|_| !inside.is_empty()) else { continue };
            let from =
                row + inside.start * self.stride[2] + tap[2] * self.dilation[2] - self.pad[2];
            add_multiple(weight, &plane[from..], self.stride[2], &mut to[inside.clone()]);
        }
    }
}

/// A row of places and what it reads.
struct Segment {
    /// Where the input's row begins.
    row: Option<usize>,
    x: usize,
    n: usize,
}

per_isa! {
    fn add_multiple(weight: f32, x: &[f32], stride: usize, out: &mut [f32]) = add_each_multiple
}

#[inline(always)]
fn add_each_multiple(weight: f32, x: &[f32], stride: usize, out: &mut [f32]) {
    match stride {
        1 => out.iter_mut().zip(x).for_each(|(y, &x)| *y = weight.mul_add(x, *y)),
        _ => {
            let x = x.iter().step_by(stride);
            out.iter_mut().zip(x).for_each(|(y, &x)| *y = weight.mul_add(x, *y));
        }
    }
}

/// The definition, without bias and rounding: output channel after output channel.
pub fn convolve_plainly(w: &Windows, planes: &[f32], weight: &[f32], out: &mut [f32]) {
    let (depth, n_places, n_taps) = (w.depth(), w.n_places(), w.n_taps());
    for (i, out) in out.chunks_exact_mut(n_places.max(1)).enumerate() {
        let weight = &weight[i * depth..][..depth];
        for (place, y) in out.iter_mut().enumerate() {
            let [_, height, width] = w.output;
            let at = [place / (height * width), place / width % height, place % width];
            let mut whole = 0.0f32;
            let mut sum = 0.0f32;
            for (k, &weight) in weight.iter().enumerate() {
                if k > 0 && k % CHAIN == 0 {
                    whole += std::mem::take(&mut sum);
                }
                let tap = w.tap(k % n_taps);
                let from: Option<usize> = (0..3).try_fold(0, |flat, axis| {
                    Some(flat * w.input[axis] + w.reads(axis, at[axis], tap[axis])?)
                });
                let x = from.map_or(0.0, |from| planes[k / n_taps * w.plane() + from]);
                sum = weight.mul_add(x, sum);
            }
            *y = if depth > CHAIN { whole + sum } else { sum };
        }
    }
}

/// Every image times every group: `input` is `[images, groups * channels, plane]`, `weight`
/// `[groups * outputs, depth]`, `out` `[images, groups * outputs, places]`. `epilogue` gives what
/// follows for a group.
pub fn convolve<'e>(
    w: &Windows,
    (groups, outputs): (usize, usize),
    input: &[f32],
    weight: &[f32],
    out: &mut [f32],
    epilogue: impl Fn(usize) -> Epilogue<'e> + Sync,
) {
    let (depth, n_places) = (w.depth(), w.n_places());
    let group_input = w.channels * w.plane();
    if n_places == 0 || outputs == 0 {
        return;
    }
    if depth == 0 || w.plane() == 0 {
        out.fill(0.0);
    }
    let in_tiles = epilogue(0).rounding.adds_in_tiles();
    let has_work = outputs > 1 && depth > 0 && w.plane() > 0;
    if let Some(frame) = framed::Frame::of(w).filter(|_| has_work && !in_tiles) {
        return framed::convolve(&frame, (groups, outputs), input, weight, out, epilogue);
    }
    // One output alone is a sum of shifted rows, which knows no tiles.
    let by_row = outputs == 1 && !in_tiles;
    let step = match by_row {
        true => n_places,
        _ => (PATCHES / depth.clamp(1, CHAIN)).clamp(32, 4096).min(n_places),
    };
    let mut tasks = Vec::new();
    for (i, out) in out.chunks_exact_mut(outputs * n_places).enumerate() {
        let mut rest = Rows::new(out, outputs, n_places);
        for first in (0..n_places).step_by(step) {
            tasks.push((i, first, rest.take_cols(step.min(n_places - first))));
        }
    }
    // Rows of long sums lie so far apart that a tile of them would not stay in the cache.
    let packed: Vec<Vec<PackedLeft>> = match !by_row && depth > CHAIN {
        true => (0..groups).map(|group| packed_chains(w, outputs, weight, group)).collect(),
        false => vec![Vec::new(); groups],
    };
    let run = |memory: &mut Memory, (i, first, out): (usize, usize, Rows<'_>)| {
        let group = i % groups;
        let planes = &input[i * group_input..][..group_input];
        let weight = &weight[group * outputs * depth..][..outputs * depth];
        let epilogue = epilogue(group);
        if by_row {
            return by_rows(w, planes, weight, out, &epilogue);
        }
        let tile = Tile { w, planes, outputs, first };
        match depth <= CHAIN {
            true => {
                let patches = tile.gather(0..depth, out.n_cols(), &mut memory.patches);
                multiply(View::new(weight, outputs, depth), patches, out, &epilogue);
            }
            false => tile.multiply_in_chains(&packed[group], memory, out, &epilogue),
        }
    };
    if rayon::current_num_threads() == 1 || tasks.len() == 1 {
        let mut memory = Memory::default();
        tasks.into_iter().for_each(|task| run(&mut memory, task));
    } else {
        tasks.into_par_iter().for_each_init(Memory::default, run);
    }
}

/// What a thread uses again from tile to tile.
#[derive(Default)]
struct Memory {
    patches: Vec<f32>,
    products: Vec<f32>,
}

/// Some places of one group, and what makes them.
struct Tile<'a> {
    w: &'a Windows,
    planes: &'a [f32],
    outputs: usize,
    /// The first place.
    first: usize,
}

impl Tile<'_> {
    /// What the places multiply over some of the depth.
    fn gather<'m>(&self, depth: Range<usize>, n: usize, patches: &'m mut Vec<f32>) -> View<'m> {
        let w = self.w;
        patches.resize(depth.len() * n, 0.0);
        for (k, to) in depth.clone().zip(patches.chunks_exact_mut(n)) {
            let plane = &self.planes[k / w.n_taps() * w.plane()..][..w.plane()];
            w.gather(plane, k % w.n_taps(), self.first, to);
        }
        View::new(patches, depth.len(), n)
    }

    /// The product as a sum of shorter ones.
    fn multiply_in_chains(
        &self,
        weights: &[PackedLeft],
        memory: &mut Memory,
        mut out: Rows<'_>,
        epilogue: &Epilogue<'_>,
    ) {
        let n = out.n_cols();
        out.iter_mut().for_each(|row| row.fill(0.0));
        memory.products.resize(self.outputs * n, 0.0);
        let unstored = Epilogue { rounding: epilogue.rounding.unstored(), ..Epilogue::default() };
        for (weight, part) in weights.iter().zip(chains(self.w.depth())) {
            let patches = self.gather(part, n, &mut memory.patches);
            let rows = Rows::new(&mut memory.products, self.outputs, n);
            multiply(weight, patches, rows, &unstored);
            for (row, products) in out.iter_mut().zip(memory.products.chunks_exact(n)) {
                row.iter_mut().zip(products).for_each(|(y, p)| *y += p);
            }
        }
        epilogue.finish(&mut out);
    }
}

/// A depth in chains.
fn chains(depth: usize) -> impl Iterator<Item = Range<usize>> {
    (0..depth).step_by(CHAIN).map(move |start| start..(start + CHAIN).min(depth))
}

/// The weight of a group, chain by chain, in the order tiles read.
fn packed_chains(w: &Windows, outputs: usize, weight: &[f32], group: usize) -> Vec<PackedLeft> {
    let depth = w.depth();
    let weight = &weight[group * outputs * depth..][..outputs * depth];
    let packed = |part: Range<usize>| {
        PackedLeft::new(View::strided(&weight[part.start..], outputs, part.len(), depth, 1))
    };
    chains(depth).map(packed).collect()
}

/// One output channel: a sum of shifted rows.
fn by_rows(
    w: &Windows,
    planes: &[f32],
    weight: &[f32],
    mut out: Rows<'_>,
    epilogue: &Epilogue<'_>,
) {
    let start = epilogue.rounding.sums_from();
    for row in out.iter_mut() {
        row.fill(start);
        let mut chain = Vec::new();
        for (k, &weight) in weight.iter().enumerate() {
            if k % CHAIN == 0 && k > 0 {
                chain.clear();
                chain.resize(row.len(), start);
            }
            let (channel, tap) = (k / w.n_taps(), k % w.n_taps());
            let plane = &planes[channel * w.plane()..][..w.plane()];
            let to = if k < CHAIN { &mut *row } else { &mut chain[..] };
            w.accumulate(plane, tap, weight, to);
            let ends = (k + 1) % CHAIN == 0 || k + 1 == w.depth();
            if k >= CHAIN && ends {
                row.iter_mut().zip(&chain).for_each(|(y, p)| *y += p - start);
            }
            if k < CHAIN && ends {
                row.iter_mut().for_each(|y| *y -= start);
            }
        }
    }
    epilogue.finish(&mut out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ane::{Rule, RuleSet};
    use crate::kernels::gemm::Bias;
    use crate::kernels::rounding::Rounding;

    fn numbers(n: usize, seed: u64) -> Vec<f32> {
        let mut state = seed * 2 + 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        };
        (0..n).map(|_| next()).collect()
    }

    #[test]
    fn the_fast_path_gives_the_same_bits() {
        for (input, kernel, stride, dilation, pad, behind) in [
            ([1, 1, 50], [1, 1, 3], [1, 1, 1], [1, 1, 1], [0, 0, 1], [0, 0, 1]),
            ([1, 1, 50], [1, 1, 5], [1, 1, 3], [1, 1, 2], [0, 0, 7], [0, 0, 0]),
            ([1, 7, 9], [1, 3, 3], [1, 1, 1], [1, 1, 1], [0, 1, 1], [0, 1, 1]),
            ([1, 7, 9], [1, 3, 2], [1, 2, 3], [1, 2, 1], [0, 0, 4], [0, 2, 1]),
            ([4, 5, 3], [2, 3, 3], [1, 2, 1], [1, 1, 1], [1, 0, 2], [0, 1, 2]),
            ([1, 40, 40], [1, 3, 3], [1, 1, 1], [1, 1, 1], [0, 1, 1], [0, 1, 1]),
            ([1, 1, 300], [1, 1, 5], [1, 1, 3], [1, 1, 2], [0, 0, 7], [0, 0, 1]),
            ([1, 23, 41], [1, 3, 2], [1, 2, 3], [1, 2, 1], [0, 0, 4], [0, 2, 1]),
            ([9, 10, 13], [2, 3, 3], [1, 2, 1], [2, 1, 1], [1, 0, 2], [0, 1, 2]),
        ] {
            let output = std::array::from_fn(|i| {
                let span = (kernel[i] - 1) * dilation[i] + 1;
                (input[i] + pad[i] + behind[i] - span) / stride[i] + 1
            });
            for (channels, outputs, groups, images) in [
                (3, 5, 1, 2),
                (1, 1, 4, 1),
                (2, 1, 3, 2),
                (2, 3, 2, 1),
                (900, 3, 1, 1),
                (900, 1, 1, 1),
            ] {
                let w = Windows { channels, input, output, kernel, stride, dilation, pad };
                let x = numbers(images * groups * channels * w.plane(), 3);
                let weight = numbers(groups * outputs * w.depth(), 5);
                let bias = numbers(groups * outputs, 7);
                let n = outputs * w.n_places();
                let mut plain = vec![f32::NAN; images * groups * n];
                for (i, out) in plain.chunks_exact_mut(n).enumerate() {
                    let planes = &x[i * channels * w.plane()..][..channels * w.plane()];
                    let group = i % groups;
                    let weight = &weight[group * outputs * w.depth()..][..outputs * w.depth()];
                    convolve_plainly(&w, planes, weight, out);
                    for (row, out) in out.chunks_exact_mut(w.n_places()).enumerate() {
                        out.iter_mut().for_each(|y| *y += bias[group * outputs + row]);
                    }
                }
                let mut fast = vec![f32::NAN; plain.len()];
                convolve(&w, (groups, outputs), &x, &weight, &mut fast, |group| Epilogue {
                    bias: Bias::PerRow(&bias[group * outputs..][..outputs]),
                    ..Epilogue::default()
                });
                let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&fast), bits(&plain), "{w:?} {groups}");
            }
        }
    }

    #[test]
    fn sums_of_the_engine_go_in_steps() {
        let step = RuleSet::NONE.with(Rule::FixedAccumulator);
        // Framed, gathered, and by rows; one chain and two.
        for (channels, outputs, extent) in [(3, 5, 40), (900, 3, 8), (900, 3, 40), (2, 1, 20)] {
            let [kernel, pad] = [[1, 3, 3], [0, 1, 1]];
            let input = [1, extent, extent];
            let (stride, dilation) = ([1, 1, 1], [1, 1, 1]);
            let w = Windows { channels, input, output: input, kernel, stride, dilation, pad };
            let small = |n, seed| numbers(n, seed).iter().map(|x| x * 0.03).collect::<Vec<f32>>();
            let (x, weight) = (small(channels * w.plane(), 3), small(outputs * w.depth(), 5));
            let mut plain = vec![0.0; outputs * w.n_places()];
            convolve_plainly(&w, &x, &weight, &mut plain);
            for rules in [step, step.with(Rule::FlushDenormals), step.with(Rule::Fp16Tiles)] {
                let rounding = Rounding::Ane(rules);
                let mut found = vec![f32::NAN; plain.len()];
                convolve(&w, (1, outputs), &x, &weight, &mut found, |_| Epilogue {
                    rounding,
                    ..Epilogue::default()
                });
                let root = (w.depth() as f32).sqrt();
                for (found, plain) in found.iter().zip(&plain) {
                    assert_eq!((found * 65_536.0).fract(), 0.0, "{found} is no number of steps");
                    assert!((found - plain).abs() < 4e-5 * root, "{found} {plain}, {rules:?}");
                }
                assert_ne!(found, plain);
            }
        }
    }
}
