//! RoBERTa and its kin: BERT's layers, positions counted from the padding id.

use super::bert::BERT_MODULES;
use super::config::{Facts, Positions, USUAL_FIELDS};
use super::encoder;
use super::family::Family;

pub const ROBERTA: Family = Family {
    name: "roberta",
    model_types: &["roberta", "xlm-roberta", "camembert"],
    architectures: &["Roberta", "XLMRoberta", "Camembert"],
    check: |json| encoder::check(&FACTS, json),
    build: |folder, options| encoder::build(&FACTS, folder, options),
};

const FACTS: Facts = Facts {
    fields: USUAL_FIELDS,
    positions: Positions::AfterPadding,
    has_token_types: true,
    modules: BERT_MODULES,
    pad_token_id_default: 1,
};
