//! Pools and transposed convolution: windows on planes of up to three spatial axes.

use rayon::prelude::*;
use russet_ir::ops::{ConvAxis, ConvTranspose, Pool};

use super::{Operands, checked_len};
use crate::kernels::gemm::{Epilogue, Rows, View, multiply};
use crate::{Array, ExecError};

/// What a pool makes of the numbers in its window.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    /// Over the window's size, or over the numbers that are no padding.
    Mean {
        exclude_padding: bool,
    },
    Max,
    L2,
}

/// An axis of a window that may be missing: planes always have three.
#[derive(Clone, Copy)]
struct Axis {
    kernel: usize,
    stride: usize,
    pad: usize,
    /// Extent and padding behind it: where counted padding ends.
    n: usize,
    end: usize,
    out: usize,
}

impl Axis {
    const NONE: Axis = Axis { kernel: 1, stride: 1, pad: 0, n: 1, end: 1, out: 1 };

    fn of((a, out): (ConvAxis, u64), n: usize) -> Axis {
        let (kernel, stride) = (a.kernel as usize, a.stride as usize);
        let (pad, behind) = (a.pad.0 as usize, a.pad.1 as usize);
        Axis { kernel, stride, pad, n, end: n.saturating_add(behind), out: out as usize }
    }

    /// Places of the input that window `i` covers, and how many with the padding.
    fn covered(&self, i: usize) -> (std::ops::Range<usize>, usize) {
        let first = i * self.stride;
        let inside = |p: usize| p.saturating_sub(self.pad).min(self.n);
        // A window that sticks out of the padding too counts only what is there.
        let last = (first + self.kernel).min(self.end.saturating_add(self.pad));
        (inside(first)..inside(first + self.kernel), last.saturating_sub(first).max(1))
    }
}

/// The three spatial axes, the missing ones first.
fn three(axes: Vec<Axis>) -> [Axis; 3] {
    let mut all = [Axis::NONE; 3];
    let skipped = 3 - axes.len();
    all[skipped..].copy_from_slice(&axes);
    all
}

pub(super) fn pool(
    x: &Operands<'_>,
    of: Of,
    v: russet_ir::Value,
    pool: Pool<'_>,
) -> Result<Array, ExecError> {
    let a = x.array(v)?;
    if !(3..=5).contains(&a.shape.len()) {
        return Err(x.fail(format!("{:?} has no spatial axes", a.shape)));
    }
    let extents: Vec<u64> = a.shape[2..].iter().map(|&n| n as u64).collect();
    let axes = pool.axes(&extents).map_err(|e| x.fail(e.to_string()))?;
    let mut shape = a.shape[..2].to_vec();
    shape.extend(axes.iter().map(|a| a.1 as usize));
    let mut out = vec![0.0; checked_len(&shape)?];
    let axes = axes.into_iter().zip(&a.shape[2..]).map(|(axis, &n)| Axis::of(axis, n));
    let axes = three(axes.collect());
    let (plane, made) = (axes.iter().map(|a| a.n).product::<usize>(), axes.iter().map(|a| a.out));
    let made: usize = made.product();
    if made > 0 && plane > 0 {
        let planes = x.floats(&a)?.par_chunks_exact(plane).zip(out.par_chunks_exact_mut(made));
        // Small planes are not worth handing to another thread one by one.
        let planes = planes.with_min_len((1 << 14) / plane + 1);
        planes.for_each(|(from, to)| pool_plane(of, from, &axes, to));
    }
    Ok(x.stored(shape, out))
}

fn pool_plane(of: Of, x: &[f32], [d, h, w]: &[Axis; 3], out: &mut [f32]) {
    let mut out = out.iter_mut();
    for i in 0..d.out {
        let (depths, n_d) = d.covered(i);
        for j in 0..h.out {
            let (rows, n_h) = h.covered(j);
            for k in 0..w.out {
                let (cols, n_w) = w.covered(k);
                let lines = depths.clone().flat_map(|z| rows.clone().map(move |y| z * h.n + y));
                let numbers = lines.flat_map(|line| &x[line * w.n..][cols.clone()]);
                let n = depths.len() * rows.len() * cols.len();
                let made = match of {
                    // NaN wins, as it does in PyTorch.
                    Of::Max => numbers
                        .fold(f32::NEG_INFINITY, |m, &v| if v > m || v.is_nan() { v } else { m }),
                    Of::Mean { exclude_padding } => {
                        let n = if exclude_padding { n } else { n_d * n_h * n_w };
                        numbers.sum::<f32>() / n as f32
                    }
                    Of::L2 => numbers.map(|v| v * v).sum::<f32>().sqrt(),
                };
                *out.next().expect("one for each window") = made;
            }
        }
    }
}

