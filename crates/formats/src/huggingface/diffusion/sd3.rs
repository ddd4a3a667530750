//! Stable Diffusion 3 and 3.5: latent pictures and a text in joint layers.

use russet_ir::{DType, Dim, Graph, Tensor, TensorType, Value};

use super::super::Options;
use super::super::family::{Built, Family, Folder};
use super::super::json::{Activation, Json};
use super::super::lengths::{self, Span};
use super::super::net::{Bias, Net};
use super::super::scope::Scope;
use super::super::usage::Usage;
use super::super::weights::Weights;
use super::conditions::{N_WAVES, embedder, modulated, modulation, waves_of};
use super::joint::{EPSILON, First, Joint, Kind};
use super::latents::{Latents, Mlp};
use crate::Error;

pub const SD3: Family = Family {
    name: "sd3",
    model_types: &["SD3Transformer2DModel"],
    architectures: &[],
    check: |json| Config::parse(json).map(drop),
    build,
};

struct Config {
    latents: Latents,
    /// Columns of the text's vectors, and of its pooled one.
    text: u64,
    pooled: u64,
    /// Patches along a side that there are places for.
    places: u64,
    normed: bool,
    dual: Vec<u64>,
}

/// Patches along a side beyond which a config is a mistake.
const PLACES_MAX: u64 = 1 << 10;

impl Config {
    fn parse(json: &Json) -> Result<Config, Error> {
        let latents = Latents::parse(json)?;
        json.require("caption_projection_dim", latents.width())?;
        json.require("qk_norm", "rms_norm")?;
        let places = json.count("pos_embed_max_size", None)?;
        if places < latents.side() || places > PLACES_MAX {
            let expected = format!("from {} to {PLACES_MAX}", latents.side());
            return Err(json.error("pos_embed_max_size", places.to_string(), expected));
        }
        Ok(Config {
            latents,
            text: json.count("joint_attention_dim", None)?,
            pooled: json.count("pooled_projection_dim", None)?,
            places,
            normed: json.has("qk_norm"),
            dual: json.numbers("dual_attention_layers")?,
        })
    }
}

/// Tokens of a text when nothing is said about them, those of CLIP and T5, and at most.
const LENGTH_DEFAULT: u64 = 77 + 256;
const LENGTH_MAX: u64 = 4096;

/// One function `main`: `hidden_states`, `timestep`, `encoder_hidden_states` and `pooled_projections` to
/// `sample`.
fn build(folder: &Folder, options: &Options) -> Result<Built, Error> {
    let mut config = Config::parse(&folder.config)?;
    let file = folder.config.file();
    let span = Span { unit: "token", default: LENGTH_DEFAULT, min: 1, max: LENGTH_MAX };
    let length = lengths::length(options, &span, file)?;
    config.latents.heads.batch = lengths::batch(options, file)?;
    let weights = Weights::whole(&folder.path)?;
    let graph = graph(&config, &weights, length)?;
    Ok(Built {
        functions: vec![graph],
        usage: Usage::Arrays,
        n_parameters: weights.n_parameters(),
        n_bytes: weights.n_bytes(),
    })
}

fn graph(config: &Config, weights: &Weights, length: u64) -> Result<Graph, Error> {
    let latents = &config.latents;
    let (batch, width) = (latents.heads.batch, latents.width());
    let mut net = Net::new("main", weights.file());
    let mut s = Scope::new(&mut net, weights);
    let places = places(&s, config)?;
    let mut picture = latents.embed(&mut s, places)?;
    let time = waves_of(&mut s, "timestep", (batch, None), 1.0)?;
    let condition = {
        let mut s = s.inside("time_text_embed", "condition");
        let time = embedder(&mut s, "timestep_embedder", time, (N_WAVES, width), "time")?;
        let pooled = pooled(&mut s, batch, config.pooled, width)?;
        s.add(time, pooled, "sum")?
    };
    let mut text = text(&mut s, (batch, length), (config.text, width))?;
    let joint = Joint {
        heads: latents.heads,
        n_picture: latents.count(),
        n_text: length,
        normed: config.normed,
        first: First::Picture,
        turns: None,
        mlp: Mlp::Plain(Activation::Gelu(russet_ir::ops::GeluMode::Tanh)),
    };
    for i in 0..latents.n_layers {
        let kind = Kind { last: i + 1 == latents.n_layers, dual: config.dual.contains(&i) };
        let mut s = s.inside(&format!("transformer_blocks.{i}"), &format!("layer_{i}"));
        let (x, y) = joint.layer(&mut s, kind, condition, (picture, text))?;
        (picture, text) = (x, y.unwrap_or(text));
    }
    let parts = modulation(&mut s, "norm_out.linear", condition, width, 2)?;
    let x = modulated(&mut s, picture, (parts[1], parts[0]), EPSILON, "last_hidden_state")?;
    let columns = latents.patch * latents.patch * latents.out_channels;
    let x = s.linear("proj_out", x, (width, columns), Bias::Present, "patches_out")?;
    let sample = latents.picture(&mut s, x)?;
    net.graph.set_outputs(vec![sample]);
    Ok(net.graph)
}

/// The middle of the table of places.
fn places(s: &Scope, config: &Config) -> Result<Tensor, Error> {
    let (side, all, width) = (config.latents.side(), config.places, config.latents.width());
    let table = s.tensor("pos_embed.pos_embed", &[1, all * all, width])?.to_f32();
    let before = (all - side) / 2;
    let mut kept = Vec::with_capacity((side * side * width) as usize);
    for row in before..before + side {
        let (from, n) = (((row * all + before) * width) as usize, (side * width) as usize);
        kept.extend(&table[from..from + n]);
    }
    Ok(Tensor::f32(vec![1, side * side, width], &kept))
}

/// The input `pooled_projections`, embedded.
pub fn pooled(s: &mut Scope, batch: u64, columns: u64, width: u64) -> Result<Value, Error> {
    let ty = TensorType::new(DType::F32, [batch, columns].map(Dim::Fixed));
    let x = s.net.graph.add_input("pooled_projections", ty);
    let x = s.reshape(x, &[batch, 1, columns], "pooled_row")?;
    embedder(s, "text_embedder", x, (columns, width), "pooled")
}

/// The input `encoder_hidden_states`, projected.
pub fn text(
    s: &mut Scope,
    (batch, length): (u64, u64),
    (columns, width): (u64, u64),
) -> Result<Value, Error> {
    let ty = TensorType::new(DType::F32, [batch, length, columns].map(Dim::Fixed));
    let x = s.net.graph.add_input("encoder_hidden_states", ty);
    s.linear("context_embedder", x, (columns, width), Bias::Present, "text")
}
