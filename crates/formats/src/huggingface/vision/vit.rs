//! ViT and its kin DeiT and DINOv2: patches of a picture, a class token before them, layers with the
//! norm before.

use russet_ir::ops::*;
use russet_ir::{Graph, Tensor, Value};

use super::super::Options;
use super::super::attention::{Heads, Layer, LayerSizes, Norms, Projections};
use super::super::family::{Built, Family, Folder};
use super::super::json::{Activation, Json};
use super::super::lengths;
use super::super::net::{Bias, Net};
use super::super::scope::Scope;
use super::super::usage::Usage;
use super::super::usage::image::Images;
use super::super::weights::Weights;
use super::patches::Patches;
use crate::Error;

pub const VIT: Family = Family {
    name: "vit",
    model_types: &["vit"],
    architectures: &["ViT"],
    check: |json| Config::parse(&PLAIN, json).map(drop),
    build: |folder, options| build(&PLAIN, folder, options),
};

pub const DEIT: Family = Family {
    name: "deit",
    model_types: &["deit"],
    architectures: &["DeiT"],
    check: |json| Config::parse(&DISTILLED, json).map(drop),
    build: |folder, options| build(&DISTILLED, folder, options),
};

pub const DINOV2: Family = Family {
    name: "dinov2",
    model_types: &["dinov2", "dinov2_with_registers"],
    architectures: &["Dinov2"],
    check: |json| Config::parse(&SELF_TAUGHT, json).map(drop),
    build: |folder, options| build(&SELF_TAUGHT, folder, options),
};

/// What sets one family of them apart from the others.
#[derive(Debug)]
struct Facts {
    layer: Layer,
    /// Is the second token one of distillation?
    distilled: bool,
    /// Is the MLP's size a ratio, and may it be gated?
    by_ratio: bool,
    epsilon: f64,
}

const LAYER: Layer = Layer {
    attention: Projections::biased(
        "attention.attention.query",
        "attention.attention.key",
        "attention.attention.value",
        "attention.output.dense",
    ),
    norms: Norms::Before,
    attention_norm: "layernorm_before",
    mlp_norm: "layernorm_after",
    up: "intermediate.dense",
    down: "output.dense",
    factors: None,
};

const PLAIN: Facts = Facts { layer: LAYER, distilled: false, by_ratio: false, epsilon: 1e-12 };
const DISTILLED: Facts = Facts { distilled: true, ..PLAIN };
const SELF_TAUGHT: Facts = Facts {
    layer: Layer {
        attention_norm: "norm1",
        mlp_norm: "norm2",
        up: "mlp.fc1",
        down: "mlp.fc2",
        factors: Some(["layer_scale1.lambda1", "layer_scale2.lambda1"]),
        ..LAYER
    },
    distilled: false,
    by_ratio: true,
    epsilon: 1e-6,
};

struct Config {
    patches: Patches,
    hidden: u64,
    n_layers: u64,
    n_heads: u64,
    intermediate: u64,
    gated: bool,
    n_registers: u64,
    epsilon: f32,
    activation: Activation,
    qkv_bias: Bias,
    labels: Vec<String>,
}

impl Config {
    fn parse(facts: &Facts, json: &Json) -> Result<Config, Error> {
        let hidden = json.count("hidden_size", None)?;
        let gated = facts.by_ratio && json.flag("use_swiglu_ffn", false)?;
        let intermediate = match facts.by_ratio {
            true => ratio(json, hidden, gated)?,
            false => json.count("intermediate_size", None)?,
        };
        let n_heads = json.count("num_attention_heads", None)?;
        if !hidden.is_multiple_of(n_heads) {
            let expected = format!("a multiple of `num_attention_heads`, {n_heads}");
            return Err(json.error("hidden_size", hidden.to_string(), expected));
        }
        json.require("pooler_act", "tanh")?;
        Ok(Config {
            patches: Patches::parse(json)?,
            hidden,
            n_layers: json.count("num_hidden_layers", None)?,
            n_heads,
            intermediate,
            gated,
            n_registers: json.number("num_register_tokens", Some(0))?,
            epsilon: json.epsilon("layer_norm_eps", facts.epsilon)?,
            activation: json.activation("hidden_act", "gelu")?,
            qkv_bias: Bias::when(json.flag("qkv_bias", true)?),
            labels: json.labels()?,
        })
    }

    /// Tokens before the patches.
    fn n_before(&self, facts: &Facts) -> u64 {
        1 + u64::from(facts.distilled) + self.n_registers
    }
}

