//! What sentence-transformers puts after an encoder: pooling, dense layers, normalisation.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use russet_ir::Value;
use russet_ir::ops::*;
use serde::Deserialize;

use super::net::Net;
use super::weights::{Weights, json};
use super::{Options, Pooling};
use crate::Error;

/// The folders `modules.json` names.
pub struct Modules {
    /// Where `config.json` and the weights of the encoder are.
    pub transformer: PathBuf,
    /// What comes after it: kind (`Pooling`), folder.
    rest: Vec<(String, PathBuf)>,
    file: PathBuf,
}

#[derive(Deserialize)]
struct Module {
    path: String,
    r#type: String,
}

/// The modules of `folder`; only the encoder when it has no `modules.json`.
pub fn modules(folder: &Path) -> Result<Modules, Error> {
    let file = folder.join("modules.json");
    let mut modules = Modules { transformer: folder.to_owned(), rest: Vec::new(), file };
    if !modules.file.exists() {
        return Ok(modules);
    }
    let listed: Vec<Module> = json(&modules.file)?;
    for module in listed {
        let relative = Path::new(&module.path);
        if !relative.components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir)) {
            let (file, path) = (modules.file, module.path);
            return Err(Error::UnsafePath { file, path, why: "leads out of the folder" });
        }
        let path = folder.join(relative);
        match module.r#type.rsplit('.').next().unwrap_or_default() {
            "Transformer" => modules.transformer = path,
            kind => modules.rest.push((kind.to_owned(), path)),
        }
    }
    Ok(modules)
}

/// What follows the encoder; nothing when there is no pooling.
#[derive(Default)]
pub struct Head {
    pooling: Option<Pooling>,
    dense: Vec<Dense>,
    normalize: bool,
}

/// A linear layer and the function after it.
struct Dense {
    /// The folder's name, which is that of the module: `2_Dense`.
    name: String,
    weights: Weights,
    config: DenseConfig,
    activation: Option<Squash>,
}

#[derive(Clone, Copy)]
enum Squash {
    Tanh,
    Relu,
}

#[derive(Deserialize)]
struct DenseConfig {
    in_features: u64,
    out_features: u64,
    #[serde(default = "yes")]
    bias: bool,
    activation_function: String,
}

fn yes() -> bool {
    true
}

impl Head {
    pub fn choose(modules: &Modules, options: &Options) -> Result<Head, Error> {
        let mut head = Head { pooling: options.pooling, ..Head::default() };
        for (kind, folder) in &modules.rest {
            match kind.as_str() {
                "Pooling" => {
                    let said = pooling(&folder.join("config.json"), options.pooling)?;
                    head.pooling = options.pooling.or(said);
                }
                "Dense" => head.dense.push(dense(folder)?),
                "Normalize" => head.normalize = true,
                "Dropout" => {}
                _ => {
                    return Err(Error::Config {
                        file: modules.file.clone(),
                        field: "type".into(),
                        found: kind.clone(),
                        expected: "Transformer, Pooling, Dense, Normalize or Dropout".into(),
                    });
                }
            }
        }
        Ok(head)
    }

    /// Weights of the dense layers that were handed out, and bytes of their files.
    pub fn size(&self) -> (u64, u64) {
        let weights = self.dense.iter().map(|d| &d.weights);
        weights.fold((0, 0), |(n, bytes), w| (n + w.n_parameters(), bytes + w.n_bytes()))
    }

    /// `sentence_embedding` of the tokens' vectors `x`; `None` without pooling.
    pub fn build(
        &self,
        net: &mut Net,
        x: Value,
        mask: Value,
        hidden: u64,
    ) -> Result<Option<Value>, Error> {
        let Some(kind) = self.pooling else { return Ok(None) };
        net.enter("pooling");
        // The last op takes the output's name.
        let n_after = self.dense.len() + usize::from(self.normalize);
        let pooled = if n_after == 0 { "sentence_embedding" } else { "pooled" };
        let mut y = pool(net, kind, x, mask, pooled)?;
        let mut width = hidden;
        for (i, d) in self.dense.iter().enumerate() {
            let is_last = i + 1 == n_after;
            let name = if is_last { "sentence_embedding".into() } else { format!("dense_{i}") };
            y = d.build(net, y, width, &name)?;
            width = d.config.out_features;
        }
        if self.normalize {
            net.enter("normalize");
            let norm = ReduceL2Norm { x: y, axes: Some(vec![-1]), keep_dims: true };
            let norm = net.op(norm, "embedding_norm")?;
            let least = net.scalar(1e-12, "norm_min")?;
            let norm = net.op(Maximum { x: norm, y: least }, "safe_norm")?;
            y = net.op(RealDiv { x: y, y: norm }, "sentence_embedding")?;
        }
        Ok(Some(y))
    }
}

