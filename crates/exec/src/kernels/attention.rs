//! Attention of many heads: scores, what is done to them, softmax, weighted sum of the values.
//!
//! One head's scores stay in the cache of the thread that made them, a block of rows at a time.
//! Every step is rounded as the op it stands for, so the result has the bits of separate ops.

use std::cell::RefCell;

use super::binary::Binary;
use super::gemm::{Epilogue, Rows, View, multiply_here, with_packed_right};
use super::rounding::Rounding;
use super::softmax::softmax_row;
use crate::ane::Rule;
use crate::ane::special::before_softmax;
use rayon::prelude::*;

/// One head: matrices to read and where its result goes.
#[derive(Debug)]
pub struct Head<'a> {
    /// Queries by features.
    pub query: View<'a>,
    /// Features by keys.
    pub key: View<'a>,
    /// Keys by features.
    pub value: View<'a>,
    /// What is done to the scores, in this order.
    pub after: Vec<After<'a>>,
    /// Queries by features.
    pub out: Rows<'a>,
}

/// An elementwise op on scores: a scale, a mask.
#[derive(Clone, Copy, Debug)]
pub struct After<'a> {
    /// Of a score and another number.
    pub op: Binary,
    /// The other numbers, as a matrix of the scores' shape whose strides may be zero.
    pub other: View<'a>,
}

/// Queries whose scores are made at once; with 512 keys they take 64 KiB.
const ROWS: usize = 32;

/// Writes every head's result, heads side by side on all threads.
pub fn attention(heads: Vec<Head>, rounding: Rounding) {
    let n_threads = rayon::current_num_threads();
    let work: usize =
        heads.iter().map(|h| 2 * h.query.n_rows() * h.key.n_rows() * h.key.n_cols()).sum();
    if n_threads == 1 || work < WORK_MIN {
        heads.into_iter().for_each(|head| one(head, rounding));
        return;
    }
    // A few long heads are cut, so that every thread has work.
    let n_parts = (2 * n_threads).div_ceil(heads.len());
    let parts: Vec<Head> = heads.into_iter().flat_map(|head| head.cut(n_parts)).collect();
    parts.into_par_iter().with_max_len(1).for_each(|head| one(head, rounding));
}

/// Multiply-adds worth more than one thread.
const WORK_MIN: usize = 1 << 20;

impl<'a> Head<'a> {
    /// The same in about `n` parts of consecutive queries.
    fn cut(mut self, n: usize) -> Vec<Head<'a>> {
        let len = self.query.n_rows().div_ceil(n).next_multiple_of(ROWS);
        let mut parts = Vec::new();
        while self.out.n_rows() > len {
            let rest = self.query.n_rows() - len;
            let part = Head {
                query: self.query.rows_from(0, len),
                after: self.after.iter().map(|a| a.rows_from(0, len)).collect(),
                out: self.out.take_rows(len),
                ..self
            };
            parts.push(part);
            self.query = self.query.rows_from(len, rest);
            self.after.iter_mut().for_each(|a| *a = a.rows_from(len, rest));
        }
        parts.push(self);
        parts
    }
}

impl<'a> After<'a> {
    fn rows_from(self, first: usize, n: usize) -> After<'a> {
        After { other: self.other.rows_from(first, n), ..self }
    }
}

fn one(mut head: Head, rounding: Rounding) {
    thread_local! {
        static SCORES: RefCell<Vec<f32>> = RefCell::default();
    }
    let n_keys = head.key.n_cols();
    let epilogue = Epilogue { rounding, ..Epilogue::default() };
    let mut scores = SCORES.take();
    scores.resize(ROWS * n_keys, 0.0);
    with_packed_right(head.key, |key| {
        with_packed_right(head.value, |value| {
            for first in (0..head.query.n_rows()).step_by(ROWS) {
                let n = ROWS.min(head.query.n_rows() - first);
                let scores = &mut scores[..n * n_keys];
                let query = head.query.rows_from(first, n);
                multiply_here(query, key, Rows::new(scores, n, n_keys), &epilogue);
                finish(scores, n_keys, first, &head.after, rounding);
                let scores = View::new(scores, n, n_keys);
                multiply_here(scores, value, head.out.take_rows(n), &epilogue);
            }
        });
    });
    SCORES.set(scores);
}

