//! Functions of two numbers, over tensors whose shapes broadcast.

use super::strided::{Axis, broadcast_axes, offset};
use super::{lanes, parallel};

/// A function of two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binary {
    /// `x + y`.
    Add,
    /// `x - y`.
    Sub,
    /// `x * y`.
    Mul,
    /// `x / y`.
    Div,
    /// The larger; NaN when either is, as numpy and the frameworks have it.
    Max,
    /// The smaller; NaN when either is.
    Min,
    /// `x` to the power of `y`, computed in f64 by the standard library.
    Pow,
    /// The whole number below `x / y`, exactly: what [`Binary::Mod`] leaves is taken off first.
    FloorDiv,
    /// What is left of `x` after taking `y` from it as often as it goes: of `y`'s sign.
    Mod,
}

impl Binary {
    /// The definition: the function of two numbers.
    #[inline(always)]
    pub fn of(self, x: f32, y: f32) -> f32 {
        match self {
            Binary::Add => x + y,
            Binary::Sub => x - y,
            Binary::Mul => x * y,
            Binary::Div => x / y,
            Binary::Max => lanes::larger(x, y),
            Binary::Min => lanes::smaller(x, y),
            Binary::Pow => f64::from(x).powf(y.into()) as f32,
            Binary::FloorDiv => floor_div(x, y),
            Binary::Mod => floor_mod(x, y),
        }
    }
}

/// The quotient rounded down; `x / 0` is infinite or NaN.
fn floor_div(x: f32, y: f32) -> f32 {
    if y == 0.0 {
        return x / y;
    }
    let rest = x % y;
    let less = rest != 0.0 && (rest < 0.0) != (y < 0.0);
    // A whole number but for the rounding of the quotient.
    let quotient = (x - rest) / y - f32::from(u8::from(less));
    if quotient == 0.0 { 0f32.copysign(x / y) } else { quotient.round() }
}

/// The rest of [`floor_div`]; NaN for `y` of zero.
fn floor_mod(x: f32, y: f32) -> f32 {
    let rest = x % y;
    match rest == 0.0 {
        true => rest.copysign(y),
        false if (rest < 0.0) != (y < 0.0) => rest + y,
        false => rest,
    }
}

/// The shape both shapes broadcast to after numpy's rule, if they do.
pub fn broadcast_shape(x: &[usize], y: &[usize]) -> Option<Vec<usize>> {
    let rank = x.len().max(y.len());
    let at =
        |shape: &[usize], i: usize| (i + shape.len()).checked_sub(rank).map_or(1, |i| shape[i]);
    let axis = |i| match (at(x, i), at(y, i)) {
        (a, b) if a == b || b == 1 => Some(a),
        (1, b) => Some(b),
        _ => None,
    };
    (0..rank).map(axis).collect()
}

/// Writes `op` of `x` and `y`, both broadcast to `shape`, into `out`.
pub fn combine(
    op: Binary,
    (x, x_shape): (&[f32], &[usize]),
    (y, y_shape): (&[f32], &[usize]),
    shape: &[usize],
    out: &mut [f32],
) {
    assert_eq!(shape.iter().product::<usize>(), out.len(), "the output has the shape {shape:?}");
    let (x_axes, y_axes) = (broadcast_axes(x_shape, shape), broadcast_axes(y_shape, shape));
    combine_views(op, (x, x_axes), (y, y_axes), out);
}

/// [`combine`] on views with axes of the same lengths, none walking backwards; a stride of zero
/// repeats.
pub fn combine_views(
    op: Binary,
    (x, x_axes): (&[f32], Vec<Axis>),
    (y, y_axes): (&[f32], Vec<Axis>),
    out: &mut [f32],
) {
    let len: usize = x_axes.iter().map(|axis| axis.len).product();
    assert_eq!(len, out.len(), "the output is as large as the views");
    if out.is_empty() {
        return;
    }
    let (x_axes, y_axes) = merged(x_axes, y_axes);
    let pair = Pair { op, x, x_axes, y, y_axes };
    let row = pair.x_axes.last().map_or(1, |axis| axis.len);
    parallel::pieces(out, row, |first, out| rows(&pair, first / row, out));
}

/// Two operands with axes of the same lengths.
struct Pair<'a> {
    op: Binary,
    x: &'a [f32],
    x_axes: Vec<Axis>,
    y: &'a [f32],
    y_axes: Vec<Axis>,
}

/// Joins neighbouring axes that are one axis for both operands, so that rows are long.
fn merged(x: Vec<Axis>, y: Vec<Axis>) -> (Vec<Axis>, Vec<Axis>) {
    let joins = |outer: &Axis, axis: &Axis| outer.stride == axis.stride * axis.len as isize;
    let (mut xs, mut ys): (Vec<Axis>, Vec<Axis>) = (Vec::new(), Vec::new());
    for (x, y) in x.into_iter().zip(y).filter(|(x, _)| x.len != 1) {
        match (xs.last_mut(), ys.last_mut()) {
            (Some(a), Some(b)) if joins(a, &x) && joins(b, &y) => {
                *a = Axis { len: a.len * x.len, stride: x.stride };
                *b = Axis { len: b.len * y.len, stride: y.stride };
            }
            _ => {
                xs.push(x);
                ys.push(y);
            }
        }
    }
    (xs, ys)
}

