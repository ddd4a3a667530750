//! DiT: latent pictures denoised for a class.

use russet_ir::{DType, Dim, Graph, TensorType, Value};

use super::super::Options;
use super::super::attention::{Projections, Reads, attention};
use super::super::family::{Built, Family, Folder};
use super::super::json::Json;
use super::super::lengths;
use super::super::net::{Bias, Net};
use super::super::scope::Scope;
use super::super::usage::Usage;
use super::super::weights::Weights;
use super::conditions::{N_WAVES, embedder, gated_sum, modulated, modulation, whole_time};
use super::latents::{Latents, Mlp};
use crate::Error;

pub const DIT: Family = Family {
    name: "dit",
    model_types: &["DiTTransformer2DModel"],
    architectures: &[],
    check: |json| Config::parse(json).map(drop),
    build,
};

struct Config {
    latents: Latents,
    n_classes: u64,
    bias: Bias,
    mlp: Mlp,
    epsilon: f32,
}

impl Config {
    fn parse(json: &Json) -> Result<Config, Error> {
        json.require("norm_type", "ada_norm_zero")?;
        json.require("norm_elementwise_affine", false)?;
        Ok(Config {
            latents: Latents::parse(json)?,
            n_classes: json.count("num_embeds_ada_norm", Some(1000))?,
            bias: Bias::when(json.flag("attention_bias", true)?),
            mlp: Mlp::parse(json, "gelu-approximate")?,
            epsilon: json.epsilon("norm_eps", 1e-5)?,
        })
    }
}

/// Modules of diffusers' attention.
pub fn projections(bias: Bias) -> Projections {
    Projections {
        query: ("to_q", bias),
        key: ("to_k", bias),
        value: ("to_v", bias),
        output: ("to_out.0", Bias::Present),
    }
}

/// One function `main`: `hidden_states`, `timestep` and `class_labels` to `sample`.
fn build(folder: &Folder, options: &Options) -> Result<Built, Error> {
    let mut config = Config::parse(&folder.config)?;
    let file = folder.config.file();
    lengths::none(options, file)?;
    config.latents.heads.batch = lengths::batch(options, file)?;
    let weights = Weights::whole(&folder.path)?;
    let graph = graph(&config, &weights)?;
    Ok(Built {
        functions: vec![graph],
        usage: Usage::Arrays,
        n_parameters: weights.n_parameters(),
        n_bytes: weights.n_bytes(),
    })
}

/// Of norms that say no other.
const EPSILON: f32 = 1e-6;

fn graph(config: &Config, weights: &Weights) -> Result<Graph, Error> {
    let latents = &config.latents;
    let (batch, width) = (latents.heads.batch, latents.width());
    let mut net = Net::new("main", weights.file());
    let mut s = Scope::new(&mut net, weights);
    let mut x = latents.embed(&mut s, latents.waves(1.0))?;
    let time = whole_time(&mut s, batch, 1)?;
    let ty = TensorType::new(DType::I32, [Dim::Fixed(batch)]);
    let labels = s.net.graph.add_input("class_labels", ty);
    let mut first = None;
    for i in 0..latents.n_layers {
        let mut s = s.inside(&format!("transformer_blocks.{i}"), &format!("layer_{i}"));
        let condition = condition(&mut s, config, time, labels)?;
        first.get_or_insert(condition);
        x = layer(&mut s, config, condition, x)?;
    }
    if let Some(condition) = first {
        let parts = modulation(&mut s, "proj_out_1", condition, width, 2)?;
        x = modulated(&mut s, x, (parts[0], parts[1]), EPSILON, "last_hidden_state")?;
    }
    let columns = latents.patch * latents.patch * latents.out_channels;
    let x = s.linear("proj_out_2", x, (width, columns), Bias::Present, "patches_out")?;
    let sample = latents.picture(&mut s, x)?;
    net.graph.set_outputs(vec![sample]);
    Ok(net.graph)
}

/// Time and class: every layer has embedders of its own.
fn condition(s: &mut Scope, config: &Config, time: Value, labels: Value) -> Result<Value, Error> {
    let (batch, width) = (config.latents.heads.batch, config.latents.width());
    let mut s = s.inside("norm1.emb", "condition");
    let time = embedder(&mut s, "timestep_embedder", time, (N_WAVES, width), "time")?;
    // One more class than there are stands for none.
    let shape = [config.n_classes + 1, width];
    let class = s.embedding("class_embedder.embedding_table", labels, shape, "class")?;
    let class = s.reshape(class, &[batch, 1, width], "class_row")?;
    s.add(time, class, "sum")
}

fn layer(s: &mut Scope, config: &Config, condition: Value, x: Value) -> Result<Value, Error> {
    let latents = &config.latents;
    let (heads, width) = (latents.heads, latents.width());
    let parts = modulation(s, "norm1.linear", condition, width, 6)?;
    let normed = modulated(s, x, (parts[0], parts[1]), EPSILON, "normed")?;
    let reads = Reads::itself(normed, latents.count(), width);
    let scores = (Some(heads.scale()), &[][..]);
    let modules = projections(config.bias);
    let mut inner = s.inside("attn1", "");
    let y = attention(&mut inner, &modules, heads, reads, scores, width, "attention")?;
    let x = gated_sum(s, x, parts[2], y, "attention_sum")?;
    let normed = modulated(s, x, (parts[3], parts[4]), config.epsilon, "attention_normed")?;
    let y = config.mlp.build(s, "ff", normed, width)?;
    gated_sum(s, x, parts[5], y, "output")
}
