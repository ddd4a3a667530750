//! Imports, one small function for each op, grouped by kind. Semantics are those of the ONNX
//! operator specification, for every version of the op set from 7 on.
//!
//! To add one: write the function, name it in its file's `find`.

mod attention;
mod control;
mod conv;
mod elementwise;
mod index;
mod logic;
mod loss;
mod microsoft;
mod movement;
mod norm;
mod order;
mod pool;
mod products;
mod quantized;
mod random;
mod reduce;
mod resize;
mod rnn;
mod shapes;
mod signal;

use super::cx::Import;

/// Why there is no import of an op.
pub fn missing(domain: &str, op: &str) -> String {
    let why = match (domain, op) {
        ("ai.onnx.ml", _) => "trees, encoders and the like have no ops in MIL",
        ("ai.onnx.preview.training", _) => "no program here trains",
        ("", _) if op.contains("Sequence") || op.starts_with("Optional") => {
            "MIL has tensors, no sequences and no values that may be absent"
        }
        ("", "StringConcat" | "StringNormalizer" | "StringSplit" | "RegexFullMatch") => {
            "MIL computes nothing with strings"
        }
        ("", "TfIdfVectorizer") => "MIL has no op that counts n-grams",
        ("", "ImageDecoder") => "MIL decodes no files",
        ("", "Unique") => "MIL has no op that finds distinct elements",
        ("", "NonMaxSuppression") => "MIL's returns a fixed number of boxes, padded",
        ("", "DeformConv" | "MaxUnpool" | "RoiAlign" | "MaxRoiPool") => {
            "MIL has no op that moves windows by computed distances"
        }
        ("", "BitCast") => "MIL has no op on bits",
        ("", _) => "there is no import of this op",
        ("com.microsoft", "Inverse") => "MIL has no op that inverts matrices",
        ("com.microsoft", "MoE" | "QMoE") => "experts that each word chooses have no op in MIL",
        ("com.microsoft", _) if op.ends_with("Search") || op == "Sampling" => {
            "it is a loop that decodes, of which a program is one step"
        }
        ("com.microsoft", _) => "there is no import of this op",
        _ => return format!("there is no import of ops of {domain}"),
    };
    why.to_owned()
}

/// The import of an op of a domain; `None` when there is none.
pub fn find(domain: &str, op: &str) -> Option<Import> {
    let standard: &[fn(&str) -> Option<Import>] = &[
        elementwise::find,
        logic::find,
        products::find,
        movement::find,
        index::find,
        shapes::find,
        reduce::find,
        order::find,
        norm::find,
        conv::find,
        pool::find,
        resize::find,
        rnn::find,
        control::find,
        quantized::find,
        attention::find,
        random::find,
        signal::find,
        loss::find,
    ];
    match domain {
        "" => standard.iter().find_map(|find| find(op)),
        "com.microsoft" => microsoft::find(op),
        _ => None,
    }
}
