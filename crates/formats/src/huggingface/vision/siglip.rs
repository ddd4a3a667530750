//! SigLIP and SigLIP 2 of fixed resolution: pictures and texts as vectors of one space, pictures
//! pooled by an attention whose query is learnt.

use russet_ir::ops::*;
use russet_ir::{Graph, Tensor, Value};

use super::super::Options;
use super::super::attention::{self, Heads, mlp, unit};
use super::super::family::{Built, Family, Folder};
use super::super::json::Json;
use super::super::lengths;
use super::super::net::{Bias, Net};
use super::super::scope::Scope;
use super::super::usage::Usage;
use super::super::usage::image::{Images, Similarity, TextSide};
use super::super::weights::Weights;
use super::clip::text_length;
use super::patches::Patches;
use super::towers::{self, Texts, Tower, Usual};
use crate::Error;

pub const SIGLIP: Family = Family {
    name: "siglip",
    model_types: &["siglip"],
    architectures: &["Siglip"],
    check: |json| Config::parse(json).map(drop),
    build,
};

struct Config {
    vision: Tower,
    patches: Patches,
    text: Tower,
    texts: Texts,
    projection: u64,
    pad_token_id: u64,
}

/// Pieces of text the first SigLIP knows.
const N_VOCAB: u64 = 32000;

const USUAL: Usual = Usual {
    hidden: 768,
    intermediate: 3072,
    n_heads: 12,
    epsilon: 1e-6,
    activation: "gelu_pytorch_tanh",
};

impl Config {
    fn parse(json: &Json) -> Result<Config, Error> {
        let half = |field: &str| {
            let section = json.section(field)?;
            section.ok_or_else(|| json.error(field, "absent", "an object"))
        };
        let (vision, text) = (half("vision_config")?, half("text_config")?);
        let vision = vision.with_defaults(&[("image_size", 224), ("patch_size", 16)]);
        vision.require("vision_use_head", true)?;
        let tower = Tower::parse(&text, &USUAL)?;
        let config = Config {
            vision: Tower::parse(&vision, &USUAL)?,
            patches: Patches::parse(&vision)?,
            text: tower,
            texts: Texts::parse(&text, N_VOCAB, 64)?,
            projection: text.count("projection_size", Some(tower.hidden))?,
            pad_token_id: text.number("pad_token_id", Some(1))?,
        };
        if config.projection != config.vision.hidden {
            let expected = format!("{}, the columns of pictures", config.vision.hidden);
            return Err(text.error("projection_size", config.projection.to_string(), expected));
        }
        Ok(config)
    }
}

/// Functions `image`, `pixel_values` to `image_embeds`, and `text`, `input_ids` to `text_embeds`, all
/// of length 1. Texts are padded to the whole length and padding is read: so it was trained.
fn build(folder: &Folder, options: &Options) -> Result<Built, Error> {
    let config = Config::parse(&folder.config)?;
    let file = folder.config.file();
    let batch = lengths::batch(options, file)?;
    let length = text_length(options, &config.texts, file)?;
    let whole = Weights::whole(&folder.path)?;
    let shape = |tower: &Tower| vec![config.patches.count(), tower.hidden];
    let probe = ("vision_model.embeddings.position_embedding.weight", shape(&config.vision));
    let weights = Weights::open(&folder.path, &probe)?;
    let functions = vec![image(&config, &weights, batch)?, text(&config, &weights, batch, length)?];
    let number = |name: &str, default: f32| match whole.has(name) {
        true => Ok(whole.get(name, &[1])?.to_f32().first().copied().unwrap_or(default)),
        false => Ok::<f32, Error>(default),
    };
    let mut usage = Images::read(&folder.path, config.patches.image)?;
    // SigLIP 2 has the larger vocabulary of Gemma, and keeps punctuation.
    usage.text = Some(TextSide {
        pad_token_id: config.pad_token_id,
        lower_case: true,
        no_punctuation: config.texts.n_vocab <= N_VOCAB,
    });
    usage.similarity = Some(Similarity {
        scale: number("logit_scale", 0.0)?.exp(),
        bias: Some(number("logit_bias", 0.0)?),
    });
    Ok(Built {
        functions,
        usage: Usage::Image(usage),
        n_parameters: weights.n_parameters() + whole.n_parameters(),
        n_bytes: weights.n_bytes(),
    })
}

