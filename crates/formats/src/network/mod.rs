//! Neural networks of the format before ML Programs: recognised and described, not run.
//!
//! Such a model is one message with all its weights inside. It is taken apart only as far as
//! needed to say which layers there are, what they read and how many parameters they hold; weights
//! stay where they are in the file.

mod kinds;

use std::path::Path;

use bytes::Bytes;
use prost::Message;

use crate::Error;
use crate::mlpackage::proto::{self, Anything, Unknown};
use kinds::KINDS;

/// A network.
#[derive(Debug, Clone)]
pub struct Network {
    /// `neural network`, `neural network classifier` or `neural network regressor`.
    pub kind: &'static str,
    pub layers: Vec<Layer>,
    /// Of a classifier: the classes, as text.
    pub labels: Vec<String>,
}

/// One layer.
#[derive(Debug, Clone)]
pub struct Layer {
    pub name: String,
    /// As `NeuralNetwork.proto` calls it, `convolution`; `unknown` when it has no such kind.
    pub kind: &'static str,
    pub inputs: Vec<String>,
    pub outputs: Vec<String>,
    pub n_parameters: u64,
    pub parameter_bytes: u64,
    /// What its kind is about, such as `kernelSize: 3 3`.
    pub facts: Vec<(&'static str, String)>,
    /// Layers of the networks within it: of a `branch` or a `loop`.
    pub inner: Vec<Layer>,
}

/// Fields of a model that hold a network.
const NETWORKS: &[(u32, &str)] = &[
    (303, "neural network regressor"),
    (403, "neural network classifier"),
    (500, "neural network"),
];

/// Nesting of networks within layers beyond which they are refused.
const DEPTH_MAX: usize = 16;

impl Network {
    /// The network of a model; `None` when it is a model of another kind. `file` is for errors.
    pub(crate) fn of(model: &proto::Model, file: &Path) -> Result<Option<Network>, Error> {
        let found = NETWORKS.iter().find_map(|n| Some((n.1, model.unknown.bytes(n.0)?)));
        let Some((kind, bytes)) = found else { return Ok(None) };
        let wrong = |why: String| Error::malformed(file, Some("the network"), why);
        let network =
            proto::NeuralNetwork::decode(bytes.clone()).map_err(|e| wrong(e.to_string()))?;
        let layers = layers(&network, 0).map_err(wrong)?;
        let labels = match (&network.string_labels, &network.int64_labels) {
            (Some(strings), _) => strings.vector.clone(),
            (None, Some(numbers)) => numbers.vector.iter().map(i64::to_string).collect(),
            (None, None) => Vec::new(),
        };
        Ok(Some(Network { kind, layers, labels }))
    }

