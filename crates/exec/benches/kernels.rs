//! The main kernels at the sizes of a small BERT: `cargo bench -p russet-exec --bench kernels`.
//!
//! They run on all threads of the default pool; items are numbers written.

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use russet_exec::kernels::binary::{Binary, combine};
use russet_exec::kernels::half::round;
use russet_exec::kernels::layer_norm::{Affine, layer_norm};
use russet_exec::kernels::reduce::{Reduction, reduce};
use russet_exec::kernels::rounding::Rounding;
use russet_exec::kernels::softmax::softmax;
use russet_exec::kernels::strided::transpose;
use russet_exec::kernels::unary::{Unary, map};

fn main() {
    divan::main();
}

const S: usize = 128;
const C: usize = 384;
const HIDDEN: usize = 1536;
const HEADS: usize = 12;

fn numbers(n: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 7919) % 1013) as f32 / 1013.0 - 0.5).collect()
}

/// Times `f` on a buffer of `n` numbers that it overwrites again and again.
fn in_place(bencher: Bencher, n: usize, f: impl Fn(&mut [f32])) {
    let mut x = numbers(n);
    bencher.counter(ItemsCount::new(n)).bench_local(|| f(black_box(&mut x)));
}

#[divan::bench(max_time = 0.3, args = [Unary::Exp, Unary::Gelu, Unary::GeluTanh, Unary::Silu, Unary::Square])]
fn unary_hidden(b: Bencher, op: Unary) {
    in_place(b, S * HIDDEN, |x| map(op, x));
}

#[divan::bench(max_time = 0.3)]
fn softmax_rows(b: Bencher) {
    in_place(b, HEADS * S * S, |x| softmax(x, S, 1));
}

#[divan::bench(max_time = 0.3)]
fn softmax_columns(b: Bencher) {
    in_place(b, HEADS * S * S, |x| softmax(x, S, S));
}

#[divan::bench(max_time = 0.3)]
fn layer_norm_rows(b: Bencher) {
    let gamma = numbers(C);
    let affine = Affine { gamma: Some(&gamma), beta: Some(&gamma), epsilon: 1e-5 };
    in_place(b, S * C, |x| layer_norm(x, C, 1, &affine));
}

#[divan::bench(max_time = 0.3)]
fn layer_norm_columns(b: Bencher) {
    let gamma = numbers(C);
    let affine = Affine { gamma: Some(&gamma), beta: Some(&gamma), epsilon: 1e-5 };
    in_place(b, S * C, |x| layer_norm(x, C, S, &affine));
}

#[divan::bench(max_time = 0.3)]
fn round_hidden(b: Bencher) {
    in_place(b, S * HIDDEN, round);
}

#[divan::bench(max_time = 0.3)]
fn store_product_hidden(b: Bencher) {
    in_place(b, S * HIDDEN, |x| Rounding::ANE.store_product(x));
}

#[divan::bench(max_time = 0.3)]
fn add_same_shape(b: Bencher) {
    let x = numbers(S * HIDDEN);
    let shape = [S, HIDDEN];
    in_place(b, S * HIDDEN, |out| combine(Binary::Add, (&x, &shape), (&x, &shape), &shape, out));
}

#[divan::bench(max_time = 0.3)]
fn add_row(b: Bencher) {
    let x = numbers(S * HIDDEN);
    let (shape, row) = ([S, HIDDEN], [HIDDEN]);
    in_place(b, S * HIDDEN, |out| {
        combine(Binary::Add, (&x, &shape), (&x[..HIDDEN], &row), &shape, out)
    });
}

#[divan::bench(max_time = 0.3)]
fn mean_rows(b: Bencher) {
    let x = numbers(S * HIDDEN);
    in_place(b, S, |out| reduce(Reduction::Mean, &x, &[S, HIDDEN], &[false, true], out));
}

#[divan::bench(max_time = 0.3)]
fn transpose_matrix(b: Bencher) {
    let x = numbers(S * HIDDEN);
    in_place(b, S * HIDDEN, |out| transpose(&x, &[S, HIDDEN], &[1, 0], out));
}

#[divan::bench(max_time = 0.3)]
fn transpose_heads(b: Bencher) {
    let x = numbers(S * C);
    in_place(b, S * C, |out| transpose(&x, &[S, HEADS, C / HEADS], &[1, 0, 2], out));
}
