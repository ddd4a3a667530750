//! The encoder all families share: embeddings, then layers of attention and a block of two linear
//! layers, each followed by a sum and a norm.

use std::path::Path;

use russet_ir::ops::*;
use russet_ir::{Binding, DType, Dim, Graph, Symbol, Symbols, Tensor, TensorType, Value};

use super::config::{Config, Facts};
use super::family::{Built, Folder};
use super::head::{self, Head};
use super::json::Json;
use super::net::Net;
use super::usage::Usage;
use super::weights::Weights;
use super::{LENGTH_DEFAULT, Mask, Options, mpnet};
use crate::Error;

/// What padding adds to a score: the lowest f32, as in `transformers`.
const MASKED: f32 = f32::MIN;

/// The numbers of tokens a program is for.
pub struct Lengths {
    /// The default first; never empty.
    all: Vec<u64>,
}

impl Lengths {
    pub fn choose(config: &Config, file: &Path, options: &Options) -> Result<Lengths, Error> {
        let choice = |option, found: u64, why: String| {
            Err(Error::Choice { file: file.to_owned(), option, found: found.to_string(), why })
        };
        if i32::try_from(options.batch).ok().is_none_or(|b| b < 1) {
            return choice("batch", options.batch, "at least one sequence is needed".into());
        }
        if let Some(context) = options.context {
            return choice("context", context, "the model keeps nothing of past tokens".into());
        }
        let all = match options.lengths.as_slice() {
            [] => vec![LENGTH_DEFAULT.min(config.length_max())],
            given => given.to_vec(),
        };
        for (i, &length) in all.iter().enumerate() {
            if length == 0 {
                return choice("length", length, "a sequence has at least one token".into());
            }
            if length > config.length_max() {
                let why = format!("the model has positions for {} tokens", config.length_max());
                return choice("length", length, why);
            }
            if all[..i].contains(&length) {
                return choice("length", length, "it is given twice".into());
            }
        }
        Ok(Lengths { all })
    }

    fn symbol() -> Symbol {
        Symbol::new("S")
    }

    /// The length, when there is only one.
    fn fixed(&self) -> Option<u64> {
        match self.all[..] {
            [one] => Some(one),
            _ => None,
        }
    }

    fn dim(&self) -> Dim {
        self.fixed().map_or(Dim::Symbol(Lengths::symbol()), Dim::Fixed)
    }

    fn symbols(&self) -> Symbols {
        if self.fixed().is_some() {
            return Symbols::default();
        }
        let row = |&n: &u64| Binding::from([(Lengths::symbol(), n)]);
        Symbols { enumerated: self.all.iter().map(row).collect(), ..Symbols::default() }
    }

    fn longest(&self) -> u64 {
        self.all.iter().copied().max().unwrap_or(0)
    }
}

/// What every layer reads beside the output of the one before.
struct Shared {
    /// `[batch, S, heads, head_dim]`, with -1 for a length that is not fixed.
    split_shape: Value,
    /// `[batch, S, hidden]`, likewise.
    merged_shape: Value,
    /// `1 / sqrt(head_dim)`.
    scale: Value,
    /// `[batch, 1, 1, S]`: 0 for tokens, [`MASKED`] for padding.
    mask_bias: Value,
    /// `[1, heads, S, S]`, of families that have it.
    relative_bias: Option<Value>,
}

/// Does the config of an encoder add up?
pub fn check(facts: &'static Facts, json: &Json) -> Result<(), Error> {
    Config::parse(facts, json).map(|_| ())
}

