//! Convolution without gathering: the input in a frame of zeros, seen from each tap's place.
//!
//! In a frame, what the taps of one place read lies at fixed distances, and so it does for the place
//! after it: a row of the patches is the frame itself, from another number on. Places are counted
//! along the frame's rows, which are a little wider than the output's; what falls between is computed
//! and left out. With strides, the numbers of every `stride`-th column and row lie together, in a
//! frame of their own.

use std::cell::RefCell;
use std::ops::Range;

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
        let n_places = w.n_places();
        if n_places < 32 {
            return None;
        }
        let frame = Frame::new(w);
        let counted = w.output[0] * frame.extent[1] * frame.extent[2];
        (counted as f64 <= WASTE_MAX * n_places as f64).then_some(frame)
    }

    fn new(w: &'w Windows) -> Frame<'w> {
        let extent: [usize; 3] = std::array::from_fn(|i| {
            let span = (w.kernel[i] - 1) * w.dilation[i] + 1;
            ((w.output[i].max(1) - 1) * w.stride[i] + span).div_ceil(w.stride[i])
        });
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
        Frame { w, extent, offsets }
    }

    /// Numbers of a frame.
    fn size(&self) -> usize {
        self.extent.iter().product()
    }

    /// The channels of a group, each in a frame for each phase, in `frames`; the frame begins at line
    /// `first` of the output.
    fn fill(&self, planes: &[f32], first: usize, frames: &mut Vec<f32>) {
        let w = self.w;
        let n_phases: usize = w.stride.iter().product();
        let channel = n_phases * self.size();
        frames.resize(w.channels * channel + OVERREAD, 0.0);
        let all = frames[..w.channels * channel].chunks_exact_mut(channel);
        for (frames, plane) in all.zip(planes.chunks_exact(w.plane())) {
            for (phase, frame) in frames.chunks_exact_mut(self.size()).enumerate() {
                let [h, x] = [w.stride[1], w.stride[2]];
                let phase = [phase / (h * x), phase / x % h, phase % x];
                self.fill_one(plane, phase, first, frame);
            }
        }
    }

    /// The numbers of `plane` that one phase of the strides reads.
    fn fill_one(&self, plane: &[f32], phase: [usize; 3], first: usize, frame: &mut [f32]) {
        let w = self.w;
        let [_, height, width] = self.extent;
        // Along axis `axis`, what place `i` of the frame is in the input, if it is no padding.
        let source = |axis: usize, i: usize| {
            let padded = i * w.stride[axis] + phase[axis];
            padded.checked_sub(w.pad[axis]).filter(|&p| p < w.input[axis])
        };
        for (row, to) in frame.chunks_exact_mut(width).enumerate() {
            let Some((z, y)) = source(0, row / height).zip(source(1, first + row % height)) else {
                to.fill(0.0);
                continue;
            };
            let from = &plane[(z * w.input[1] + y) * w.input[2]..][..w.input[2]];
            let stride = w.stride[2];
            let begun = w.pad[2].saturating_sub(phase[2]).div_ceil(stride).min(width);
            let (before, to) = to.split_at_mut(begun);
            before.fill(0.0);
            let begin = (begun * stride + phase[2]).saturating_sub(w.pad[2]);
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
        let all = All { left: &packed[group], planes, epilogue: &epilogue(group) };
        match w.output[0] == 1 && w.output[1] > 1 {
            true => all.by_lines(frame, Rows::new(out, outputs, n_places)),
            false => all.by_places(frame, Rows::new(out, outputs, n_places)),
        }
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

/// Numbers of a frame of some lines: they stay in the second-level cache.
const BAND_FRAME_MAX: usize = 1 << 18;

/// One group of one image.
struct All<'a> {
    left: &'a PackedLeft,
    planes: &'a [f32],
    epilogue: &'a Epilogue<'a>,
}

impl All<'_> {
    /// Some lines of a picture at a time, each in a frame of its own that stays in the cache.
    fn by_lines(&self, frame: &Frame<'_>, mut out: Rows<'_>) {
        let w = frame.w;
        let [_, n_lines, width] = w.output;
        let work = out.n_rows() * w.depth() * width;
        let line = w.channels * w.stride[1] * w.stride[2] * frame.extent[2];
        let edge = (w.kernel[1] - 1) * w.dilation[1] / w.stride[1];
        let fits = (BAND_FRAME_MAX / line.max(1)).saturating_sub(edge).max(edge.max(1));
        let n_threads = rayon::current_num_threads();
        let share = n_lines.div_ceil(4 * n_threads).max(BAND_WORK_MIN.div_ceil(work.max(1)));
        let together = fits.min(share).clamp(1, n_lines);
        let mut bands = Vec::new();
        for first in (0..n_lines).step_by(together) {
            let n = together.min(n_lines - first);
            bands.push((first, n, out.take_cols(n * width)));
        }
        let run = |(first, n, mut out): (usize, usize, Rows<'_>)| {
            let band = Windows { output: [1, n, width], ..*w };
            let frame = Frame::new(&band);
            with_memory(|memory| {
                frame.fill(self.planes, first, memory);
                self.multiply(&frame, memory, 0..n * width, &mut out);
            });
        };
        match bands.len() {
            1 => bands.into_iter().for_each(run),
            _ => bands.into_par_iter().with_max_len(1).for_each(run),
        }
    }

    /// Some places at a time, of one frame.
    fn by_places(&self, frame: &Frame<'_>, mut out: Rows<'_>) {
        let n_places = frame.w.n_places();
        let work = out.n_rows() * frame.w.depth();
        let n_threads = rayon::current_num_threads();
        let share = n_places.div_ceil(4 * n_threads).next_multiple_of(OVERREAD);
        let together = share.max(BAND_WORK_MIN.div_ceil(work.max(1))).min(n_places);
        let mut bands = Vec::new();
        for first in (0..n_places).step_by(together) {
            let n = together.min(n_places - first);
            bands.push((first..first + n, out.take_cols(n)));
        }
        with_memory(|memory| {
            frame.fill(self.planes, 0, memory);
            let memory = &memory[..];
            let run = |(places, mut out): (Range<usize>, Rows<'_>)| {
                self.multiply(frame, memory, places, &mut out);
            };
            match bands.len() {
                1 => bands.into_iter().for_each(run),
                _ => bands.into_par_iter().with_max_len(1).for_each(run),
            }
        });
    }

    /// Places `places` of the frame's output into `out`, which has a column for each.
    fn multiply(
        &self,
        frame: &Frame<'_>,
        frames: &[f32],
        places: Range<usize>,
        out: &mut Rows<'_>,
    ) {
        let [_, height, width] = frame.w.output;
        let [_, frame_height, frame_width] = frame.extent;
        // Where a place is, counted along the frame.
        let along = |place: usize| {
            let (line, x) = (place / width, place % width);
            (line / height * frame_height + line % height) * frame_width + x
        };
        let columns = along(places.start)..along(places.end - 1) + 1;
        let right = Shifted { data: frames, offsets: &frame.offsets, chain: CHAIN };
        multiply_shifted(self.left, right, columns, self.epilogue, &mut |mut tile| {
            let mut at = 0;
            while at < tile.n_columns {
                let place = tile.column + at;
                let (x, y) = (place % frame_width, place / frame_width);
                let (z, y) = (y / frame_height, y % frame_height);
                if x >= width || y >= height {
                    // Up to the next line of the frame.
                    at += frame_width - x;
                    continue;
                }
                let taken = (width - x).min(tile.n_columns - at);
                let to = (z * height + y) * width + x - places.start;
                for i in 0..tile.n_rows {
                    let (row, from) = (tile.row + i, &tile.row_mut(i)[at..at + taken]);
                    out.row_mut(row)[to..to + taken].copy_from_slice(from);
                }
                at += taken;
            }
        });
    }
}

/// Memory of an earlier call, to be used again.
fn with_memory(f: impl FnOnce(&mut Vec<f32>)) {
    let mut memory = MEMORY.with_borrow_mut(Vec::pop).unwrap_or_default();
    f(&mut memory);
    MEMORY.with_borrow_mut(|kept| kept.push(memory));
}