    /// Number of layers by kind, the most frequent first, inner ones counted too.
    pub fn histogram(&self) -> Vec<(&'static str, usize)> {
        fn count(layers: &[Layer], counts: &mut Vec<(&'static str, usize)>) {
            for layer in layers {
                match counts.iter_mut().find(|c| c.0 == layer.kind) {
                    Some(c) => c.1 += 1,
                    None => counts.push((layer.kind, 1)),
                }
                count(&layer.inner, counts);
            }
        }
        let mut counts = Vec::new();
        count(&self.layers, &mut counts);
        counts.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        counts
    }

    pub fn n_parameters(&self) -> u64 {
        self.sum(|l| l.n_parameters)
    }

    pub fn parameter_bytes(&self) -> u64 {
        self.sum(|l| l.parameter_bytes)
    }

    fn sum(&self, of: fn(&Layer) -> u64) -> u64 {
        fn add(layers: &[Layer], of: fn(&Layer) -> u64) -> u64 {
            layers.iter().fold(0, |n, l| n.saturating_add(of(l)).saturating_add(add(&l.inner, of)))
        }
        add(&self.layers, of)
    }
}

fn layers(network: &proto::NeuralNetwork, depth: usize) -> Result<Vec<Layer>, String> {
    if depth > DEPTH_MAX {
        return Err("networks are nested too deeply".into());
    }
    network.layers.iter().map(|l| layer(l, depth)).collect()
}

fn layer(l: &proto::NeuralNetworkLayer, depth: usize) -> Result<Layer, String> {
    let mut described = Layer {
        name: l.name.clone(),
        kind: "unknown",
        inputs: l.input.clone(),
        outputs: l.output.clone(),
        n_parameters: 0,
        parameter_bytes: 0,
        facts: Vec::new(),
        inner: Vec::new(),
    };
    let found = KINDS.iter().find_map(|k| Some((k, l.unknown.bytes(k.tag)?)));
    let Some((kind, bytes)) = found else { return Ok(described) };
    let wrong = |e: prost::DecodeError| format!("layer {}: {e}", l.name);
    described.kind = kind.name;
    let fields = decode(bytes).map_err(wrong)?;
    let mut weights: Vec<Unknown> = Vec::new();
    for &tag in kind.weights {
        for bytes in fields.all_bytes(tag) {
            weights.push(decode(bytes).map_err(wrong)?);
        }
    }
    for &(tag, inner) in kind.nested {
        for bytes in fields.all_bytes(tag) {
            let nested = decode(bytes).map_err(wrong)?;
            for bytes in inner.iter().flat_map(|&tag| nested.all_bytes(tag)) {
                weights.push(decode(bytes).map_err(wrong)?);
            }
        }
    }
    for w in &weights {
        let (n, n_bytes) = parameters(w).map_err(wrong)?;
        described.n_parameters = described.n_parameters.saturating_add(n);
        described.parameter_bytes = described.parameter_bytes.saturating_add(n_bytes);
    }
    described.facts = facts(kind.name, &fields);
    // Networks within: both ways of a `branch`; condition and body of a `loop`.
    let networks: &[u32] = match kind.name {
        "branch" => &[1, 2],
        "loop" => &[3, 4],
        _ => &[],
    };
    for &tag in networks {
        for bytes in fields.all_bytes(tag) {
            let network = proto::NeuralNetwork::decode(bytes.clone()).map_err(wrong)?;
            described.inner.extend(layers(&network, depth + 1)?);
        }
    }
    Ok(described)
}

fn decode(bytes: &Bytes) -> Result<Unknown, prost::DecodeError> {
    Anything::decode(bytes.clone()).map(|a| a.unknown)
}

/// Number and bytes of the parameters in a message `WeightParams`.
fn parameters(w: &Unknown) -> Result<(u64, u64), prost::DecodeError> {
    let len = |tag| w.all_bytes(tag).map(|b| b.len() as u64).sum::<u64>();
    let (floats, halves, raw) = (len(1), len(2), len(30) + len(31));
    let bits = match w.bytes(40) {
        Some(quantization) => decode(quantization)?.numbers(1).last().copied().unwrap_or(8),
        None => 8,
    };
    let n = floats / 4 + halves / 2 + raw.saturating_mul(8) / bits.clamp(1, 64);
    Ok((n, floats + halves + raw))
}

/// What is worth saying of some kinds: names and fields of their numbers.
fn facts(kind: &str, fields: &Unknown) -> Vec<(&'static str, String)> {
    let named: &[(&str, u32)] = match kind {
        "convolution" => &[
            ("outputChannels", 1),
            ("kernelChannels", 2),
            ("nGroups", 10),
            ("kernelSize", 20),
            ("stride", 30),
            ("dilationFactor", 40),
            ("isDeconvolution", 60),
        ],
        "innerProduct" | "embedding" => &[("inputs", 1), ("outputChannels", 2)],
        "batchnorm" => &[("channels", 1)],
        "pooling" => &[("kernelSize", 10), ("stride", 20), ("globalPooling", 60)],
        "upsample" => &[("scalingFactor", 1)],
        "uniDirectionalLSTM" | "biDirectionalLSTM" | "gru" | "simpleRecurrent" => {
            &[("inputVectorSize", 1), ("outputVectorSize", 2)]
        }
        _ => &[],
    };
    let mut facts = Vec::new();
    for &(name, tag) in named {
        let numbers: Vec<String> = fields.numbers(tag).iter().map(u64::to_string).collect();
        if !numbers.is_empty() {
            facts.push((name, numbers.join(" ")));
        }
    }
    if kind == "activation" {
        let found = ACTIVATIONS.iter().find(|a| fields.tags().any(|t| t == a.0));
        facts.extend(found.map(|a| ("function", a.1.to_owned())));
    }
    facts
}

const ACTIVATIONS: &[(u32, &str)] = &[
    (5, "linear"),
    (10, "ReLU"),
    (15, "leakyReLU"),
    (20, "thresholdedReLU"),
    (25, "PReLU"),
    (30, "tanh"),
    (31, "scaledTanh"),
    (40, "sigmoid"),
    (41, "sigmoidHard"),
    (50, "ELU"),
    (60, "softsign"),
    (70, "softplus"),
    (71, "parametricSoftplus"),
];