/// A program of one function `main`: `input_ids` and maybe `attention_mask`, int32 `[batch, S]`, to
/// `last_hidden_state`, fp32 `[batch, S, hidden]`, and maybe `sentence_embedding`.
pub fn build(facts: &'static Facts, folder: &Folder, options: &Options) -> Result<Built, Error> {
    let config = Config::parse(facts, &folder.config)?;
    let words = ("embeddings.word_embeddings.weight", vec![config.n_vocab, config.hidden]);
    let weights = Weights::open(&folder.path, &words)?;
    let lengths = Lengths::choose(&config, folder.config.file(), options)?;
    let head = Head::choose(&head::modules(&folder.root)?, options)?;
    let graph = graph(&config, &weights, &lengths, options, &head)?;
    let (n_dense, dense_bytes) = head.size();
    Ok(Built {
        functions: vec![graph],
        usage: Usage::Text { pad_token_id: config.pad_token_id },
        n_parameters: weights.n_parameters() + n_dense,
        n_bytes: weights.n_bytes() + dense_bytes,
    })
}

fn graph(
    config: &Config,
    weights: &Weights,
    lengths: &Lengths,
    options: &Options,
    head: &Head,
) -> Result<Graph, Error> {
    let mut net = Net::new("main", weights.file());
    let shape = [Dim::Fixed(options.batch), lengths.dim()];
    let ids = net.graph.add_input("input_ids", TensorType::new(DType::I32, shape.clone()));
    let length = length_value(&mut net, ids, lengths)?;
    let mask = match options.mask {
        Mask::Input => {
            let ty = TensorType::new(DType::I32, shape);
            let mask = net.graph.add_input("attention_mask", ty);
            net.enter("attention_mask");
            net.op(Cast { x: mask, dtype: DType::F32 }, "mask")?
        }
        Mask::FromIds => mask_from_ids(&mut net, ids, config)?,
    };
    let mut x = embeddings(&mut net, config, weights, lengths, length, ids)?;
    let shared = shared(&mut net, config, weights, lengths, length, mask, options.batch)?;
    for i in 0..config.n_layers {
        x = layer(&mut net, config, weights, &shared, i, x)?;
    }
    let mut outputs = vec![x];
    outputs.extend(head.build(&mut net, x, mask, config.hidden)?);
    net.graph.symbols = lengths.symbols();
    net.graph.set_outputs(outputs);
    Ok(net.graph)
}

/// The number of tokens as int32 `[1]`, computed while running; `None` when it is fixed.
fn length_value(net: &mut Net, ids: Value, lengths: &Lengths) -> Result<Option<Value>, Error> {
    if lengths.fixed().is_some() {
        return Ok(None);
    }
    net.enter("embeddings");
    let shape = net.op(Shape { x: ids }, "ids_shape")?;
    let begin = net.ints(&[1], "length_begin")?;
    let end = net.ints(&[2], "length_end")?;
    let slice = SliceByIndex {
        x: shape,
        begin,
        end,
        stride: None,
        begin_mask: None,
        end_mask: None,
        squeeze_mask: None,
    };
    net.op(slice, "length").map(Some)
}

/// 1 for every id that is not padding, in f32.
fn mask_from_ids(net: &mut Net, ids: Value, config: &Config) -> Result<Value, Error> {
    net.enter("attention_mask");
    let pad = net.constant(Tensor::i32(vec![], &[config.pad_token_id as i32]), "pad_token_id")?;
    let is_token = net.op(NotEqual { x: ids, y: pad }, "is_token")?;
    net.op(Cast { x: is_token, dtype: DType::F32 }, "mask")
}

