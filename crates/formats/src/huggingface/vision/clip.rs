//! CLIP: pictures and texts as vectors of one space.

use std::path::Path;

use russet_ir::ops::*;
use russet_ir::{DType, Graph, Tensor, Value};

use super::super::Options;
use super::super::attention::{causal_bias, padding_bias, unit};
use super::super::family::{Built, Family, Folder};
use super::super::json::Json;
use super::super::lengths::{self, Span};
use super::super::net::{Bias, Net};
use super::super::scope::Scope;
use super::super::usage::Usage;
use super::super::usage::image::{Images, Similarity, TextSide};
use super::super::weights::Weights;
use super::patches::Patches;
use super::towers::{self, Texts, Tower, Usual};
use crate::Error;

pub const CLIP: Family = Family {
    name: "clip",
    model_types: &["clip", "clip_vision_model", "clip_text_model"],
    architectures: &["CLIP"],
    check: |json| Config::parse(json).map(drop),
    build,
};

struct Config {
    vision: Option<Vision>,
    text: Option<Text>,
    projection: u64,
    /// Are both halves there, so that vectors are compared and have length 1?
    whole: bool,
}

struct Vision {
    tower: Tower,
    patches: Patches,
}

struct Text {
    tower: Tower,
    texts: Texts,
    eos: Eos,
    pad_token_id: u64,
}

/// Where a text ends.
enum Eos {
    /// At the largest id, as configs have it that say 2.
    Largest,
    /// At the first of this id.
    Id(u64),
}

const VISION: Usual =
    Usual { hidden: 768, intermediate: 3072, n_heads: 12, epsilon: 1e-5, activation: "quick_gelu" };
const TEXT: Usual = Usual { hidden: 512, intermediate: 2048, n_heads: 8, ..VISION };

impl Config {
    fn parse(json: &Json) -> Result<Config, Error> {
        let architecture =
            json.get("architectures").and_then(|a| a.get(0)).and_then(|a| a.as_str());
        let kind = json.text("model_type").unwrap_or_default();
        let only = |part: &str, ty: &str| {
            kind == ty || (kind != "clip" && architecture.is_some_and(|a| a.contains(part)))
        };
        let (vision_only, text_only) =
            (only("Vision", "clip_vision_model"), only("Text", "clip_text_model"));
        let half = |field: &str, alone: bool| match alone {
            true => Ok(json.clone()),
            false => {
                let section = json.section(field)?;
                section.ok_or_else(|| json.error(field, "absent", "an object"))
            }
        };
        let vision = match text_only {
            true => None,
            false => Some(Vision::parse(&half("vision_config", vision_only)?)?),
        };
        let text = match vision_only {
            true => None,
            false => Some(Text::parse(&half("text_config", text_only)?)?),
        };
        let whole = vision.is_some() && text.is_some();
        Ok(Config { vision, text, projection: json.count("projection_dim", Some(512))?, whole })
    }
}

impl Vision {
    fn parse(json: &Json) -> Result<Vision, Error> {
        let json = json.with_defaults(&[("image_size", 224), ("patch_size", 32)]);
        Ok(Vision { tower: Tower::parse(&json, &VISION)?, patches: Patches::parse(&json)? })
    }
}

impl Text {
    fn parse(json: &Json) -> Result<Text, Error> {
        let eos = match json.number("eos_token_id", Some(49407))? {
            2 => Eos::Largest,
            id => Eos::Id(id),
        };
        Ok(Text {
            tower: Tower::parse(json, &TEXT)?,
            texts: Texts::parse(json, 49408, 77)?,
            eos,
            pad_token_id: json.number("pad_token_id", Some(1))?,
        })
    }
}

