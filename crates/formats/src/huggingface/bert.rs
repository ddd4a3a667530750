//! BERT, and what is built like it (MiniLM, BGE, E5, GTE).

use super::config::{Facts, LayerModules, Positions, USUAL_FIELDS};
use super::encoder;
use super::family::Family;

pub const BERT: Family = Family {
    name: "bert",
    model_types: &["bert"],
    architectures: &["Bert"],
    check: |json| encoder::check(&FACTS, json),
    build: |folder, options| encoder::build(&FACTS, folder, options),
};

const FACTS: Facts = Facts {
    fields: USUAL_FIELDS,
    positions: Positions::FromZero,
    has_token_types: true,
    modules: BERT_MODULES,
    pad_token_id_default: 0,
};

pub const BERT_MODULES: LayerModules = LayerModules {
    layers: "encoder.layer",
    query: "attention.self.query",
    key: "attention.self.key",
    value: "attention.self.value",
    attention_output: "attention.output.dense",
    attention_norm: "attention.output.LayerNorm",
    up: "intermediate.dense",
    down: "output.dense",
    output_norm: "output.LayerNorm",
    relative_bias: None,
};