/// Each element of the input adds its multiple of the kernel: one product for all multiples, then
/// sums of those that fall on one place.
pub(super) fn conv_transpose(x: &Operands<'_>, op: &ConvTranspose) -> Result<Array, ExecError> {
    let (a, w) = (x.array(op.x)?, x.array(op.weight)?);
    let bias = x.optional(op.bias)?;
    let bias = bias.as_deref().map(|b| x.floats(b)).transpose()?;
    let groups = usize::try_from(op.groups).ok().filter(|&g| g > 0);
    let groups = groups.ok_or_else(|| x.fail(format!("{} groups", op.groups)))?;
    let fits = (3..=5).contains(&a.shape.len())
        && w.shape.len() == a.shape.len()
        && w.shape[0] == a.shape[1]
        && a.shape[1].is_multiple_of(groups)
        && bias.is_none_or(|b| b.len() == w.shape[1] * groups);
    if !fits {
        return Err(x.fail(format!("{:?} with a weight of {:?}", a.shape, w.shape)));
    }
    let as_u64 = |s: &[usize]| s.iter().map(|&d| d as u64).collect::<Vec<u64>>();
    let axes = op.axes(&as_u64(&w.shape[2..]), &as_u64(&a.shape[2..]));
    let axes = axes.map_err(|e| x.fail(e.to_string()))?;
    let (per_group, channels) = (w.shape[1], a.shape[1] / groups);
    let mut shape = vec![a.shape[0], per_group * groups];
    shape.extend(axes.iter().map(|a| a.1 as usize));
    let mut out = vec![0.0; checked_len(&shape)?];
    let n_out: usize = shape[2..].iter().product();
    let n_in: usize = a.shape[2..].iter().product();
    let n_taps: usize = w.shape[2..].iter().product();
    if n_out == 0 || n_in == 0 {
        return Ok(x.stored(shape, out));
    }
    let landing = Landing::new(&axes, &w.shape[2..], &a.shape[2..], &shape[2..]);
    let n_rows = per_group * n_taps;
    let mut multiples = vec![0.0; checked_len(&[n_rows, n_in])?];
    let (input, weight) = (x.floats(&a)?, x.floats(&w)?);
    for (i, out) in out.chunks_exact_mut((per_group * n_out).max(1)).enumerate() {
        let group = i % groups;
        let first = (i / groups * a.shape[1] + group * channels) * n_in;
        let kernels = View::new(&weight[group * channels * n_rows..], channels, n_rows);
        multiply(
            kernels.transposed(),
            View::new(&input[first..][..channels * n_in], channels, n_in),
            Rows::new(&mut multiples, n_rows, n_in),
            &Epilogue::default(),
        );
        for (channel, plane) in out.chunks_exact_mut(n_out).enumerate() {
            if let Some(b) = bias {
                plane.fill(b[group * per_group + channel]);
            }
            for tap in 0..n_taps {
                landing.add(tap, &multiples[(channel * n_taps + tap) * n_in..][..n_in], plane);
            }
        }
    }
    Ok(x.stored(shape, out))
}

/// Where a tap of the kernel lands for each place of the input.
struct Landing {
    /// By spatial axis: stride, dilation, and how much is cut off before.
    axes: [(usize, usize, usize); 3],
    kernel: [usize; 3],
    input: [usize; 3],
    output: [usize; 3],
}

impl Landing {
    fn new(
        axes: &[(ConvAxis, u64)],
        kernel: &[usize],
        input: &[usize],
        output: &[usize],
    ) -> Landing {
        let pad = |s: &[usize]| {
            let mut all = [1; 3];
            all[3 - s.len()..].copy_from_slice(s);
            all
        };
        let mut all = [(1, 1, 0); 3];
        for (to, (a, _)) in all[3 - axes.len()..].iter_mut().zip(axes) {
            *to = (a.stride as usize, a.dilation as usize, a.pad.0 as usize);
        }
        Landing { axes: all, kernel: pad(kernel), input: pad(input), output: pad(output) }
    }

    fn add(&self, tap: usize, from: &[f32], plane: &mut [f32]) {
        let [_, kh, kw] = self.kernel;
        let taps = [tap / (kh * kw), tap / kw % kh, tap % kw];
        let place = |axis: usize, i: usize| {
            let (stride, dilation, cut) = self.axes[axis];
            let at = (i * stride + taps[axis] * dilation).checked_sub(cut)?;
            (at < self.output[axis]).then_some(at)
        };
        let [d, h, w] = self.input;
        for i in 0..d {
            let Some(z) = place(0, i) else { continue };
            for j in 0..h {
                let Some(y) = place(1, j) else { continue };
                let row = &from[(i * h + j) * w..][..w];
                let line = &mut plane[(z * self.output[1] + y) * self.output[2]..];
                for (k, &v) in row.iter().enumerate() {
                    if let Some(x) = place(2, k) {
                        line[x] += v;
                    }
                }
            }
        }
    }
}
