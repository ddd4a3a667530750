//! Matrix products on arrays: linear layers, convolutions, batched matmul.

use russet_ir::ops::{Conv, ConvAxis, Einsum, Linear, Matmul};

use super::{Operands, checked_len};
use crate::kernels::binary::broadcast_shape;
use crate::kernels::conv::{Windows, convolve};
use crate::kernels::gemm::{
    Activation, Bias, Epilogue, Product, Rows, View, multiply, multiply_each,
};
use crate::kernels::rounding::Rounding;
use crate::kernels::strided;
use crate::{Array, ExecError};

pub(super) fn linear(x: &Operands<'_>, op: &Linear) -> Result<Array, ExecError> {
    let (a, w) = (x.array(op.x)?, x.array(op.weight)?);
    let bias = x.optional(op.bias)?;
    let [n_out, depth] = w.shape[..] else { return Err(x.fail("its weight is no matrix")) };
    if a.shape.last() != Some(&depth) {
        return Err(x.fail(format!("{:?} times a weight of {:?}", a.shape, w.shape)));
    }
    let n_rows = a.n_elements().checked_div(depth).unwrap_or(0);
    let mut shape = a.shape.clone();
    *shape.last_mut().expect("checked above") = n_out;
    let n = checked_len(&shape)?;
    if let (Some(p), Some(q)) = (a.as_i32(), w.as_i32()) {
        let bias = bias.as_deref().and_then(Array::as_i32).map(<[i32]>::to_vec);
        let product = MatmulShape::new(&[n_rows, depth], &w.shape, false, true);
        let mut out = matmul_ints(&product.expect("checked above"), p, q);
        let columns = bias.iter().flat_map(|b| b.iter()).cycle();
        out.iter_mut().zip(columns).for_each(|(y, b)| *y = y.wrapping_add(*b));
        return Ok(Array::i32(shape, out));
    }
    let mut out = vec![0.0; n];
    let bias = match &bias {
        Some(b) if b.shape == [n_out] => Bias::PerColumn(x.floats(b)?),
        Some(b) => return Err(x.fail(format!("a bias of {:?} for {n_out} outputs", b.shape))),
        None => Bias::None,
    };
    let epilogue = Epilogue { bias, rounding: x.rounding, ..Epilogue::default() };
    let left = View::new(x.floats(&a)?, n_rows, depth);
    let right = View::new(x.floats(&w)?, n_out, depth).transposed();
    multiply(left, right, Rows::new(&mut out, n_rows, n_out), &epilogue);
    Ok(Array::f32(shape, out))
}

/// The shapes of a batched product.
struct MatmulShape {
    out: Vec<usize>,
    rows: usize,
    depth: usize,
    cols: usize,
    /// For each matrix of the output, which of each operand's it is the product of.
    pairs: Vec<(usize, usize)>,
    transposed: (bool, bool),
}

impl MatmulShape {
    /// `None` when the operands do not fit.
    fn new(x: &[usize], y: &[usize], tx: bool, ty: bool) -> Option<MatmulShape> {
        let (x_batch, x_matrix) = x.split_at_checked(x.len().checked_sub(2)?)?;
        let (y_batch, y_matrix) = y.split_at_checked(y.len().checked_sub(2)?)?;
        let flip = |m: &[usize], t: bool| if t { (m[1], m[0]) } else { (m[0], m[1]) };
        let ((rows, depth), (y_depth, cols)) = (flip(x_matrix, tx), flip(y_matrix, ty));
        if depth != y_depth {
            return None;
        }
        let batch = broadcast_shape(x_batch, y_batch)?;
        let n: usize = batch.iter().product();
        let which = |from: &[usize], mut flat: usize| {
            let (mut at, mut stride) = (0, 1);
            for (i, extent) in batch.iter().enumerate().rev() {
                let mine = (i + from.len()).checked_sub(batch.len()).map(|j| from[j]);
                if let Some(n) = mine {
                    at += if n == 1 { 0 } else { flat % extent * stride };
                    stride *= n;
                }
                flat /= extent;
            }
            at
        };
        let pairs = (0..n).map(|i| (which(x_batch, i), which(y_batch, i))).collect();
        let out = [&batch[..], &[rows, cols]].concat();
        Some(MatmulShape { out, rows, depth, cols, pairs, transposed: (tx, ty) })
    }
}