fn image(config: &Config, weights: &Weights, batch: u64) -> Result<Graph, Error> {
    let (tower, patches) = (&config.vision, &config.patches);
    let hidden = tower.hidden;
    let mut net = Net::new("image", weights.file());
    let mut whole = Scope::new(&mut net, weights);
    let mut s = whole.inside("vision_model", "");
    let x = {
        let mut s = s.inside("embeddings", "");
        let pixels = patches.input(&mut s, batch);
        let module = "patch_embedding";
        let x = patches.embed(&mut s, module, pixels, (batch, hidden), Bias::Present)?;
        let (_, places) = towers::positions(&mut s, patches, hidden, 0)?;
        s.add(x, places, "embedded")?
    };
    let x = tower.layers(&mut s, (batch, patches.count()), x, &[])?;
    let x = s.norm("post_layernorm", x, (hidden, tower.epsilon), "last_hidden_state")?;
    let pooled = pool(&mut s, config, batch, x)?;
    let embeds = unit(&mut whole, pooled, "image_embeds")?;
    net.graph.set_outputs(vec![embeds]);
    Ok(net.graph)
}

/// One token that asks all patches, then an MLP on it.
fn pool(s: &mut Scope, config: &Config, batch: u64, x: Value) -> Result<Value, Error> {
    let mut s = s.inside("head", "head");
    let hidden = config.vision.hidden;
    let probe = s.weight("probe", &[1, 1, hidden], "probe")?;
    let attended = asked(&mut s, config, batch, probe, x)?;
    let normed = s.norm("layernorm", attended, (hidden, config.vision.epsilon), "normed")?;
    let sizes = (hidden, config.vision.intermediate);
    let y = mlp(&mut s, ["mlp.fc1", "mlp.fc2"], normed, sizes, config.vision.activation, "down")?;
    let sum = s.add(y, attended, "sum")?;
    s.reshape(sum, &[batch, hidden], "pooled")
}

/// The attention of torch itself: one matrix holds the projections of query, key and value.
fn asked(
    s: &mut Scope,
    config: &Config,
    batch: u64,
    probe: Value,
    x: Value,
) -> Result<Value, Error> {
    let mut s = s.inside("attention", "");
    let (hidden, n) = (config.vision.hidden, config.vision.n_heads);
    let h = Heads { batch, count: n, dim: hidden / n };
    let weight = s.tensor("in_proj_weight", &[3 * hidden, hidden])?;
    let bias = s.tensor("in_proj_bias", &[3 * hidden])?;
    let mut part = |k: u64, of: Value, name: &str| {
        let from = k * hidden;
        let weight = s.constant(weight.rows(from, hidden), &format!("{name}_weight"))?;
        let bias = s.constant(bias.rows(from, hidden), &format!("{name}_bias"))?;
        s.op(Linear { x: of, weight, bias: Some(bias) }, name)
    };
    let mut query = part(0, probe, "query")?;
    let (key, value) = (part(1, x, "key")?, part(2, x, "value")?);
    if batch > 1 {
        let reps = s.constant(Tensor::i32(vec![3], &[batch as i32, 1, 1]), "query_reps")?;
        query = s.op(Tile { x: query, reps }, "batch_query")?;
    }
    let n = config.patches.count();
    let query = attention::split(&mut s, query, h, 1, "query")?;
    let key = attention::split(&mut s, key, h, n, "key")?;
    let value = attention::split(&mut s, value, h, n, "value")?;
    let mixed = attention::mixture(&mut s, [query, key, value], Some(h.scale()), &[])?;
    let context = attention::merge(&mut s, mixed, h, 1, "context")?;
    s.linear("out_proj", context, (hidden, hidden), Bias::Present, "attention")
}

fn text(config: &Config, weights: &Weights, batch: u64, length: u64) -> Result<Graph, Error> {
    let tower = &config.text;
    let hidden = tower.hidden;
    let mut net = Net::new("text", weights.file());
    let mut whole = Scope::new(&mut net, weights);
    let mut s = whole.inside("text_model", "");
    let ids = Texts::input(&mut s, "input_ids", batch, length);
    let x = config.texts.embed(&mut s, ids, length, hidden)?;
    let x = tower.layers(&mut s, (batch, length), x, &[])?;
    let x = s.norm("final_layer_norm", x, (hidden, tower.epsilon), "last_hidden_state")?;
    let last = s.slice(x, (1, 3), (length - 1, length), "last_row")?;
    let last = s.reshape(last, &[batch, hidden], "last")?;
    let pooled = s.linear("head", last, (hidden, config.projection), Bias::Present, "pooled")?;
    let embeds = unit(&mut whole, pooled, "text_embeds")?;
    net.graph.set_outputs(vec![embeds]);
    Ok(net.graph)
}
