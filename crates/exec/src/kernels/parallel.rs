//! When a kernel is worth more than one thread.

use rayon::prelude::*;

/// Numbers below which handing over costs more than it saves: a few microseconds of one core.
const LEN_MIN: usize = 1 << 15;

/// Runs `f` on pieces of `x` whose lengths are multiples of `grain`, with the index of their first
/// number; each number is touched once, so the pieces do not show in the result.
pub(super) fn pieces(x: &mut [f32], grain: usize, f: impl Fn(usize, &mut [f32]) + Sync) {
    let n_threads = rayon::current_num_threads();
    if n_threads == 1 || x.len() < LEN_MIN || x.len() < 2 * grain {
        return f(0, x);
    }
    let len = x.len().div_ceil(2 * n_threads).next_multiple_of(grain);
    x.par_chunks_mut(len).enumerate().for_each(|(i, piece)| f(i * len, piece));
}

/// Runs `f` on the chunks of `out`, with their index, on all threads.
pub(super) fn each_chunk(out: &mut [f32], len: usize, f: impl Fn(usize, &mut [f32]) + Sync) {
    out.par_chunks_mut(len.max(1)).enumerate().for_each(|(i, chunk)| f(i, chunk));
}

/// Runs `f` on blocks of columns of the matrices `(outer, n, inner)`: rows of at most `side`
/// numbers each, `n` of them.
pub(super) fn column_blocks(
    x: &mut [f32],
    (n, inner): (usize, usize),
    side: usize,
    f: impl Fn(&mut [&mut [f32]]) + Sync,
) {
    let parallel = rayon::current_num_threads() > 1 && x.len() >= LEN_MIN;
    let mut blocks: Vec<Vec<&mut [f32]>> = Vec::new();
    for slab in x.chunks_exact_mut(n * inner) {
        let first = blocks.len();
        blocks.extend((0..inner.div_ceil(side)).map(|_| Vec::with_capacity(n)));
        for row in slab.chunks_exact_mut(inner) {
            blocks[first..].iter_mut().zip(row.chunks_mut(side)).for_each(|(b, r)| b.push(r));
        }
    }
    match parallel {
        true => blocks.par_iter_mut().for_each(|block| f(block)),
        false => blocks.iter_mut().for_each(|block| f(block)),
    }
}
