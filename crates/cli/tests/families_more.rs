//! Families beyond the BERT-like encoders against their own code's results on small random models:
//! every layer's output, and what the function returns.
//!
//! The golden values are made by `bench/golden_families_more.py`.

mod common;

use std::collections::BTreeMap;

use common::{family, text};
use russet_exec::{Arithmetic, Array, Session};
use russet_formats::huggingface::{self, Options};
use russet_ir::Graph;
use russet_passes::distance;

const FAMILIES: &[&str] = &[
    "clip",
    "clip_text",
    "clip_vision",
    "conformer_relative",
    "conformer_rotary",
    "deit",
    "dinov2",
    "dinov2_swiglu",
    "dit",
    "hubert",
    "parakeet_ctc",
    "parakeet_encoder",
    "pixart",
    "siglip",
    "t5",
    "t5_gated",
    "umt5",
    "vit",
    "vit_pooler",
    "wav2vec2",
    "wav2vec2_stable",
    "whisper",
];

/// What the golden file holds of one function.
#[derive(Default)]
struct Golden {
    inputs: BTreeMap<String, Array>,
    values: BTreeMap<String, Array>,
}

/// By function.
fn golden(name: &str) -> BTreeMap<String, Golden> {
    let arrays = russet_formats::arrays::read(&family(name).join("golden.npz"));
    let mut functions = BTreeMap::<String, Golden>::new();
    for (key, tensor) in arrays.expect("golden values") {
        let array = Array::from_tensor(&tensor).expect("numbers");
        let parts: Vec<&str> = key.splitn(3, '.').collect();
        let [function, side, value] = parts[..] else { panic!("{key}") };
        let golden = functions.entry(function.to_owned()).or_default();
        let map = if side == "in" { &mut golden.inputs } else { &mut golden.values };
        map.insert(value.to_owned(), array);
    }
    functions
}

/// The batch and the length that the golden values are of.
fn options(golden: &BTreeMap<String, Golden>) -> Options {
    let mut options = Options::default();
    // What the decoder of Whisper reads at once is said apart.
    for golden in golden.iter().filter(|g| g.0 != "decoder").map(|g| g.1) {
        for (name, array) in &golden.inputs {
            options.batch = array.shape[0] as u64;
            match name.as_str() {
                "input_ids" | "input_values" => options.lengths = vec![array.shape[1] as u64],
                // Mel frames first, unless the model pads them to a length of its own.
                "input_features" if array.shape[2] == 16 => {
                    options.lengths = vec![array.shape[1] as u64];
                }
                "encoder_hidden_states" => options.lengths = vec![array.shape[1] as u64],
                _ => {}
            }
        }
    }
    options
}

/// Every value of `graph` that the golden file has, on its inputs.
fn values(graph: &Graph, golden: &Golden) -> BTreeMap<String, Array> {
    let session = Session::observable(graph, Arithmetic::F32).expect("a graph that runs");
    let mut seen = BTreeMap::new();
    let observed = session.run_observed(&golden.inputs, &mut |v, array| {
        let name = &graph.value(v).name;
        if golden.values.contains_key(name) {
            seen.insert(name.clone(), array());
        }
    });
    seen.extend(observed.expect("a run"));
    seen
}

#[test]
fn every_layer_is_what_the_models_own_code_computes() {
    for name in FAMILIES {
        let golden = golden(name);
        let source = huggingface::load(&family(name), &options(&golden));
        let source = source.unwrap_or_else(|e| panic!("{name}: {}: {e}", e.place()));
        let mut n_compared = 0;
        for graph in &source.program.functions {
            let Some(golden) = golden.get(&graph.name) else { continue };
            let made = values(graph, golden);
            for (value, expected) in &golden.values {
                let Some(made) = made.get(value) else { panic!("{name}: no `{value}`") };
                assert_eq!(made.shape, expected.shape, "{name}: {value}");
                let moved = distance(expected, made).relative_l2;
                assert!(moved < 1e-4, "{name}: {}: {value} moved by {moved:e}", graph.name);
                n_compared += 1;
            }
        }
        assert!(n_compared >= 3, "{name}: {n_compared} values compared");
    }
}

#[test]
fn every_one_compiles_and_is_proven() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in FAMILIES {
        // Otherwise as many samples or frames as ten seconds have.
        let lengths = options(&golden(name)).lengths;
        let lengths: Vec<String> =
            lengths.iter().flat_map(|n| ["--seq".into(), n.to_string()]).collect();
        let out = folder.path().join(format!("{name}.mlpackage"));
        let model = family(name);
        let mut arguments: Vec<&std::ffi::OsStr> =
            vec!["compile".as_ref(), model.as_os_str(), "-o".as_ref(), out.as_os_str()];
        arguments.extend(lengths.iter().map(std::ffi::OsStr::new));
        let said = text(&arguments);
        assert!(said.contains("Proved     every rewrite"), "{name}: {said}");
        assert!(!said.contains("warning[not-finite]"), "{name}: {said}");
    }
}