/// Columns inside the MLP: `mlp_ratio` as many, of a gated one two thirds, rounded up to eights.
fn ratio(json: &Json, hidden: u64, gated: bool) -> Result<u64, Error> {
    let whole = (hidden as f64 * json.positive("mlp_ratio", Some(4.0))?) as u64;
    let n = if gated { ((whole as f64 * 2.0 / 3.0) as u64).div_ceil(8) * 8 } else { whole };
    match n {
        1..=0x7fff_ffff => Ok(n),
        _ => Err(json.error("mlp_ratio", json.found("mlp_ratio"), "a ratio of some columns")),
    }
}

/// One function `main`: `pixel_values` to `logits` where there is a classifier, else to
/// `last_hidden_state` and the `pooler_output` where there is one.
fn build(facts: &'static Facts, folder: &Folder, options: &Options) -> Result<Built, Error> {
    let config = Config::parse(facts, &folder.config)?;
    lengths::none(options, folder.config.file())?;
    let batch = lengths::batch(options, folder.config.file())?;
    let probe = ("embeddings.cls_token", vec![1, 1, config.hidden]);
    let weights = Weights::open(&folder.path, &probe)?;
    let whole = Weights::whole(&folder.path)?;
    let graph = graph(facts, &config, &weights, &whole, batch)?;
    let classifies = graph.outputs().iter().any(|&v| graph.value(v).name == "logits");
    let mut usage = Images::read(&folder.path, config.patches.image)?;
    if classifies {
        usage.labels = config.labels;
    }
    Ok(Built {
        functions: vec![graph],
        usage: Usage::Image(usage),
        n_parameters: weights.n_parameters() + whole.n_parameters(),
        n_bytes: weights.n_bytes(),
    })
}

fn graph(
    facts: &Facts,
    config: &Config,
    weights: &Weights,
    whole: &Weights,
    batch: u64,
) -> Result<Graph, Error> {
    let mut net = Net::new("main", weights.file());
    let mut s = Scope::new(&mut net, weights);
    let mut x = embeddings(&mut s, facts, config, batch)?;
    let sizes = LayerSizes {
        heads: Heads { batch, count: config.n_heads, dim: config.hidden / config.n_heads },
        length: config.patches.count() + config.n_before(facts),
        intermediate: config.intermediate,
        epsilon: config.epsilon,
        activation: config.activation,
    };
    let mut modules = facts.layer;
    let a = &mut modules.attention;
    (a.query.1, a.key.1, a.value.1) = (config.qkv_bias, config.qkv_bias, config.qkv_bias);
    for i in 0..config.n_layers {
        let mut s = s.inside(&format!("encoder.layer.{i}"), &format!("layer_{i}"));
        x = match config.gated {
            false => modules.build(&mut s, &sizes, x, &[])?,
            true => modules.build_with(&mut s, &sizes, x, &[], |s, x| gated(s, &sizes, x))?,
        };
    }
    let x = s.norm("layernorm", x, (config.hidden, config.epsilon), "last_hidden_state")?;
    let outputs = head(&mut s, facts, config, whole, batch, x)?;
    net.graph.set_outputs(outputs);
    Ok(net.graph)
}

/// The class token and its like, then the patches; positions are of all but the registers.
fn embeddings(s: &mut Scope, facts: &Facts, config: &Config, batch: u64) -> Result<Value, Error> {
    let mut s = s.inside("embeddings", "");
    let (hidden, n_patches) = (config.hidden, config.patches.count());
    let pixels = config.patches.input(&mut s, batch);
    let module = "patch_embeddings.projection";
    let patches = config.patches.embed(&mut s, module, pixels, (batch, hidden), Bias::Present)?;
    let n_placed = 1 + u64::from(facts.distilled);
    let places = s.tensor("position_embeddings", &[1, n_placed + n_patches, hidden])?;
    let places = places.reshaped(vec![n_placed + n_patches, hidden]);
    let rows = |from, to: u64| places.rows(from, to - from).reshaped(vec![1, to - from, hidden]);
    let of_patches = s.constant(rows(n_placed, n_placed + n_patches), "patch_positions")?;
    let placed = s.add(patches, of_patches, "placed_patches")?;
    let mut before = Vec::new();
    for (i, name) in ["cls_token", "distillation_token"][..n_placed as usize].iter().enumerate() {
        let token = s.weight(name, &[1, 1, hidden], name)?;
        let place = s.constant(rows(i as u64, i as u64 + 1), &format!("{name}_position"))?;
        let token = s.add(token, place, &format!("placed_{name}"))?;
        before.push(repeated(&mut s, token, batch, name)?);
    }
    if config.n_registers > 0 {
        let registers =
            s.weight("register_tokens", &[1, config.n_registers, hidden], "registers")?;
        before.push(repeated(&mut s, registers, batch, "registers")?);
    }
    before.push(placed);
    s.concat(before, 1, "embedded")
}