/// Functions `image` and `text`, those of the halves that are there: `pixel_values` to
/// `image_embeds`, `input_ids` and `attention_mask` to `text_embeds`, of length 1. A half alone gives
/// its projection as it is, or `pooler_output` when it has none, and `last_hidden_state`.
fn build(folder: &Folder, options: &Options) -> Result<Built, Error> {
    let config = Config::parse(&folder.config)?;
    let file = folder.config.file();
    let batch = lengths::batch(options, file)?;
    let mut functions = Vec::new();
    let mut usage = match &config.vision {
        Some(v) => Images::read(&folder.path, v.patches.image)?,
        None => Images::none(),
    };
    let (mut n_parameters, mut n_bytes) = (0, 0);
    let mut count = |weights: &[&Weights]| {
        n_parameters += weights.iter().map(|w| w.n_parameters()).sum::<u64>();
        n_bytes = weights[0].n_bytes();
    };
    let whole = Weights::whole(&folder.path)?;
    if let Some(vision) = &config.vision {
        let probe = ("embeddings.class_embedding", vec![vision.tower.hidden]);
        let weights = Weights::open(&folder.path, &probe)?;
        functions.push(image(&config, vision, &weights, &whole, batch)?);
        count(&[&weights]);
    }
    if let Some(text) = &config.text {
        let shape = vec![text.texts.n_vocab, text.tower.hidden];
        let weights = Weights::open(&folder.path, &("embeddings.token_embedding.weight", shape))?;
        let length = text_length(options, &text.texts, file)?;
        functions.push(self::text(&config, text, &weights, &whole, (batch, length))?);
        count(&[&weights]);
        let pad_token_id = text.pad_token_id;
        usage.text = Some(TextSide { pad_token_id, lower_case: false, no_punctuation: false });
    } else {
        lengths::none(options, file)?;
    }
    count(&[&whole]);
    if config.whole {
        let scale = whole.get("logit_scale", &[])?.to_f32().first().map_or(1.0, |s| s.exp());
        usage.similarity = Some(Similarity { scale, bias: None });
    }
    Ok(Built { functions, usage: Usage::Image(usage), n_parameters, n_bytes })
}

/// Tokens of a text: as many as there are positions unless told otherwise.
pub fn text_length(options: &Options, texts: &Texts, file: &Path) -> Result<u64, Error> {
    let max = texts.n_positions;
    let span = Span { unit: "token", default: max.min(LENGTH_MAX), min: 2.min(max), max };
    lengths::length(options, &span, file)
}

/// Positions beyond which a text is not made longer unasked.
const LENGTH_MAX: u64 = 256;

fn image(
    config: &Config,
    vision: &Vision,
    weights: &Weights,
    whole: &Weights,
    batch: u64,
) -> Result<Graph, Error> {
    let (tower, patches) = (&vision.tower, &vision.patches);
    let hidden = tower.hidden;
    let norm = (hidden, tower.epsilon);
    let mut net = Net::new("image", weights.file());
    let mut s = Scope::new(&mut net, weights);
    let embedded = {
        let mut s = s.inside("embeddings", "");
        let pixels = patches.input(&mut s, batch);
        let module = "patch_embedding";
        let x = patches.embed(&mut s, module, pixels, (batch, hidden), Bias::Absent)?;
        let (first, rest) = towers::positions(&mut s, patches, hidden, 1)?;
        let x = s.add(x, rest, "placed_patches")?;
        let class = s.tensor("class_embedding", &[hidden])?.reshaped(vec![1, 1, hidden]);
        let mut class = s.constant(class, "class_embedding")?;
        if let Some(first) = first {
            class = s.add(class, first, "placed_class")?;
        }
        if batch > 1 {
            let reps = s.constant(Tensor::i32(vec![3], &[batch as i32, 1, 1]), "class_reps")?;
            class = s.op(Tile { x: class, reps }, "batch_class")?;
        }
        s.concat(vec![class, x], 1, "embedded")?
    };
    // The name is spelled so in all checkpoints.
    let x = s.norm("pre_layrnorm", embedded, norm, "normed")?;
    let length = patches.count() + 1;
    let x = tower.layers(&mut s, (batch, length), x, &[])?;
    // Outputs of a half alone are those of its own model, which norms only the pooled token.
    let hidden_state = s.op(Identity { x }, "last_hidden_state")?;
    let class = s.slice(x, (1, 3), (0, 1), "class_row")?;
    let class = s.reshape(class, &[batch, hidden], "class")?;
    let projects = whole.has("visual_projection.weight");
    let name = if projects { "class_normed" } else { "pooler_output" };
    let pooled = s.norm("post_layernorm", class, norm, name)?;
    let mut s = Scope::new(s.net, whole);
    let columns = (hidden, config.projection);
    let outputs = match (projects, config.whole) {
        (true, true) => {
            let y = "visual_projection";
            let y = s.linear(y, pooled, columns, Bias::Absent, "projected")?;
            vec![unit(&mut s, y, "image_embeds")?]
        }
        (true, false) => {
            let y = "visual_projection";
            vec![s.linear(y, pooled, columns, Bias::Absent, "image_embeds")?, hidden_state]
        }
        (false, _) => vec![hidden_state, pooled],
    };
    net.graph.set_outputs(outputs);
    net.graph.remove_dead();
    Ok(net.graph)
}

