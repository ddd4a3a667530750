//! Keys and values of past tokens as a program has them.

use russet_ir::ops::*;
use russet_ir::{DType, TensorType, Type, Value};

use super::super::net::Net;
use super::super::usage::{CACHE_DTYPE, Cache};
use crate::Error;

/// The cache `kv_cache` `[2 * layers, kv_heads, context, head_dim]`.
pub struct CacheInput {
    /// What it holds before the run, fp32.
    pub held: Value,
    shape: [u64; 4],
    /// The state, what it holds in its own type, and how many tokens that is; none for an input.
    state: Option<(Value, Value, Value)>,
}

impl CacheInput {
    pub fn add(net: &mut Net, cache: Cache, shape: [u64; 4]) -> Result<CacheInput, Error> {
        let ty = TensorType::new(CACHE_DTYPE, shape);
        net.enter("kv_cache");
        let (stored, state) = match cache {
            Cache::Io => (net.graph.add_input("kv_cache", ty), None),
            Cache::State => {
                let at = net.graph.add_input("cache_position", TensorType::new(DType::I32, [1]));
                let state = net.graph.add_input("kv_cache", Type::State(ty));
                let stored = net.op(ReadState { input: state }, "cache_stored")?;
                (stored, Some((state, stored, at)))
            }
        };
        let held = net.op(Cast { x: stored, dtype: DType::F32 }, "cache_held")?;
        Ok(CacheInput { held, shape, state })
    }

    /// Puts the new keys and values, `[1, kv_heads, n_new, head_dim]` each, behind the past ones, or
    /// makes them an output.
    pub fn write(
        &self,
        net: &mut Net,
        n_new: u64,
        fresh: Vec<Value>,
    ) -> Result<Option<Value>, Error> {
        net.enter("kv_cache");
        let concat = Concat { values: fresh, axis: 0, interleave: false };
        let all = net.op(concat, "cache_new")?;
        let name = if self.state.is_some() { "cache_new_stored" } else { "kv_new" };
        let update = net.op(Cast { x: all, dtype: CACHE_DTYPE }, name)?;
        let Some((state, stored, at)) = self.state else { return Ok(Some(update)) };
        let n_new = net.ints(&[n_new as i32], "n_new")?;
        let after = net.op(Add { x: at, y: n_new }, "position_after")?;
        let zeros = net.ints(&[0, 0], "first_heads")?;
        let zero = net.ints(&[0], "first_column")?;
        let [rows, kv_heads, _, head_dim] = self.shape.map(|n| n as i32);
        let heads = net.ints(&[rows, kv_heads], "all_heads")?;
        let columns = net.ints(&[head_dim], "all_columns")?;
        let begin = Concat { values: vec![zeros, at, zero], axis: 0, interleave: false };
        let begin = net.op(begin, "write_begin")?;
        let end = Concat { values: vec![heads, after, columns], axis: 0, interleave: false };
        let end = net.op(end, "write_end")?;
        let write = SliceUpdate {
            x: stored,
            update,
            begin,
            end,
            stride: None,
            begin_mask: None,
            end_mask: None,
            squeeze_mask: None,
        };
        let data = net.op(write, "cache_written")?;
        net.effect(WriteState { input: state, data })?;
        Ok(None)
    }
}
