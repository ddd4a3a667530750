//! Matrix products of a small BERT: `cargo bench -p russet-exec --bench gemm`.
//!
//! The name says which operand is constant and so packed before; the number says the threads.

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use russet_exec::kernels::gemm::*;

fn main() {
    divan::main();
}

/// Rows, depth, columns of products whose right operand is the weight (`x W`).
const RIGHT: [(usize, usize, usize); 3] = [(128, 384, 384), (128, 384, 1536), (128, 1536, 384)];
/// And of those whose left operand is (`W x`, channels first).
const LEFT: [(usize, usize, usize); 3] = [(384, 384, 128), (1536, 384, 128), (384, 1536, 128)];
const THREADS: [usize; 2] = [1, 2];

fn numbers(n: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 7919) % 1013) as f32 / 1013.0 - 0.5).collect()
}

/// Products per measured iteration, so that entering the pool does not count.
const REPEATS: usize = 10;

/// Runs `f` [`REPEATS`] times in a pool of `n_threads`; the counter's items per second are FLOP/s.
fn timed(bencher: Bencher, n_threads: usize, flops: usize, f: impl Fn() + Sync + Send) {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
    let repeated = || pool.install(|| (0..REPEATS).for_each(|_| f()));
    bencher.counter(ItemsCount::new(REPEATS * flops)).bench(repeated);
}

macro_rules! benches {
    ($($name:ident: $shape:expr, $body:ident;)*) => { $(
        mod $name {
            use super::*;

            #[divan::bench(args = THREADS, max_time = 0.5)]
            fn threads(bencher: Bencher, n_threads: usize) {
                $body(bencher, n_threads, $shape, &Epilogue::default());
            }
        }
    )* };
}

benches! {
    weight_right_128x384x384: RIGHT[0], weight_right;
    weight_right_128x384x1536: RIGHT[1], weight_right;
    weight_right_128x1536x384: RIGHT[2], weight_right;
    weight_left_384x384x128: LEFT[0], weight_left;
    weight_left_1536x384x128: LEFT[1], weight_left;
    weight_left_384x1536x128: LEFT[2], weight_left;
    weight_left_unpacked_1536x384x128: LEFT[1], weight_left_unpacked;
    no_weight_128x384x1536: RIGHT[1], no_weight;
    one_row_1x384x1536: (1, 384, 1536), weight_right;
    one_row_1x2048x8192: (1, 2048, 8192), weight_right;
    large_512x2048x2048: (512, 2048, 2048), weight_right;
    heads_12x128x32x128_interleaved: (128, 32, 128), scores;
    heads_12x128x32x128: (128, 32, 128), heads;
    heads_12x128x128x32: (128, 128, 32), heads;
}

fn weight_right(b: Bencher, n_threads: usize, (m, k, n): (usize, usize, usize), e: &Epilogue) {
    let (x, w) = (numbers(m * k), numbers(k * n));
    let w = PackedRight::new(View::new(&w, k, n));
    timed(b, n_threads, 2 * m * k * n, || {
        OUT.with_borrow_mut(|out| {
            out.resize(m * n, 0.0);
            multiply(View::new(&x, m, k), &w, Rows::new(black_box(out), m, n), e);
        })
    });
}

fn weight_left(b: Bencher, n_threads: usize, (m, k, n): (usize, usize, usize), e: &Epilogue) {
    let (w, x) = (numbers(m * k), numbers(k * n));
    let w = PackedLeft::new(View::new(&w, m, k));
    timed(b, n_threads, 2 * m * k * n, || {
        OUT.with_borrow_mut(|out| {
            out.resize(m * n, 0.0);
            multiply(&w, View::new(&x, k, n), Rows::new(black_box(out), m, n), e);
        })
    });
}

fn weight_left_unpacked(b: Bencher, n_threads: usize, shape: (usize, usize, usize), e: &Epilogue) {
    no_weight(b, n_threads, shape, e);
}

fn no_weight(b: Bencher, n_threads: usize, (m, k, n): (usize, usize, usize), e: &Epilogue) {
    let (x, y) = (numbers(m * k), numbers(k * n));
    timed(b, n_threads, 2 * m * k * n, || {
        OUT.with_borrow_mut(|out| {
            out.resize(m * n, 0.0);
            multiply(View::new(&x, m, k), View::new(&y, k, n), Rows::new(black_box(out), m, n), e);
        })
    });
}

const N_HEADS: usize = 12;

/// Separate heads, everything contiguous.
fn heads(b: Bencher, n_threads: usize, (m, k, n): (usize, usize, usize), e: &Epilogue) {
    let (x, y) = (numbers(N_HEADS * m * k), numbers(N_HEADS * k * n));
    timed(b, n_threads, 2 * N_HEADS * m * k * n, || {
        OUT.with_borrow_mut(|out| {
            out.resize(N_HEADS * m * n, 0.0);
            let heads = x.chunks(m * k).zip(y.chunks(k * n)).zip(black_box(out).chunks_mut(m * n));
            let products = heads.map(|((x, y), out)| Product {
                left: View::new(x, m, k),
                right: View::new(y, k, n),
                out: Rows::new(out, m, n),
            });
            multiply_each(products.collect(), e);
        })
    });
}

/// Queries times keys as they leave a projection: heads side by side, keys transposed.
fn scores(b: Bencher, n_threads: usize, (m, k, n): (usize, usize, usize), e: &Epilogue) {
    let (x, y) = (numbers(N_HEADS * m * k), numbers(N_HEADS * k * n));
    timed(b, n_threads, 2 * N_HEADS * m * k * n, || {
        OUT.with_borrow_mut(|out| {
            out.resize(N_HEADS * m * n, 0.0);
            let products = black_box(out).chunks_mut(m * n).enumerate().map(|(h, out)| Product {
                left: View::strided(&x[h * k..], m, k, N_HEADS * k, 1),
                right: View::strided(&y[h * k..], n, k, N_HEADS * k, 1).transposed(),
                out: Rows::new(out, m, n),
            });
            multiply_each(products.collect(), e);
        })
    });
}

thread_local! {
    static OUT: std::cell::RefCell<Vec<f32>> = const { std::cell::RefCell::new(Vec::new()) };
}