/// The product of every pair of matrices.
fn matmul_into(shape: &MatmulShape, x: &[f32], y: &[f32], out: &mut [f32], rounding: Rounding) {
    let MatmulShape { rows, depth, cols, .. } = *shape;
    if rows * cols == 0 {
        return;
    }
    let left = |i: usize| {
        let data = &x[i * rows * depth..][..rows * depth];
        match shape.transposed.0 {
            false => View::new(data, rows, depth),
            true => View::new(data, depth, rows).transposed(),
        }
    };
    let right = |i: usize| {
        let data = &y[i * depth * cols..][..depth * cols];
        match shape.transposed.1 {
            false => View::new(data, depth, cols),
            true => View::new(data, cols, depth).transposed(),
        }
    };
    let matrices = out.chunks_exact_mut(rows * cols).zip(&shape.pairs);
    let products = matrices.map(|(out, &(i, j))| Product {
        left: left(i),
        right: right(j),
        out: Rows::new(out, rows, cols),
    });
    multiply_each(products.collect(), &Epilogue { rounding, ..Epilogue::default() });
}

pub(super) fn matmul(x: &Operands<'_>, op: &Matmul) -> Result<Array, ExecError> {
    let (a, b) = (x.array(op.x)?, x.array(op.y)?);
    let shape = MatmulShape::new(&a.shape, &b.shape, op.transpose_x, op.transpose_y);
    let shape = shape.ok_or_else(|| x.fail(format!("{:?} times {:?}", a.shape, b.shape)))?;
    let n = checked_len(&shape.out)?;
    if let (Some(p), Some(q)) = (a.as_i32(), b.as_i32()) {
        return Ok(Array::i32(shape.out.clone(), matmul_ints(&shape, p, q)));
    }
    let mut out = vec![0.0; n];
    matmul_into(&shape, x.floats(&a)?, x.floats(&b)?, &mut out, x.rounding);
    Ok(Array::f32(shape.out, out))
}

/// Matrix products over axes -3 and -1, by way of [`matmul`]: the axes between are moved outwards.
pub(super) fn einsum(x: &Operands<'_>, op: &Einsum) -> Result<Array, ExecError> {
    let [left, right] = op.values[..] else { return Err(x.fail("it has two values")) };
    let (a, b) = (x.array(left)?, x.array(right)?);
    let rank = a.shape.len();
    if !op.is_known() || !(3..=4).contains(&rank) || b.shape.len() != rank {
        return Err(x.fail(format!("{:?} of {:?} and {:?}", op.equation, a.shape, b.shape)));
    }
    // Axes [.., C, H, W] become [.., H, C, W]; the same exchange takes the result back.
    let mut perm: Vec<usize> = (0..rank).collect();
    perm.swap(rank - 3, rank - 2);
    let turned = |shape: &[usize], data: &[f32]| {
        let mut out = vec![0.0; data.len()];
        strided::transpose(data, shape, &perm, &mut out);
        (perm.iter().map(|&p| shape[p]).collect::<Vec<_>>(), out)
    };
    let (a_shape, p) = turned(&a.shape, x.floats(&a)?);
    let (b_shape, q) = turned(&b.shape, x.floats(&b)?);
    let shape = MatmulShape::new(&a_shape, &b_shape, false, false);
    let shape = shape.ok_or_else(|| x.fail(format!("{:?} times {:?}", a.shape, b.shape)))?;
    let mut out = vec![0.0; checked_len(&shape.out)?];
    matmul_into(&shape, &p, &q, &mut out, x.rounding);
    let (shape, out) = turned(&shape.out, &out);
    Ok(Array::f32(shape, out))
}

/// A product of matrices of integers, which wraps.
fn matmul_ints(shape: &MatmulShape, x: &[i32], y: &[i32]) -> Vec<i32> {
    let MatmulShape { rows, depth, cols, .. } = *shape;
    let mut out = Vec::with_capacity(shape.pairs.len() * rows * cols);
    for &(i, j) in &shape.pairs {
        let (x, y) = (&x[i * rows * depth..], &y[j * depth * cols..]);
        let left = |r: usize, k: usize| {
            if shape.transposed.0 { x[k * rows + r] } else { x[r * depth + k] }
        };
        let right = |k: usize, c: usize| {
            if shape.transposed.1 { y[c * depth + k] } else { y[k * cols + c] }
        };
        for (r, c) in (0..rows).flat_map(|r| (0..cols).map(move |c| (r, c))) {
            let sum = |n: i32, k: usize| n.wrapping_add(left(r, k).wrapping_mul(right(k, c)));
            out.push((0..depth).fold(0, sum));
        }
    }
    out
}