/// Words, plus token type 0, plus positions, normed.
fn embeddings(
    net: &mut Net,
    config: &Config,
    weights: &Weights,
    lengths: &Lengths,
    length: Option<Value>,
    ids: Value,
) -> Result<Value, Error> {
    let hidden = config.hidden;
    net.enter("embeddings.word_embeddings");
    let table = weights.get("embeddings.word_embeddings.weight", &[config.n_vocab, hidden])?;
    let table = net.constant(table, "word_table")?;
    let gather = Gather { x: table, indices: ids, axis: 0, batch_dims: 0, validate_indices: false };
    let mut x = net.op(gather, "words")?;
    if config.n_token_types > 0 {
        net.enter("embeddings.token_type_embeddings");
        let name = "embeddings.token_type_embeddings.weight";
        let types = weights.get(name, &[config.n_token_types, hidden])?;
        let type_0 = net.constant(types.rows(0, 1).reshaped(vec![1, 1, hidden]), "token_type_0")?;
        x = net.op(Add { x, y: type_0 }, "typed_words")?;
    }
    net.enter("embeddings.position_embeddings");
    let name = "embeddings.position_embeddings.weight";
    let table = weights.get(name, &[config.n_positions, hidden])?;
    let n = lengths.longest();
    let rows = table.rows(config.first_position(), n).reshaped(vec![1, n, hidden]);
    let positions = match length {
        None => net.constant(rows, "positions")?,
        Some(length) => {
            let table = net.constant(rows, "position_table")?;
            let size = [Some(1), None, Some(hidden as i32)];
            slice_to_length(net, table, length, &size, "positions")?
        }
    };
    x = net.op(Add { x, y: positions }, "placed_words")?;
    let norm = (hidden, config.norm_epsilon);
    net.norm(weights, "embeddings.LayerNorm", x, norm, "embeddings")
}

/// The first elements of `x`: as many as `size` says, and `length` where it says nothing.
fn slice_to_length(
    net: &mut Net,
    x: Value,
    length: Value,
    size: &[Option<i32>],
    name: &str,
) -> Result<Value, Error> {
    let begin = net.ints(&vec![0; size.len()], &format!("{name}_begin"))?;
    let mut values = Vec::new();
    for (i, n) in size.iter().enumerate() {
        values.push(match n {
            Some(n) => net.ints(&[*n], &format!("{name}_size_{i}"))?,
            None => length,
        });
    }
    let size = net.op(Concat { values, axis: 0, interleave: false }, &format!("{name}_size"))?;
    net.op(SliceBySize { x, begin, size }, name)
}

fn shared(
    net: &mut Net,
    config: &Config,
    weights: &Weights,
    lengths: &Lengths,
    length: Option<Value>,
    mask: Value,
    batch: u64,
) -> Result<Shared, Error> {
    net.enter("attention_mask");
    let rows = net.op(ExpandDims { x: mask, axes: vec![1, 2] }, "mask_rows")?;
    let one = net.scalar(1.0, "one")?;
    let padding = net.op(Sub { x: one, y: rows }, "padding")?;
    let masked = net.scalar(MASKED, "masked")?;
    let mask_bias = net.op(Mul { x: padding, y: masked }, "mask_bias")?;
    net.enter(config.facts.modules.layers);
    let (b, s) = (batch as i32, lengths.fixed().map_or(-1, |n| n as i32));
    let (heads, dim) = (config.n_heads as i32, config.head_dim());
    let split_shape = net.ints(&[b, s, heads, dim as i32], "split_shape")?;
    let merged_shape = net.ints(&[b, s, config.hidden as i32], "merged_shape")?;
    let scale = net.scalar((1.0 / (dim as f64).sqrt()) as f32, "scale")?;
    let relative_bias = match config.facts.modules.relative_bias {
        Some(module) => Some(relative_bias(net, config, weights, lengths, length, module)?),
        None => None,
    };
    Ok(Shared { split_shape, merged_shape, scale, mask_bias, relative_bias })
}

fn relative_bias(
    net: &mut Net,
    config: &Config,
    weights: &Weights,
    lengths: &Lengths,
    length: Option<Value>,
    module: &str,
) -> Result<Value, Error> {
    net.enter(module);
    let (heads, n) = (config.n_heads, lengths.longest());
    let table = weights.get(&format!("{module}.weight"), &[config.n_buckets, heads])?;
    let biases = mpnet::biases(&table.to_f32(), (config.n_buckets, mpnet::DISTANCE_MAX), heads, n);
    let all = Tensor::f32(vec![1, heads, n, n], &biases);
    match length {
        None => net.constant(all, "relative_bias"),
        Some(length) => {
            let table = net.constant(all, "relative_bias_table")?;
            let size = [Some(1), Some(heads as i32), None, None];
            slice_to_length(net, table, length, &size, "relative_bias")
        }
    }
}

