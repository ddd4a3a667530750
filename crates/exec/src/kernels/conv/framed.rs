//! Convolution without gathering: the input in a frame of zeros, seen from each tap's place.
//!
//! In a frame, what the taps of one place read lies at fixed distances, and so it does for the place
//! after it: a row of the patches is the frame itself, from another number on. Places are counted
//! along the frame's rows, which are a little wider than the output's; what falls between is computed
//! and left out. With strides, the numbers of every `stride`-th column and row lie together, in a
//! frame of their own.

use std::cell::RefCell;

use rayon::prelude::*;

use super::{CHAIN, Windows};
use crate::kernels::gemm::{Epilogue, OVERREAD, PackedLeft, Rows, Shifted, View, multiply_shifted};

/// How the numbers of one group of one image lie in frames.
pub(super) struct Frame<'w> {
    w: &'w Windows,
    /// Extents of one frame: that of one channel and one phase of the strides.
    extent: [usize; 3],
    /// For each number of the weight of one output, where the first place reads.
    offsets: Vec<usize>,
}

/// More work than this times what is needed is not done for the sake of not gathering.
const WASTE_MAX: f64 = 1.4;

impl<'w> Frame<'w> {
    /// The frame for `w`, unless too much of it would be its edge.
    pub fn of(w: &'w Windows) -> Option<Frame<'w>> {
        let extent: [usize; 3] = std::array::from_fn(|i| {
            let read =
                (w.output[i].max(1) - 1) * w.stride[i] + (w.kernel[i] - 1) * w.dilation[i] + 1;
            read.div_ceil(w.stride[i])
        });
        let [_, height, width] = extent;
        let counted = w.output[0] * height * width;
        if w.n_places() < 32 || counted as f64 > WASTE_MAX * w.n_places() as f64 {
            return None;
        }
        let size: usize = extent.iter().product();
        let n_phases: usize = w.stride.iter().product();
        let offset = |k: usize| {
            let (channel, tap) = (k / w.n_taps(), w.tap(k % w.n_taps()));
            let at: [usize; 3] = std::array::from_fn(|i| tap[i] * w.dilation[i]);
            let phase = flat(std::array::from_fn(|i| at[i] % w.stride[i]), w.stride);
            let inner = flat(std::array::from_fn(|i| at[i] / w.stride[i]), extent);
            (channel * n_phases + phase) * size + inner
        };
        let offsets = (0..w.depth()).map(offset).collect();
        Some(Frame { w, extent, offsets })
    }

    /// Numbers of a frame.
    fn size(&self) -> usize {
        self.extent.iter().product()
    }

    /// The channels of a group, each in a frame for each phase, in `frames`.
    fn fill(&self, planes: &[f32], frames: &mut Vec<f32>) {
        let w = self.w;
        let n_phases: usize = w.stride.iter().product();
        let channel = n_phases * self.size();
        frames.resize(w.channels * channel + OVERREAD, 0.0);
        let one = |(frames, plane): (&mut [f32], &[f32])| {
            for (phase, frame) in frames.chunks_exact_mut(self.size()).enumerate() {
                let [h, x] = [w.stride[1], w.stride[2]];
                self.fill_one(plane, [phase / (h * x), phase / x % h, phase % x], frame);
            }
        };
        let all = frames[..w.channels * channel].par_chunks_exact_mut(channel);
        all.zip(planes.par_chunks_exact(w.plane())).for_each(one);
    }

    /// The numbers of `plane` that one phase of the strides reads.
    fn fill_one(&self, plane: &[f32], phase: [usize; 3], frame: &mut [f32]) {
        let w = self.w;
        let [_, height, width] = self.extent;
        // Along axis `axis`, what place `i` of the frame is in the input, if it is no padding.
        let source = |axis: usize, i: usize| {
            let padded = i * w.stride[axis] + phase[axis];
            padded.checked_sub(w.pad[axis]).filter(|&p| p < w.input[axis])
        };
        for (row, to) in frame.chunks_exact_mut(width).enumerate() {
            let Some((z, y)) = source(0, row / height).zip(source(1, row % height)) else {
                to.fill(0.0);
                continue;
            };
            let from = &plane[(z * w.input[1] + y) * w.input[2]..][..w.input[2]];
            let stride = w.stride[2];
            let first = w.pad[2].saturating_sub(phase[2]).div_ceil(stride).min(width);
            let (before, to) = to.split_at_mut(first);
            before.fill(0.0);
            let begin = (first * stride + phase[2]).saturating_sub(w.pad[2]);
            let from = from.get(begin..).unwrap_or_default();
            let (to, behind) = to.split_at_mut(from.len().div_ceil(stride).min(to.len()));
            behind.fill(0.0);
            match stride {
                1 => to.copy_from_slice(&from[..to.len()]),
                _ => to.iter_mut().zip(from.iter().step_by(stride)).for_each(|(to, x)| *to = *x),
            }
        }
    }
}

/// The place of `at` in a row of all places of `extent`.
fn flat(at: [usize; 3], extent: [usize; 3]) -> usize {
    (at[0] * extent[1] + at[1]) * extent[2] + at[2]
}

/// As [`super::convolve`].
pub(super) fn convolve<'e>(
    frame: &Frame<'_>,
    (groups, outputs): (usize, usize),
    input: &[f32],
    weight: &[f32],
    out: &mut [f32],
    epilogue: impl Fn(usize) -> Epilogue<'e> + Sync,
) {
    let w = frame.w;
    let (depth, n_places) = (w.depth(), w.n_places());
    let pack = |group: usize| {
        let weight = &weight[group * outputs * depth..][..outputs * depth];
        PackedLeft::new(View::new(weight, outputs, depth))
    };
    let packed: Vec<PackedLeft> = (0..groups).map(pack).collect();
    let group_input = w.channels * w.plane();
    let each = |(i, out): (usize, &mut [f32])| {
        let (group, planes) = (i % groups, &input[i * group_input..][..group_input]);
        let mut frames = MEMORY.with_borrow_mut(Vec::pop).unwrap_or_default();
        frame.fill(planes, &mut frames);
        let epilogue = epilogue(group);
        let right = Shifted { data: &frames, offsets: &frame.offsets, chain: CHAIN };
        bands(frame, Rows::new(out, outputs, n_places), outputs * depth, |lines, mut out| {
            frame.band(&packed[group], right, lines, &mut out, &epilogue);
        });
        MEMORY.with_borrow_mut(|kept| kept.push(frames));
    };
    let images = out.chunks_exact_mut(outputs * n_places).enumerate();
    let n_threads = rayon::current_num_threads();
    // Many small groups run side by side, few large ones are divided.
    match images.len() >= 4 * n_threads && n_threads > 1 {
        true => images.collect::<Vec<_>>().into_par_iter().for_each(each),
        false => images.for_each(each),
    }
}

