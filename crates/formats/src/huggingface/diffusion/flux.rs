//! FLUX.1: joint layers, then layers on picture and text as one sequence; places are turns.

use russet_ir::ops::*;
use russet_ir::{DType, Dim, Graph, Tensor, TensorType, Value};

use super::super::Options;
use super::super::attention::Heads;
use super::super::family::{Built, Family, Folder};
use super::super::json::{Activation, Json};
use super::super::lengths;
use super::super::net::{Bias, Net};
use super::super::scope::Scope;
use super::super::usage::Usage;
use super::super::weights::Weights;
use super::conditions::{N_WAVES, embedder, gated_sum, modulated, modulation, waves_of};
use super::joint::{EPSILON, First, Joint, Kind, Turns, crossing};
use super::latents::{Mlp, heads};
use super::sd3::{pooled, text};
use crate::Error;

pub const FLUX: Family = Family {
    name: "flux",
    model_types: &["FluxTransformer2DModel"],
    architectures: &[],
    check: |json| Config::parse(json).map(drop),
    build,
};

struct Config {
    heads: Heads,
    n_joint: u64,
    n_single: u64,
    in_channels: u64,
    out_channels: u64,
    text: u64,
    pooled: u64,
    guided: bool,
    /// Columns of a head that turn by text, row and column.
    axes: [u64; 3],
}

impl Config {
    fn parse(json: &Json) -> Result<Config, Error> {
        json.require("patch_size", 1)?;
        let heads = heads(json)?;
        let axes = match json.has("axes_dims_rope") {
            true => json.numbers("axes_dims_rope")?,
            false => vec![16, 56, 56],
        };
        let axes: Option<[u64; 3]> = axes.try_into().ok();
        let is_whole =
            |a: &[u64; 3]| a.iter().all(|n| n % 2 == 0) && a.iter().sum::<u64>() == heads.dim;
        let Some(axes) = axes.filter(is_whole) else {
            let expected = format!("three even numbers, {} together", heads.dim);
            return Err(json.error("axes_dims_rope", json.found("axes_dims_rope"), expected));
        };
        let in_channels = json.count("in_channels", Some(64))?;
        Ok(Config {
            heads,
            n_joint: json.count("num_layers", None)?,
            n_single: json.count("num_single_layers", None)?,
            in_channels,
            out_channels: json.count("out_channels", Some(in_channels))?,
            text: json.count("joint_attention_dim", None)?,
            pooled: json.count("pooled_projection_dim", None)?,
            guided: json.flag("guidance_embeds", false)?,
            axes,
        })
    }
}

/// Tokens of text and picture when nothing is said: a picture of 1024 pixels square.
const LENGTHS_DEFAULT: [u64; 2] = [512, 4096];
const LENGTH_MAX: u64 = 1 << 14;

/// Tokens of the text, then of the picture, which is square.
fn lengths_of(options: &Options, file: &std::path::Path) -> Result<[u64; 2], Error> {
    let [text, picture] = match options.lengths[..] {
        [] => LENGTHS_DEFAULT,
        [text] => [text, LENGTHS_DEFAULT[1]],
        [text, picture] => [text, picture],
        _ => [0, 0],
    };
    let is_square = picture.isqrt().pow(2) == picture;
    let bounded = [text, picture].iter().all(|n| (1..=LENGTH_MAX).contains(n));
    match is_square && bounded {
        true => Ok([text, picture]),
        false => Err(Error::Choice {
            file: file.to_owned(),
            option: "length",
            found: format!("{:?}", options.lengths),
            why: format!(
                "tokens of the text and of a square picture are needed, at most {LENGTH_MAX}"
            ),
        }),
    }
}

/// One function `main`: `hidden_states` `[batch, tokens, channels]`, `timestep` from 0 to 1,
/// `encoder_hidden_states`, `pooled_projections` and maybe `guidance` to `sample`.
fn build(folder: &Folder, options: &Options) -> Result<Built, Error> {
    let mut config = Config::parse(&folder.config)?;
    let file = folder.config.file();
    let lengths = lengths_of(options, file)?;
    config.heads.batch = lengths::batch(options, file)?;
    let weights = Weights::whole(&folder.path)?;
    let graph = graph(&config, &weights, lengths)?;
    Ok(Built {
        functions: vec![graph],
        usage: Usage::Arrays,
        n_parameters: weights.n_parameters(),
        n_bytes: weights.n_bytes(),
    })
}

