//! DistilBERT: BERT without token types, under other names.

use super::config::{Facts, Fields, LayerModules, Positions};
use super::encoder;
use super::family::Family;

pub const DISTILBERT: Family = Family {
    name: "distilbert",
    model_types: &["distilbert"],
    architectures: &["DistilBert"],
    check: |json| encoder::check(&FACTS, json),
    build: |folder, options| encoder::build(&FACTS, folder, options),
};

const FACTS: Facts = Facts {
    fields: Fields {
        hidden: "dim",
        n_layers: "n_layers",
        n_heads: "n_heads",
        intermediate: "hidden_dim",
        activation: "activation",
    },
    positions: Positions::FromZero,
    has_token_types: false,
    modules: LayerModules {
        layers: "transformer.layer",
        query: "attention.q_lin",
        key: "attention.k_lin",
        value: "attention.v_lin",
        attention_output: "attention.out_lin",
        attention_norm: "sa_layer_norm",
        up: "ffn.lin1",
        down: "ffn.lin2",
        output_norm: "output_layer_norm",
        relative_bias: None,
    },
    pad_token_id_default: 0,
};
