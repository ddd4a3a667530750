//! MPNet: BERT's layers without token types, with a bias by relative position in every layer.

use super::config::{Facts, LayerModules, Positions, USUAL_FIELDS};
use super::encoder;
use super::family::Family;

pub const MPNET: Family = Family {
    name: "mpnet",
    model_types: &["mpnet"],
    architectures: &["MPNet"],
    check: |json| encoder::check(&FACTS, json),
    build: |folder, options| encoder::build(&FACTS, folder, options),
};

const FACTS: Facts = Facts {
    fields: USUAL_FIELDS,
    positions: Positions::AfterPadding,
    has_token_types: false,
    modules: LayerModules {
        layers: "encoder.layer",
        query: "attention.attn.q",
        key: "attention.attn.k",
        value: "attention.attn.v",
        attention_output: "attention.attn.o",
        attention_norm: "attention.LayerNorm",
        up: "intermediate.dense",
        down: "output.dense",
        output_norm: "output.LayerNorm",
        relative_bias: Some("encoder.relative_attention_bias"),
    },
    pad_token_id_default: 1,
};

/// Distances from which on all are in the last bucket.
pub const DISTANCE_MAX: u64 = 128;

/// The row of the bias table for a key `distance` tokens after its query.
///
/// Half of the buckets are for keys after the query, half for the others. Of each half, one half
/// is for single distances, the rest for ranges that grow logarithmically.
/// Beyond `distance_max` all are in one.
pub fn bucket(distance: i64, n_buckets: u64, distance_max: u64) -> u64 {
    let half = n_buckets / 2;
    let side = if distance > 0 { half } else { 0 };
    let distance = distance.unsigned_abs();
    let n_exact = half / 2;
    if distance < n_exact {
        return side + distance;
    }
    // In f32 and in this order, as `transformers` computes it: buckets begin where it puts them.
    let growth =
        (distance as f32 / n_exact as f32).ln() / (distance_max as f32 / n_exact as f32).ln();
    let far = n_exact + (growth * (half - n_exact) as f32) as u64;
    side + far.min(half - 1)
}

/// The biases `[1, heads, length, length]` of a table `[n_buckets, heads]`.
pub fn biases(
    table: &[f32],
    (n_buckets, distance_max): (u64, u64),
    n_heads: u64,
    length: u64,
) -> Vec<f32> {
    let at = |head, query: u64, key: u64| {
        let row = bucket(key as i64 - query as i64, n_buckets, distance_max);
        table[(row * n_heads + head) as usize]
    };
    let keys = move |head, query| (0..length).map(move |key| at(head, query, key));
    (0..n_heads).flat_map(|h| (0..length).flat_map(move |q| keys(h, q))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the bucket changes, from `MPNetEncoder.relative_position_bucket` of transformers 4.51.
    #[test]
    fn buckets_begin_where_transformers_puts_them() {
        let starts = [0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91];
        for (i, pair) in starts.windows(2).enumerate() {
            for d in pair[0]..pair[1] {
                assert_eq!(bucket(-d, 32, 128), i as u64, "{d}");
                assert_eq!(bucket(d, 32, 128), i as u64 + if d > 0 { 16 } else { 0 }, "{d}");
            }
        }
        assert_eq!((bucket(-91, 32, 128), bucket(511, 32, 128)), (15, 31));
    }
}