fn graph(
    config: &Config,
    weights: &Weights,
    [n_text, n_picture]: [u64; 2],
) -> Result<Graph, Error> {
    let (batch, width) = (config.heads.batch, config.heads.width());
    let mut net = Net::new("main", weights.file());
    let mut s = Scope::new(&mut net, weights);
    let shape = [batch, n_picture, config.in_channels].map(Dim::Fixed);
    let x = s.net.graph.add_input("hidden_states", TensorType::new(DType::F32, shape));
    let columns = (config.in_channels, width);
    let mut picture = s.linear("x_embedder", x, columns, Bias::Present, "embedded")?;
    let condition = condition(&mut s, config)?;
    let mut text = text(&mut s, (batch, n_text), (config.text, width))?;
    let joint = Joint {
        heads: config.heads,
        n_picture,
        n_text,
        normed: true,
        first: First::Text,
        turns: Some(turns(&mut s, config, n_text, n_picture)?),
        mlp: Mlp::Plain(Activation::Gelu(GeluMode::Tanh)),
    };
    let kind = Kind { last: false, dual: false };
    for i in 0..config.n_joint {
        let mut s = s.inside(&format!("transformer_blocks.{i}"), &format!("layer_{i}"));
        let (x, y) = joint.layer(&mut s, kind, condition, (picture, text))?;
        (picture, text) = (x, y.unwrap_or(text));
    }
    let mut all = s.concat(vec![text, picture], 1, "text_and_picture")?;
    for i in 0..config.n_single {
        let mut s = s.inside(&format!("single_transformer_blocks.{i}"), &format!("single_{i}"));
        all = single(&mut s, &joint, condition, all)?;
    }
    let picture = s.slice(all, (1, 3), (n_text, n_text + n_picture), "picture_tokens")?;
    let parts = modulation(&mut s, "norm_out.linear", condition, width, 2)?;
    let x = modulated(&mut s, picture, (parts[1], parts[0]), EPSILON, "last_hidden_state")?;
    let columns = (width, config.out_channels);
    let sample = s.linear("proj_out", x, columns, Bias::Present, "sample")?;
    net.graph.set_outputs(vec![sample]);
    Ok(net.graph)
}

/// Time, guidance and pooled text; the first two are in thousandths.
fn condition(s: &mut Scope, config: &Config) -> Result<Value, Error> {
    let (batch, width) = (config.heads.batch, config.heads.width());
    let time = waves_of(s, "timestep", (batch, None), 1000.0)?;
    let guidance = match config.guided {
        true => Some(waves_of(s, "guidance", (batch, None), 1000.0)?),
        false => None,
    };
    let mut s = s.inside("time_text_embed", "condition");
    let columns = (N_WAVES, width);
    let mut sum = embedder(&mut s, "timestep_embedder", time, columns, "time")?;
    if let Some(guidance) = guidance {
        let y = embedder(&mut s, "guidance_embedder", guidance, columns, "guidance")?;
        sum = s.add(sum, y, "guided_time")?;
    }
    let pooled = pooled(&mut s, batch, config.pooled, width)?;
    s.add(sum, pooled, "sum")
}

/// Attention and MLP side by side on one sequence.
fn single(s: &mut Scope, joint: &Joint, condition: Value, x: Value) -> Result<Value, Error> {
    let width = joint.heads.width();
    let inner = 4 * width;
    let parts = modulation(s, "norm.linear", condition, width, 3)?;
    let normed = modulated(s, x, (parts[0], parts[1]), EPSILON, "normed")?;
    let up = s.linear("proj_mlp", normed, (width, inner), Bias::Present, "up")?;
    let active = s.op(Gelu { x: up, mode: GeluMode::Tanh }, "active")?;
    let mixed = joint.of_one(&mut s.inside("attn", "joint"), normed)?;
    let both = s.concat(vec![mixed, active], 2, "mixed_and_active")?;
    let y = s.linear("proj_out", both, (width + inner, width), Bias::Present, "projected")?;
    gated_sum(s, x, parts[2], y, "output")
}

/// Text stands at the origin, patches at their rows and columns.
fn turns(s: &mut Scope, config: &Config, n_text: u64, n_picture: u64) -> Result<Turns, Error> {
    let (dim, side) = (config.heads.dim, n_picture.isqrt());
    let of_text = std::iter::repeat_n([0, 0, 0], n_text as usize);
    let of_picture = (0..n_picture).map(|i| [0, i / side, i % side]);
    let rate = |i: u64, n: u64| 1.0 / 10000f64.powf((2 * i) as f64 / n as f64);
    let mut angles = Vec::new();
    for place in of_text.chain(of_picture) {
        for (&at, &n) in place.iter().zip(&config.axes) {
            angles.extend((0..n / 2).map(|i| at as f64 * rate(i, n)));
        }
    }
    let mut table = |f: fn(f64) -> f64, name: &str| {
        let twice: Vec<f32> = angles.iter().flat_map(|&a| [f(a) as f32; 2]).collect();
        s.constant(Tensor::f32(vec![1, 1, n_text + n_picture, dim], &twice), name)
    };
    let (cos, sin) = (table(f64::cos, "cos")?, table(f64::sin, "sin")?);
    Ok(Turns { cos, sin, crossing: crossing(s, dim)? })
}
