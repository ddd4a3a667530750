//! Sums that vectorise: many partial sums in a fixed order instead of one chain.
//!
//! A chain of f32 additions cannot be vectorised without changing its value, so the order is part
//! of the kernels' meaning: number `i` goes to partial sum `i % 16`, and the partial sums are added
//! pairwise. This order is also closer to the true sum than a chain. It is the same everywhere.

const N: usize = 16;

/// Columns summed side by side: a few cache lines of each row at a time.
pub(super) const SIDE: usize = 64;

/// For each column, the sum of `f(row, column)` in the order of [`sum`]: the layout does not show.
#[inline(always)]
pub(super) fn column_sums(rows: &[&mut [f32]], f: impl Fn(usize, f32) -> f32) -> [f32; SIDE] {
    let mut sums = [[0.0; SIDE]; N];
    for (r, row) in rows.iter().enumerate() {
        let sums = &mut sums[r % N];
        sums.iter_mut().zip(row.iter()).enumerate().for_each(|(c, (sum, x))| *sum += f(c, *x));
    }
    let mut n = N / 2;
    while n > 0 {
        let (low, high) = sums.split_at_mut(n);
        for (low, high) in low.iter_mut().zip(high) {
            low.iter_mut().zip(high).for_each(|(a, b)| *a += *b);
        }
        n /= 2;
    }
    sums[0]
}

/// The sum of `f` of every number.
#[inline(always)]
pub(super) fn sum(x: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    let (chunks, rest) = x.as_chunks::<N>();
    let mut sums = [0.0; N];
    for chunk in chunks {
        sums.iter_mut().zip(chunk).for_each(|(sum, x)| *sum += f(*x));
    }
    for (sum, x) in sums.iter_mut().zip(rest) {
        *sum += f(*x);
    }
    fold(sums, |a, b| a + b)
}

/// [`sum`] in f64.
#[inline(always)]
pub(super) fn wide_sum(x: &[f32], f: impl Fn(f64) -> f64) -> f64 {
    let (chunks, rest) = x.as_chunks::<N>();
    let mut sums = [0.0; N];
    for chunk in chunks {
        sums.iter_mut().zip(chunk).for_each(|(sum, x)| *sum += f(*x as f64));
    }
    for (sum, x) in sums.iter_mut().zip(rest) {
        *sum += f(*x as f64);
    }
    fold(sums, |a, b| a + b)
}

/// The result of joining all numbers with `pick`, whose order must not matter.
#[inline(always)]
pub(crate) fn pick(x: &[f32], start: f32, pick: impl Fn(f32, f32) -> f32) -> f32 {
    let (chunks, rest) = x.as_chunks::<N>();
    let mut picked = [start; N];
    for chunk in chunks {
        picked.iter_mut().zip(chunk).for_each(|(p, x)| *p = pick(*p, *x));
    }
    for (picked, x) in picked.iter_mut().zip(rest) {
        *picked = pick(*picked, *x);
    }
    fold(picked, pick)
}

#[inline(always)]
fn fold<T: Copy>(mut x: [T; N], join: impl Fn(T, T) -> T) -> T {
    let mut n = N / 2;
    while n > 0 {
        for i in 0..n {
            x[i] = join(x[i], x[i + n]);
        }
        n /= 2;
    }
    x[0]
}

/// The larger number; NaN when either is.
#[inline(always)]
pub(crate) fn larger(a: f32, b: f32) -> f32 {
    if a > b || a.is_nan() { a } else { b }
}

/// The smaller number; NaN when either is.
#[inline(always)]
pub(super) fn smaller(a: f32, b: f32) -> f32 {
    if a < b || a.is_nan() { a } else { b }
}
