//! Inputs of a decoder's trunk for some tokens at some place.

use russet_ir::{DType, Tensor};

use super::{Decoder, MASKED, Mask, Rotary};

impl Decoder {
    /// What `prefill` or `decode` takes beside the cache, by name: `ids` behind `n_past` tokens, the
    /// function taking `n_new`. What is missing is filled with token 0, which nothing before it
    /// sees.
    pub fn inputs(&self, n_past: u64, ids: &[i32], n_new: u64) -> Vec<(String, Tensor)> {
        let n = n_new as usize;
        let filled = ids.iter().copied().chain(std::iter::repeat(0)).take(n);
        let row = |values: Vec<i32>| Tensor::i32(vec![1, n_new], &values);
        let mut all = vec![("input_ids".to_owned(), row(filled.collect()))];
        if let Some(first) = self.position_ids {
            // Tokens that only fill have a row too, if not one of their own.
            let last = first + self.context - 1;
            let at = |i: u64| (first + n_past + i).min(last) as i32;
            all.push(("position_ids".to_owned(), row((0..n_new).map(at).collect())));
        }
        for (name, rotary) in &self.rotary {
            let [cos, sin] = rotary.tables(n_past, n_new);
            all.push((format!("{name}_cos"), cos));
            all.push((format!("{name}_sin"), sin));
        }
        for (name, mask) in &self.masks {
            all.push((name.clone(), mask.scores(n_past, n_new, self.context)));
        }
        if self.cache == super::Cache::State {
            all.push(("cache_position".to_owned(), Tensor::i32(vec![1], &[n_past as i32])));
        }
        all
    }

    /// How many tokens the next run takes, of `n` that wait behind `n_past`: a chunk where it fits,
    /// else one.
    pub fn next(&self, n_past: u64, n: u64) -> u64 {
        let fits = n_past + self.chunk <= self.context;
        if n > 1 && fits { self.chunk } else { 1 }
    }
}

impl Rotary {
    /// Cosines and sines `[1, 1, n, 2 * frequencies]` of `n` tokens from `first` on. Angles are
    /// computed in f32, as `transformers` computes them.
    pub fn tables(&self, first: u64, n: u64) -> [Tensor; 2] {
        let angles = |p: u64| self.frequencies.iter().map(move |f| p as f32 * f);
        let twice = |p: u64| angles(p).chain(angles(p));
        let all: Vec<f32> = (first..first + n).flat_map(twice).collect();
        let shape = vec![1, 1, n, 2 * self.frequencies.len() as u64];
        let of = |f: fn(f32) -> f32| -> Vec<f32> {
            all.iter().map(|&angle| f(angle) * self.scale).collect()
        };
        [Tensor::f32(shape.clone(), &of(f32::cos)), Tensor::f32(shape, &of(f32::sin))]
    }
}

impl Mask {
    /// What is added to scores `[1, 1, n_new, context + n_new]`: a new token sees the `n_past` first
    /// rows of the cache, the new ones up to itself, all within its window.
    pub fn scores(&self, n_past: u64, n_new: u64, context: u64) -> Tensor {
        let window = self.window.unwrap_or(u64::MAX);
        let row = |i: u64| {
            let at = n_past + i;
            let sees = move |j: u64| j <= at && at - j < window;
            let past = (0..context).map(move |j| j < n_past && sees(j));
            past.chain((0..n_new).map(move |j| sees(n_past + j)))
        };
        let score = |seen: bool| if seen { 0.0 } else { MASKED };
        let all: Vec<f32> = (0..n_new).flat_map(row).map(score).collect();
        Tensor::f32(vec![1, 1, n_new, context + n_new], &all)
    }
}

/// The type of what a cache holds: Core ML has no other states.
pub const CACHE_DTYPE: DType = DType::F16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_sees_the_past_and_itself() {
        let seen = |window, n_past, n_new, context| {
            let t = Mask { window }.scores(n_past, n_new, context).to_f32();
            t.iter().map(|&x| if x == 0.0 { '1' } else { '.' }).collect::<String>()
        };
        assert_eq!(seen(None, 2, 2, 3), ["11.1.", "11.11"].concat());
        assert_eq!(seen(Some(2), 2, 2, 3), [".1.1.", "...11"].concat());
        assert_eq!(seen(None, 0, 1, 2), "..1");
    }
}