fn pool(net: &mut Net, kind: Pooling, x: Value, mask: Value, name: &str) -> Result<Value, Error> {
    let axes = Some(vec![1]);
    match kind {
        Pooling::Cls => {
            let begin = net.ints(&[0, 0, 0], "first_begin")?;
            let end = net.ints(&[0, 1, 0], "first_end")?;
            let outer = Some(vec![true, false, true]);
            let first = SliceByIndex {
                x,
                begin,
                end,
                stride: None,
                begin_mask: outer.clone(),
                end_mask: outer,
                squeeze_mask: Some(vec![false, true, false]),
            };
            net.op(first, name)
        }
        Pooling::Mean => {
            let columns = net.op(ExpandDims { x: mask, axes: vec![2] }, "mask_columns")?;
            let kept = net.op(Mul { x, y: columns }, "kept_tokens")?;
            let sum = ReduceSum { x: kept, axes: axes.clone(), keep_dims: false };
            let sum = net.op(sum, "token_sum")?;
            let count = net.op(ReduceSum { x: mask, axes, keep_dims: true }, "token_count")?;
            let least = net.scalar(1e-9, "count_min")?;
            let count = net.op(Maximum { x: count, y: least }, "safe_count")?;
            net.op(RealDiv { x: sum, y: count }, name)
        }
        Pooling::Max => {
            let columns = net.op(ExpandDims { x: mask, axes: vec![2] }, "mask_columns")?;
            let one = net.scalar(1.0, "column_one")?;
            let padding = net.op(Sub { x: one, y: columns }, "padding_columns")?;
            let far = net.scalar(-1e9, "far_below")?;
            let lowered = net.op(Mul { x: padding, y: far }, "lowering")?;
            let kept = net.op(Add { x, y: lowered }, "kept_tokens")?;
            net.op(ReduceMax { x: kept, axes, keep_dims: false }, name)
        }
    }
}

/// What `1_Pooling/config.json` asks for. With `instead` it may be something we do not know.
fn pooling(file: &Path, instead: Option<Pooling>) -> Result<Option<Pooling>, Error> {
    if instead.is_some() {
        return Ok(instead);
    }
    let fields: BTreeMap<String, serde_json::Value> = json(file)?;
    let on = |(name, v): (&String, &serde_json::Value)| {
        (name.starts_with("pooling_mode_") && v == true).then(|| name.clone())
    };
    let modes: Vec<String> = fields.iter().filter_map(on).collect();
    let modes: Vec<&str> = modes.iter().map(String::as_str).collect();
    let refused = || Error::Config {
        file: file.to_owned(),
        field: "pooling_mode".into(),
        found: if modes.is_empty() { "none".into() } else { modes.join(" and ") },
        expected: "one of mean_tokens, cls_token and max_tokens".into(),
    };
    match modes.as_slice() {
        ["pooling_mode_mean_tokens"] => Ok(Some(Pooling::Mean)),
        ["pooling_mode_cls_token"] => Ok(Some(Pooling::Cls)),
        ["pooling_mode_max_tokens"] => Ok(Some(Pooling::Max)),
        _ => Err(refused()),
    }
}

fn dense(folder: &Path) -> Result<Dense, Error> {
    let file = folder.join("config.json");
    let config: DenseConfig = json(&file)?;
    let activation = match config.activation_function.rsplit('.').next().unwrap_or_default() {
        "Identity" => None,
        "Tanh" => Some(Squash::Tanh),
        "ReLU" => Some(Squash::Relu),
        _ => {
            let (field, found) = ("activation_function".into(), config.activation_function);
            let expected = "Identity, Tanh or ReLU".into();
            return Err(Error::Config { file, field, found, expected });
        }
    };
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let weights = Weights::of_file(&folder.join("model.safetensors"))?;
    Ok(Dense { name, weights, config, activation })
}

impl Dense {
    fn build(&self, net: &mut Net, x: Value, width: u64, name: &str) -> Result<Value, Error> {
        let (n_in, n_out) = (self.config.in_features, self.config.out_features);
        if n_in != width {
            return Err(Error::Config {
                file: self.weights.file().to_owned(),
                field: format!("{}: in_features", self.name),
                found: n_in.to_string(),
                expected: width.to_string(),
            });
        }
        net.enter(&self.name);
        let weight = self.weights.get("linear.weight", &[n_out, n_in])?;
        let weight = net.constant(weight, &format!("{name}_weight"))?;
        let bias = match self.config.bias {
            true => {
                let bias = self.weights.get("linear.bias", &[n_out])?;
                Some(net.constant(bias, &format!("{name}_bias"))?)
            }
            false => None,
        };
        let linear = Linear { x, weight, bias };
        match self.activation {
            None => net.op(linear, name),
            Some(squash) => {
                let y = net.op(linear, &format!("{name}_linear"))?;
                match squash {
                    Squash::Tanh => net.op(Tanh { x: y }, name),
                    Squash::Relu => net.op(Relu { x: y }, name),
                }
            }
        }
    }
}
