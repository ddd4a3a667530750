//! A GGUF file as a Hugging Face folder: its metadata as a `config.json`, its tensors by the names
//! that `transformers` gives them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use russet_ir::{DType, Elements, Tensor};
use serde_json::{Map, Value as Json, json};

use super::{Gguf, Value};
use crate::Error;

/// Architectures that are read, as GGUF and as `transformers` call them.
const ARCHITECTURES: &[(&str, &str)] = &[
    ("llama", "llama"),
    ("qwen2", "qwen2"),
    ("qwen3", "qwen3"),
    ("gemma", "gemma"),
    ("gemma2", "gemma2"),
    ("gemma3", "gemma3_text"),
    ("phi3", "phi3"),
];

/// Metadata below the architecture's name, and the config's field for it.
const FIELDS: &[(&str, &str)] = &[
    ("embedding_length", "hidden_size"),
    ("block_count", "num_hidden_layers"),
    ("feed_forward_length", "intermediate_size"),
    ("attention.head_count", "num_attention_heads"),
    ("attention.head_count_kv", "num_key_value_heads"),
    ("attention.key_length", "head_dim"),
    ("attention.layer_norm_rms_epsilon", "rms_norm_eps"),
    ("attention.sliding_window", "sliding_window"),
    ("attn_logit_softcapping", "attn_logit_softcapping"),
    ("final_logit_softcapping", "final_logit_softcapping"),
    ("context_length", "max_position_embeddings"),
    ("rope.freq_base", "rope_theta"),
];