fn layer(
    net: &mut Net,
    config: &Config,
    weights: &Weights,
    shared: &Shared,
    i: u64,
    x: Value,
) -> Result<Value, Error> {
    let m = &config.facts.modules;
    let module = |name: &str| format!("{}.{i}.{name}", m.layers);
    let named = |name: &str| format!("layer_{i}_{name}");
    let (hidden, norm) = (config.hidden, (config.hidden, config.norm_epsilon));
    let square = (hidden, hidden);

    let context = attention(net, config, weights, shared, i, x)?;
    let projected =
        net.linear(weights, &module(m.attention_output), context, square, &named("projected"))?;
    let sum = net.op(Add { x: projected, y: x }, &named("attention_sum"))?;
    let attended = net.norm(weights, &module(m.attention_norm), sum, norm, &named("attended"))?;

    let up = (hidden, config.intermediate);
    let up = net.linear(weights, &module(m.up), attended, up, &named("up"))?;
    let active = net.activation(config.activation, up, &named("active"))?;
    let down = (config.intermediate, hidden);
    let down = net.linear(weights, &module(m.down), active, down, &named("down"))?;
    let sum = net.op(Add { x: down, y: attended }, &named("sum"))?;
    let is_last = i + 1 == config.n_layers;
    let name = if is_last { "last_hidden_state".to_owned() } else { named("output") };
    net.norm(weights, &module(m.output_norm), sum, norm, &name)
}

/// Every token's mixture of the values of all tokens, heads side by side again.
fn attention(
    net: &mut Net,
    config: &Config,
    weights: &Weights,
    shared: &Shared,
    i: u64,
    x: Value,
) -> Result<Value, Error> {
    let m = &config.facts.modules;
    let named = |name: &str| format!("layer_{i}_{name}");
    let mut heads = |part: &str, module: &str| {
        let module = format!("{}.{i}.{module}", m.layers);
        let square = (config.hidden, config.hidden);
        let y = net.linear(weights, &module, x, square, &named(part))?;
        let reshape = Reshape { x: y, shape: shared.split_shape };
        let split = net.op(reshape, &named(&format!("{part}_split")))?;
        net.op(Transpose { x: split, perm: vec![0, 2, 1, 3] }, &named(&format!("{part}_heads")))
    };
    let query = heads("query", m.query)?;
    let key = heads("key", m.key)?;
    let value = heads("value", m.value)?;

    // The module of the whole attention: what the names of query and key have in common.
    let parent = m.query.rsplit_once('.').map_or(m.query, |p| p.0);
    net.enter(&format!("{}.{i}.{parent}", m.layers));
    let product = Matmul { x: query, y: key, transpose_x: false, transpose_y: true };
    let product = net.op(product, &named("scores"))?;
    let mut scores = net.op(Mul { x: product, y: shared.scale }, &named("scaled_scores"))?;
    if let Some(bias) = shared.relative_bias {
        scores = net.op(Add { x: scores, y: bias }, &named("placed_scores"))?;
    }
    let scores = net.op(Add { x: scores, y: shared.mask_bias }, &named("masked_scores"))?;
    let probabilities = net.op(Softmax { x: scores, axis: -1 }, &named("probabilities"))?;
    let mix = Matmul { x: probabilities, y: value, transpose_x: false, transpose_y: false };
    let mixed = net.op(mix, &named("mixed_heads"))?;
    let tokens = net.op(Transpose { x: mixed, perm: vec![0, 2, 1, 3] }, &named("mixed_split"))?;
    net.op(Reshape { x: tokens, shape: shared.merged_shape }, &named("context"))
}