/// A convolution as one matrix product per group: each output channel times the patches it sees.
pub(super) fn conv(x: &Operands<'_>, op: &Conv) -> Result<Array, ExecError> {
    let (a, w) = (x.array(op.x)?, x.array(op.weight)?);
    let bias = x.optional(op.bias)?;
    let bias = bias.as_deref().map(|b| x.floats(b)).transpose()?;
    let shape = ConvShape::new(op, &a.shape, &w.shape, bias.map(<[f32]>::len));
    let shape = shape.map_err(|why| x.fail(why))?;
    let mut out = vec![0.0; checked_len(&shape.out)?];
    let after = (Activation::None, x.rounding);
    shape.run(x.floats(&a)?, x.floats(&w)?, bias, after, &mut out);
    Ok(Array::f32(shape.out, out))
}

/// The shapes of a convolution, checked.
pub(crate) struct ConvShape {
    /// `[images, outputs, places..]`.
    pub out: Vec<usize>,
    groups: usize,
    /// Outputs of a group.
    per_group: usize,
    windows: Windows,
    pointwise: bool,
}

impl ConvShape {
    /// `Err` says in words what does not fit; `bias` is how many numbers it has.
    pub fn new(
        op: &Conv,
        a: &[usize],
        w: &[usize],
        bias: Option<usize>,
    ) -> Result<ConvShape, String> {
        let groups = usize::try_from(op.groups).ok().filter(|&g| g > 0);
        let groups = groups.ok_or_else(|| format!("{} groups", op.groups))?;
        let fits = a.len() >= 3
            && w.len() == a.len()
            && w[1] * groups == a[1]
            && w[0].is_multiple_of(groups)
            && bias.is_none_or(|b| b == w[0]);
        if !fits {
            return Err(format!("{a:?} with a weight of {w:?}"));
        }
        let as_u64 = |s: &[usize]| s.iter().map(|&d| d as u64).collect::<Vec<u64>>();
        let axes = op.axes(&as_u64(&w[2..]), &as_u64(&a[2..])).map_err(|e| e.to_string())?;
        let mut out = vec![a[0], w[0]];
        for (axis, &extent) in axes.iter().zip(&a[2..]) {
            let places = axis.output(extent as u64);
            out.push(places.ok_or("its kernel is larger than its input")? as usize);
        }
        let three = |extents: &[usize], rest: usize| {
            let mut all = [rest; 3];
            all[3 - extents.len()..].copy_from_slice(extents);
            all
        };
        let of = |f: fn(&ConvAxis) -> u64, rest: usize| {
            three(&axes.iter().map(|a| f(a) as usize).collect::<Vec<_>>(), rest)
        };
        let windows = Windows {
            channels: a[1] / groups,
            input: three(&a[2..], 1),
            output: three(&out[2..], 1),
            kernel: of(|a| a.kernel, 1),
            stride: of(|a| a.stride, 1),
            dilation: of(|a| a.dilation, 1),
            pad: of(|a| a.pad.0, 0),
        };
        let pointwise = axes.iter().all(|s| s.kernel == 1 && s.stride == 1 && s.pad == (0, 0));
        Ok(ConvShape { per_group: w[0] / groups, out, groups, windows, pointwise })
    }

    /// Every number of `out`, whatever it holds.
    pub fn run(
        &self,
        input: &[f32],
        weight: &[f32],
        bias: Option<&[f32]>,
        (activation, rounding): (Activation, Rounding),
        out: &mut [f32],
    ) {
        let ConvShape { groups, per_group, windows: w, .. } = self;
        let epilogue = |group: usize| {
            let bias = bias.map(|b| &b[group * per_group..][..*per_group]);
            let bias = bias.map_or(Bias::None, Bias::PerRow);
            Epilogue { bias, activation, rounding, residual: None }
        };
        if !self.pointwise {
            return convolve(w, (*groups, *per_group), input, weight, out, epilogue);
        }
        let n_places = w.n_places();
        for (i, out) in out.chunks_exact_mut((per_group * n_places).max(1)).enumerate() {
            let planes = &input[i * w.channels * n_places..][..w.channels * n_places];
            let rows = &weight[i % groups * per_group * w.channels..][..per_group * w.channels];
            multiply(
                View::new(rows, *per_group, w.channels),
                View::new(planes, w.channels, n_places),
                Rows::new(out, *per_group, n_places),
                &epilogue(i % groups),
            );
        }
    }
}