per_isa! {
    /// Rows of the output from row `first` on.
    fn rows(pair: &Pair, first: usize, out: &mut [f32]) = rows_with
}

#[inline(always)]
fn rows_with(pair: &Pair, first: usize, out: &mut [f32]) {
    match pair.op {
        Binary::Add => rows_of(pair, first, out, |x, y| Binary::Add.of(x, y)),
        Binary::Sub => rows_of(pair, first, out, |x, y| Binary::Sub.of(x, y)),
        Binary::Mul => rows_of(pair, first, out, |x, y| Binary::Mul.of(x, y)),
        Binary::Div => rows_of(pair, first, out, |x, y| Binary::Div.of(x, y)),
        Binary::Max => rows_of(pair, first, out, |x, y| Binary::Max.of(x, y)),
        Binary::Min => rows_of(pair, first, out, |x, y| Binary::Min.of(x, y)),
        Binary::Pow => rows_of(pair, first, out, |x, y| Binary::Pow.of(x, y)),
        Binary::FloorDiv => rows_of(pair, first, out, |x, y| Binary::FloorDiv.of(x, y)),
        Binary::Mod => rows_of(pair, first, out, |x, y| Binary::Mod.of(x, y)),
    }
}

#[inline(always)]
fn rows_of(pair: &Pair, first: usize, out: &mut [f32], f: impl Fn(f32, f32) -> f32) {
    let one = Axis { len: 1, stride: 1 };
    let (x_row, x_outer) = pair.x_axes.split_last().unwrap_or((&one, &[]));
    let (y_row, y_outer) = pair.y_axes.split_last().unwrap_or((&one, &[]));
    for (row, out) in (first..).zip(out.chunks_exact_mut(x_row.len)) {
        let x = &pair.x[offset(0, x_outer, row)..];
        let y = &pair.y[offset(0, y_outer, row)..];
        match (x_row.stride, y_row.stride) {
            (0, 0) => out.fill(f(x[0], y[0])),
            (0, 1) => out.iter_mut().zip(y).for_each(|(out, y)| *out = f(x[0], *y)),
            (1, 0) => out.iter_mut().zip(x).for_each(|(out, x)| *out = f(*x, y[0])),
            (1, 1) => out.iter_mut().zip(x).zip(y).for_each(|((out, x), y)| *out = f(*x, *y)),
            (a, b) => {
                let (a, b) = (a.unsigned_abs(), b.unsigned_abs());
                out.iter_mut().enumerate().for_each(|(i, out)| *out = f(x[i * a], y[i * b]));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_broadcast_after_numpy() {
        let cases: [(&[usize], &[usize]); 8] = [
            (&[2, 3, 4], &[2, 3, 4]),
            (&[2, 3, 4], &[]),
            (&[2, 3, 4], &[4]),
            (&[2, 3, 1], &[2, 3, 4]),
            (&[3, 1], &[2, 1, 4]),
            (&[1, 3, 1, 5], &[2, 1, 4, 1]),
            (&[], &[]),
            (&[0, 3], &[1, 3]),
        ];
        for (x_shape, y_shape) in cases {
            let n = |shape: &[usize]| shape.iter().product::<usize>();
            let x: Vec<f32> = (0..n(x_shape)).map(|i| i as f32 - 2.5).collect();
            let y: Vec<f32> = (0..n(y_shape)).map(|i| 0.5 + i as f32).collect();
            let shape = broadcast_shape(x_shape, y_shape).unwrap();
            let (x_axes, y_axes) =
                (broadcast_axes(x_shape, &shape), broadcast_axes(y_shape, &shape));
            for op in [Binary::Add, Binary::Sub, Binary::Mul, Binary::Div, Binary::Max, Binary::Min]
            {
                let mut out = vec![f32::NAN; n(&shape)];
                combine(op, (&x, x_shape), (&y, y_shape), &shape, &mut out);
                for (i, out) in out.iter().enumerate() {
                    let expected = op.of(x[offset(0, &x_axes, i)], y[offset(0, &y_axes, i)]);
                    assert_eq!(*out, expected, "{op:?} of {x_shape:?} and {y_shape:?}");
                }
            }
        }
        assert_eq!(broadcast_shape(&[2, 3], &[2]), None);
    }

    #[test]
    fn extremes_keep_nan() {
        for op in [Binary::Max, Binary::Min] {
            assert!(op.of(f32::NAN, 1.0).is_nan() && op.of(1.0, f32::NAN).is_nan());
        }
        assert_eq!(Binary::Pow.of(2.0, 10.0), 1024.0);
    }
}