/// Modules by the file's names; those of a layer are below `blk.{i}`.
const MODULES: &[(&str, &str)] = &[
    ("token_embd", "model.embed_tokens"),
    ("output_norm", "model.norm"),
    ("output", "lm_head"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_qkv", "self_attn.qkv_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
    ("attn_norm", "input_layernorm"),
    ("post_attention_norm", "post_attention_layernorm"),
    ("post_ffw_norm", "post_feedforward_layernorm"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_down", "mlp.down_proj"),
];

impl Gguf {
    /// The architecture, in GGUF's words.
    fn architecture(&self) -> &str {
        match self.metadata.get("general.architecture") {
            Some(Value::String(name)) => name,
            _ => "",
        }
    }

    /// The value below the architecture's name.
    fn own(&self, field: &str) -> Option<&Value> {
        self.metadata.get(&format!("{}.{field}", self.architecture()))
    }

    fn int(&self, field: &str) -> Option<i64> {
        match self.own(field)? {
            Value::Int(n) => Some(*n),
            _ => None,
        }
    }

    fn float(&self, field: &str) -> Option<f64> {
        match self.own(field)? {
            Value::Float(x) => Some(*x),
            Value::Int(n) => Some(*n as f64),
            _ => None,
        }
    }

    fn text(&self, field: &str) -> Option<&str> {
        match self.own(field)? {
            Value::String(s) => Some(s),
            _ => None,
        }
    }

    fn is_gemma(&self) -> bool {
        self.architecture().starts_with("gemma")
    }

    /// Has each part of a layer a norm behind it too?
    fn has_sandwich(&self) -> bool {
        matches!(self.architecture(), "gemma2" | "gemma3")
    }
}

/// The text of the `config.json` that the file stands for; `path` is for errors.
pub fn config(gguf: &Gguf, path: &Path) -> Result<String, Error> {
    let architecture = gguf.architecture();
    let Some((_, model_type)) = ARCHITECTURES.iter().find(|a| a.0 == architecture) else {
        let known: Vec<&str> = ARCHITECTURES.iter().map(|a| a.0).collect();
        return Err(Error::Family {
            file: path.to_owned(),
            found: architecture.to_owned(),
            known: known.join(", "),
        });
    };
    let mut fields = Map::new();
    fields.insert("model_type".into(), json!(model_type));
    for (from, to) in FIELDS {
        if let Some(value) = gguf.own(from) {
            fields.insert((*to).into(), plain(value));
        }
    }
    if let Some(table) = gguf.tensors.get("token_embd.weight") {
        fields.insert("vocab_size".into(), json!(table.shape.first()));
    }
    let bias = gguf.tensors.contains_key("blk.0.attn_q.bias");
    fields.insert("attention_bias".into(), json!(bias));
    let tied = !gguf.tensors.contains_key("output.weight");
    fields.insert("tie_word_embeddings".into(), json!(tied));
    for end in ["bos_token_id", "eos_token_id"] {
        if let Some(Value::Int(id)) = gguf.metadata.get(&format!("tokenizer.ggml.{end}")) {
            fields.insert(end.into(), json!(id));
        }
    }
    if gguf.has_sandwich() {
        fields.insert("query_pre_attn_scalar".into(), json!(query_scalar(gguf)));
    }
    rope(gguf, &mut fields);
    Ok(Json::Object(fields).to_string())
}

fn plain(value: &Value) -> Json {
    match value {
        Value::Int(n) => json!(n),
        Value::Float(x) => json!(x),
        Value::Bool(b) => json!(b),
        Value::String(s) => json!(s),
        // One number for each layer: they are the same in all architectures that are read.
        Value::Ints(all) if all.windows(2).all(|w| w[0] == w[1]) => json!(all.first()),
        Value::Ints(all) => json!(all),
        Value::Floats(all) => json!(all),
        Value::Strings(all) => json!(all),
    }
}

/// Scores are divided by its root: the columns of a head, but in the largest models (46 layers of
/// Gemma 2, 62 of Gemma 3), which GGUF has no field for.
fn query_scalar(gguf: &Gguf) -> i64 {
    let heads = gguf.int("attention.head_count").unwrap_or(1).max(1);
    match (gguf.architecture(), gguf.int("block_count")) {
        ("gemma2", Some(46)) | ("gemma3", Some(62)) => {
            gguf.int("embedding_length").unwrap_or(0) / heads
        }
        _ => gguf.int("attention.key_length").unwrap_or(256),
    }
}

/// The scaling of rotary positions; factors by frequency are tensors in the file.
fn rope(gguf: &Gguf, fields: &mut Map<String, Json>) {
    if let (Some(n), Some(dim)) = (gguf.int("rope.dimension_count"), head_dim(gguf))
        && n < dim
    {
        fields.insert("partial_rotary_factor".into(), json!(n as f64 / dim as f64));
    }
    let factors = |name: &str| gguf.tensors.get(name).map(Tensor::to_f32);
    let context = gguf.int("context_length").unwrap_or(0);
    let original = gguf.int("rope.scaling.original_context_length").unwrap_or(context);
    let scaling = if let Some(factors) = factors("rope_freqs.weight") {
        json!({ "rope_type": "longrope", "short_factor": factors, "long_factor": factors,
            "original_max_position_embeddings": context, "attention_factor": 1.0 })
    } else if let (Some(long), Some(short)) =
        (factors("rope_factors_long.weight"), factors("rope_factors_short.weight"))
    {
        let mut s = json!({ "rope_type": "longrope", "short_factor": short, "long_factor": long,
            "original_max_position_embeddings": original });
        if let Some(scale) = gguf.float("rope.scaling.attn_factor") {
            s["attention_factor"] = json!(scale);
        }
        s
    } else {
        match (gguf.text("rope.scaling.type"), gguf.float("rope.scaling.factor")) {
            (Some(kind @ ("linear" | "yarn")), Some(factor)) => json!({
                "rope_type": kind, "factor": factor, "original_max_position_embeddings": original }),
            _ => return,
        }
    };
    fields.insert("rope_scaling".into(), scaling);
}

fn head_dim(gguf: &Gguf) -> Option<i64> {
    let shared = || Some(gguf.int("embedding_length")? / gguf.int("attention.head_count")?.max(1));
    gguf.int("attention.key_length").or_else(shared)
}

/// The tensors by the names `transformers` gives them, with what its own conversion changed undone:
/// the order of the rows of Llama's queries and keys, the one that was added to Gemma's norms.
pub fn tensors(gguf: &Gguf) -> BTreeMap<String, Tensor> {
    let mut all = BTreeMap::new();
    for (name, tensor) in &gguf.tensors {
        let Some(renamed) = renamed(gguf, name) else { continue };
        let heads = |field| gguf.int(field).and_then(|n| u64::try_from(n).ok());
        let tensor = if gguf.architecture() == "llama" && renamed.contains("q_proj.") {
            unpermuted(tensor, heads("attention.head_count"))
        } else if gguf.architecture() == "llama" && renamed.contains("k_proj.") {
            let n = heads("attention.head_count_kv").or(heads("attention.head_count"));
            unpermuted(tensor, n)
        } else if gguf.is_gemma() && renamed.contains("norm.") {
            let less: Vec<f32> = tensor.to_f32().into_iter().map(|x| x - 1.0).collect();
            Tensor::f32(tensor.shape.clone(), &less)
        } else {
            tensor.clone()
        };
        all.insert(renamed, tensor);
    }
    all
}

/// What a tensor is called there; nothing for what no program reads.
fn renamed(gguf: &Gguf, name: &str) -> Option<String> {
    let (module, end) = name.rsplit_once('.')?;
    let found = |module: &str| match module {
        "ffn_norm" if gguf.has_sandwich() => Some("pre_feedforward_layernorm"),
        "ffn_norm" => Some("post_attention_layernorm"),
        "ffn_up" if gguf.architecture() == "phi3" => Some("mlp.gate_up_proj"),
        "ffn_up" => Some("mlp.up_proj"),
        _ => MODULES.iter().find(|m| m.0 == module).map(|m| m.1),
    };
    match module.strip_prefix("blk.") {
        None => Some(format!("{}.{end}", found(module)?)),
        Some(rest) => {
            let (layer, module) = rest.split_once('.')?;
            Some(format!("model.layers.{layer}.{}.{end}", found(module)?))
        }
    }
}

/// Rows in `transformers`' order: in the file the two halves of each head take turns.
fn unpermuted(tensor: &Tensor, n_heads: Option<u64>) -> Tensor {
    let n_rows = tensor.shape.first().copied().unwrap_or(0);
    let head = n_heads.and_then(|n| n_rows.checked_div(n)).unwrap_or(0);
    if head == 0 || head % 2 == 1 || !n_rows.is_multiple_of(head) || tensor.dtype != DType::F32 {
        // Of plain halves, which are few: put in order at once.
        return match head == 0 || head % 2 == 1 || !n_rows.is_multiple_of(head) {
            true => tensor.clone(),
            false => unpermuted(&tensor.cast(DType::F32), n_heads),
        };
    }
    let (from, row) = (tensor.clone(), tensor.shape[1..].iter().product());
    let order = Turned { from, head, row };
    Tensor::computed(tensor.shape.clone(), Arc::new(order)).expect("as large as what it turns")
}

/// A tensor whose heads' rows take turns between their halves.
struct Turned {
    from: Tensor,
    head: u64,
    row: u64,
}

impl Elements for Turned {
    fn floats(&self, start: u64, n: u64, out: &mut Vec<f32>) {
        let (mut at, end) = (start, start + n);
        while at < end {
            let (r, column) = (at / self.row, at % self.row);
            let (head, within) = (r / self.head, r % self.head);
            let half = self.head / 2;
            let there = head * self.head + 2 * (within % half) + within / half;
            let taken = (self.row - column).min(end - at);
            out.extend(self.from.elements(there * self.row + column, taken));
            at += taken;
        }
    }

    fn bytes(&self) -> Option<&Bytes> {
        None
    }
}