per_isa! {
    /// From products to shares: what is done to the scores, then softmax.
    fn finish(scores: &mut [f32], n_keys: usize, first: usize, after: &[After<'_>], rounding: Rounding) = finish_with
}

#[inline(always)]
fn finish_with(
    scores: &mut [f32],
    n_keys: usize,
    first: usize,
    after: &[After<'_>],
    rounding: Rounding,
) {
    if n_keys == 0 {
        return;
    }
    for (r, row) in (first..).zip(scores.chunks_exact_mut(n_keys)) {
        for a in after {
            match a.op {
                Binary::Add => combine_row(row, a.other, r, |x, y| x + y),
                Binary::Sub => combine_row(row, a.other, r, |x, y| x - y),
                Binary::Mul => combine_row(row, a.other, r, |x, y| x * y),
                Binary::Div => combine_row(row, a.other, r, |x, y| x / y),
                op => combine_row(row, a.other, r, |x, y| op.of(x, y)),
            }
            rounding.store_each(row);
        }
        if rounding.has(Rule::InvalidIsZero) {
            before_softmax(row);
        }
        softmax_row(row);
        rounding.store_each(row);
    }
}

#[inline(always)]
fn combine_row(row: &mut [f32], other: View, r: usize, f: impl Fn(f32, f32) -> f32) {
    match other.col_stride() {
        0 => {
            let y = other.at(r, 0);
            row.iter_mut().for_each(|x| *x = f(*x, y));
        }
        1 => {
            let other = other.row(r, 0, row.len());
            row.iter_mut().zip(other).for_each(|(x, y)| *x = f(*x, *y));
        }
        _ => row.iter_mut().enumerate().for_each(|(c, x)| *x = f(*x, other.at(r, c))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::gemm::{Product, multiply_each};
    use crate::kernels::softmax::softmax;

    #[test]
    fn has_the_bits_of_separate_ops() {
        let numbers = |n: usize, seed: usize| -> Vec<f32> {
            (0..n).map(|i| ((i * 7919 + seed * 104_729) % 1013) as f32 / 300.0 - 1.7).collect()
        };
        for (n_heads, n_queries, n_keys, size) in [(1, 1, 1, 1), (3, 35, 50, 7), (1, 150, 128, 32)]
        {
            let (q, k) =
                (numbers(n_heads * n_queries * size, 1), numbers(n_heads * n_keys * size, 2));
            let (v, mask) = (numbers(n_heads * n_keys * size, 3), numbers(n_keys, 4));
            fn view(data: &[f32], rows: usize, h: usize, (size, row): (usize, usize)) -> View<'_> {
                View::strided(&data[h * size..], rows, size, row, 1)
            }
            let at = (size, n_heads * size);
            for rounding in [Rounding::F32, Rounding::ANE] {
                let mut found = vec![0.0; n_queries * n_heads * size];
                let mut rows = Rows::new(&mut found, n_queries, n_heads * size);
                let after = vec![
                    After {
                        op: Binary::Mul,
                        other: View::strided(&[0.25], n_queries, n_keys, 0, 0),
                    },
                    After { op: Binary::Add, other: View::strided(&mask, n_queries, n_keys, 0, 1) },
                ];
                let heads = (0..n_heads).map(|h| Head {
                    query: view(&q, n_queries, h, at),
                    key: view(&k, n_keys, h, at).transposed(),
                    value: view(&v, n_keys, h, at),
                    after: after.clone(),
                    out: rows.take_cols(size),
                });
                attention(heads.collect(), rounding);
                for h in 0..n_heads {
                    let mut scores = vec![0.0; n_queries * n_keys];
                    fn product(left: View, right: View, out: Rows, rounding: Rounding) {
                        let epilogue = Epilogue { rounding, ..Epilogue::default() };
                        multiply_each(vec![Product { left, right, out }], &epilogue);
                    }
                    product(
                        view(&q, n_queries, h, at),
                        view(&k, n_keys, h, at).transposed(),
                        Rows::new(&mut scores, n_queries, n_keys),
                        rounding,
                    );
                    scores.iter_mut().for_each(|x| *x *= 0.25);
                    rounding.store(&mut scores);
                    scores.chunks_mut(n_keys).for_each(|row| {
                        row.iter_mut().zip(&mask).for_each(|(x, m)| *x += m);
                    });
                    rounding.store(&mut scores);
                    softmax(&mut scores, n_keys, 1);
                    rounding.store(&mut scores);
                    let mut expected = vec![0.0; n_queries * size];
                    product(
                        View::new(&scores, n_queries, n_keys),
                        view(&v, n_keys, h, at),
                        Rows::new(&mut expected, n_queries, size),
                        rounding,
                    );
                    for (r, expected) in expected.chunks(size).enumerate() {
                        assert_eq!(found[(r * n_heads + h) * size..][..size], *expected);
                    }
                }
            }
        }
    }
}