fn text(
    config: &Config,
    text: &Text,
    weights: &Weights,
    whole: &Weights,
    (batch, length): (u64, u64),
) -> Result<Graph, Error> {
    let tower = &text.tower;
    let hidden = tower.hidden;
    let mut net = Net::new("text", weights.file());
    let mut s = Scope::new(&mut net, weights);
    let ids = Texts::input(&mut s, "input_ids", batch, length);
    let mask = Texts::input(&mut s, "attention_mask", batch, length);
    let x = text.texts.embed(&mut s, ids, length, hidden)?;
    let added = [causal_bias(&mut s, length)?, padding_bias(&mut s, mask)?];
    let x = tower.layers(&mut s, (batch, length), x, &added)?;
    let x = s.norm("final_layer_norm", x, (hidden, tower.epsilon), "last_hidden_state")?;
    let projects = whole.has("text_projection.weight");
    let name = if projects { "pooled" } else { "pooler_output" };
    let pooled = at_end(&mut s, text, (ids, x), (batch, length), name)?;
    let mut s = Scope::new(s.net, whole);
    let columns = (hidden, config.projection);
    let outputs = match (projects, config.whole) {
        (true, true) => {
            let y = s.linear("text_projection", pooled, columns, Bias::Absent, "projected")?;
            vec![unit(&mut s, y, "text_embeds")?]
        }
        (true, false) => {
            let y = "text_projection";
            vec![s.linear(y, pooled, columns, Bias::Absent, "text_embeds")?, x]
        }
        (false, _) => vec![x, pooled],
    };
    net.graph.set_outputs(outputs);
    Ok(net.graph)
}

/// The vector of the token that ends the text: ids are compared as integers, since fp16 does not tell
/// the last ids of a vocabulary apart.
fn at_end(
    s: &mut Scope,
    text: &Text,
    (ids, x): (Value, Value),
    (batch, length): (u64, u64),
    name: &str,
) -> Result<Value, Error> {
    let mut s = s.part("end");
    let searched = match text.eos {
        Eos::Largest => ids,
        Eos::Id(id) => {
            let id = s.constant(Tensor::i32(vec![], &[id as i32]), "id")?;
            let is_end = s.op(Equal { x: ids, y: id }, "is_here")?;
            s.op(Cast { x: is_end, dtype: DType::I32 }, "flags")?
        }
    };
    let (keep_dims, output_dtype) = (false, IndexDType::I32);
    let place = s.op(ReduceArgmax { x: searched, axis: 1, keep_dims, output_dtype }, "place")?;
    let n = s.constant(Tensor::i32(vec![], &[length as i32]), "length")?;
    let (on, off) = (s.scalar(1.0, "on")?, s.scalar(0.0, "off")?);
    let one_hot = OneHot {
        indices: place,
        one_hot_vector_size: n,
        axis: -1,
        on_value: Some(on),
        off_value: Some(off),
    };
    let one_hot = s.op(one_hot, "one_hot")?;
    let column = s.reshape(one_hot, &[batch, length, 1], "column")?;
    let kept = s.mul(x, column, "kept")?;
    let sum = ReduceSum { x: kept, axes: Some(vec![1]), keep_dims: false };
    Scope::new(s.net, s.weights).op(sum, name)
}