thread_local! {
    /// Frames of earlier calls: memory that is new from the system costs as much as filling it. More
    /// than one while a thread that waits takes up another call.
    static MEMORY: RefCell<Vec<Vec<f32>>> = RefCell::default();
}

/// Multiply-adds worth handing to another thread.
const BAND_WORK_MIN: usize = 1 << 21;

/// Cuts the output into bands of whole lines (rows of places) and runs them on all threads.
fn bands<'o>(
    frame: &Frame<'_>,
    mut rest: Rows<'o>,
    work_per_place: usize,
    run: impl Fn(std::ops::Range<usize>, Rows<'o>) + Sync,
) {
    let [depth, height, width] = frame.w.output;
    let (n_lines, n_threads) = (depth * height, rayon::current_num_threads());
    let work = work_per_place * frame.w.n_places();
    let n_bands = (work / BAND_WORK_MIN).clamp(1, 8 * n_threads).min(n_lines);
    let together = n_lines.div_ceil(if n_threads == 1 { 1 } else { n_bands });
    let mut tasks = Vec::new();
    for first in (0..n_lines).step_by(together) {
        let lines = first..n_lines.min(first + together);
        let out = rest.take_cols(lines.len() * width);
        tasks.push((lines, out));
    }
    match tasks.len() {
        1 => tasks.into_iter().for_each(|(lines, out)| run(lines, out)),
        _ => tasks.into_par_iter().with_max_len(1).for_each(|(lines, out)| run(lines, out)),
    }
}

impl Frame<'_> {
    /// Lines `lines` of the output into `out`, whose columns are just their places.
    fn band(
        &self,
        left: &PackedLeft,
        right: Shifted<'_>,
        lines: std::ops::Range<usize>,
        out: &mut Rows<'_>,
        epilogue: &Epilogue<'_>,
    ) {
        let [_, height, width] = self.w.output;
        let [_, frame_height, frame_width] = self.extent;
        // Where a line begins, counted along the frame.
        let begin = |line: usize| (line / height * frame_height + line % height) * frame_width;
        let last = begin(lines.end - 1) + width;
        multiply_shifted(left, right, begin(lines.start)..last, &mut |row, first, tile| {
            epilogue.finish_tile(tile, (row, 0));
            let n = tile.first().map_or(0, |r| r.len());
            let mut at = 0;
            while at < n {
                let place = first + at;
                let (x, y) = (place % frame_width, place / frame_width);
                let (z, y) = (y / frame_height, y % frame_height);
                if x >= width || y >= height {
                    // Up to the next line of the frame.
                    at += frame_width - x;
                    continue;
                }
                let taken = (width - x).min(n - at);
                let to = (z * height + y - lines.start) * width + x;
                for (i, tile) in tile.iter().enumerate() {
                    out.row_mut(row + i)[to..to + taken].copy_from_slice(&tile[at..at + taken]);
                }
                at += taken;
            }
        });
    }
}