/// `[1, n, hidden]` for every picture of the batch.
fn repeated(s: &mut Scope, x: Value, batch: u64, name: &str) -> Result<Value, Error> {
    if batch == 1 {
        return Ok(x);
    }
    let reps = Tensor::i32(vec![3], &[batch as i32, 1, 1]);
    let reps = s.constant(reps, &format!("{name}_reps"))?;
    s.op(Tile { x, reps }, &format!("batch_{name}"))
}

/// `down(silu(gate) * up)`; gate and up are one matrix in files, the gate first.
fn gated(s: &mut Scope, sizes: &LayerSizes, x: Value) -> Result<Value, Error> {
    let (n, inner) = (sizes.heads.width(), sizes.intermediate);
    let mut s = s.inside("mlp", "");
    let weight = s.tensor("weights_in.weight", &[2 * inner, n])?;
    let bias = s.tensor("weights_in.bias", &[2 * inner])?;
    let mut half = |from: u64, name: &str| {
        let weight = s.constant(weight.rows(from, inner), &format!("{name}_weight"))?;
        let bias = s.constant(bias.rows(from, inner), &format!("{name}_bias"))?;
        s.op(Linear { x, weight, bias: Some(bias) }, name)
    };
    let (gate, up) = (half(0, "gate")?, half(inner, "up")?);
    let gate = s.op(Silu { x: gate }, "open_gate")?;
    let product = s.mul(gate, up, "gated")?;
    s.linear("weights_out", product, (inner, n), Bias::Present, "down")
}

/// What the model says in the end, by the modules that are there.
fn head(
    s: &mut Scope,
    facts: &Facts,
    config: &Config,
    whole: &Weights,
    batch: u64,
    x: Value,
) -> Result<Vec<Value>, Error> {
    let hidden = config.hidden;
    let n_labels = config.labels.len() as u64;
    let token = |s: &mut Scope, at: u64, name: &str| {
        let row = s.slice(x, (1, 3), (at, at + 1), &format!("{name}_row"))?;
        s.reshape(row, &[batch, hidden], name)
    };
    let has_pooler = s.has("pooler.dense.weight");
    if whole.has("cls_classifier.weight") {
        let (class, taught) = (token(s, 0, "class")?, token(s, 1, "taught")?);
        let mut s = Scope::new(s.net, whole);
        let columns = (hidden, n_labels);
        let a = s.linear("cls_classifier", class, columns, Bias::Present, "class_logits")?;
        let b = "distillation_classifier";
        let b = s.linear(b, taught, columns, Bias::Present, "taught_logits")?;
        let sum = s.add(a, b, "both_logits")?;
        return Ok(vec![s.scaled(sum, 0.5, "logits")?]);
    }
    if whole.has("classifier.weight") {
        let mut class = token(s, 0, "class")?;
        let mut width = hidden;
        if facts.by_ratio {
            let n_before = config.n_before(facts);
            let all = n_before + config.patches.count();
            let patches = s.slice(x, (1, 3), (n_before, all), "patch_rows")?;
            let mean = ReduceMean { x: patches, axes: Some(vec![1]), keep_dims: false };
            let mean = s.op(mean, "patch_mean")?;
            class = s.concat(vec![class, mean], 1, "class_and_mean")?;
            width = 2 * hidden;
        }
        let mut s = Scope::new(s.net, whole);
        return Ok(vec![s.linear(
            "classifier",
            class,
            (width, n_labels),
            Bias::Present,
            "logits",
        )?]);
    }
    if has_pooler {
        let class = token(s, 0, "class")?;
        let dense = s.linear("pooler.dense", class, (hidden, hidden), Bias::Present, "pooled")?;
        return Ok(vec![x, s.op(Tanh { x: dense }, "pooler_output")?]);
    }
    match facts.by_ratio {
        true => Ok(vec![x, token(s, 0, "pooler_output")?]),
        false => Ok(vec![x]),
    }
}
