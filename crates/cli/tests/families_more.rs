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
    "flux",
    "hubert",
    "parakeet_ctc",
    "parakeet_encoder",
    "pixart",
    "sd3",
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
                "encoder_hidden_states" => options.lengths.insert(0, array.shape[1] as u64),
                // Tokens of a picture, where it is given as such.
                "hidden_states" if array.shape.len() == 3 => {
                    options.lengths.push(array.shape[1] as u64);
                }
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
        let lengths: Vec<String> = lengths.iter().map(u64::to_string).collect();
        let lengths = match lengths.is_empty() {
            true => Vec::new(),
            false => vec!["--seq".to_owned(), lengths.join(",")],
        };
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

/// What Whisper's decoder gives for tokens in chunks and one by one is what it gives for all at once.
#[test]
fn whisper_decodes_as_its_own_code_does() {
    use russet_formats::huggingface::usage::Usage;
    use russet_formats::huggingface::usage::audio::{Audio, Says};

    let golden = golden("whisper");
    let ids = golden["decoder"].inputs["input_ids"].as_i32().expect("ids");
    let expected = &golden["decoder"].values["logits"];
    let options = Options { lengths: vec![4], ..Options::default() };
    let source = huggingface::load(&family("whisper"), &options).expect("a model");
    let Usage::Audio(Audio { says: Says::Transcript(t), .. }) = &source.usage else {
        panic!("it writes transcripts")
    };
    let session = |name: &str| {
        let graph = source.program.function(name).expect("a function");
        Session::new(graph, Arithmetic::F32).expect("a graph that runs")
    };
    let made = session("encoder").run(&golden["encoder"].inputs).expect("a run");
    let (prefill, decode, head) = (session("prefill"), session("decode"), session("lm_head"));
    let mut states = BTreeMap::new();
    let mut n_past = 0;
    while n_past < ids.len() {
        let n = t.decoder.next(n_past as u64, (ids.len() - n_past) as u64) as usize;
        let now = &ids[n_past..(n_past + n).min(ids.len())];
        let mut inputs = BTreeMap::from([("cross_cache".to_owned(), made["cross_cache"].clone())]);
        for (name, tensor) in t.decoder.inputs(n_past as u64, now, n as u64) {
            inputs.insert(name, Array::from_tensor(&tensor).expect("numbers"));
        }
        let session = if n > 1 { &prefill } else { &decode };
        let out = session.run_stateful(&inputs, &mut states).expect("a run");
        let hidden = out["last_hidden_state"].as_f32().expect("floats");
        let (width, n_vocab) = (hidden.len() / n, expected.shape[2]);
        for (i, row) in hidden.chunks(width).take(now.len()).enumerate() {
            let x = Array::f32(vec![1, 1, width], row.to_vec());
            let logits = head.run(&[("hidden_state".to_owned(), x)].into()).expect("a run");
            let from = (n_past + i) * n_vocab;
            let wanted = expected.as_f32().expect("floats")[from..from + n_vocab].to_vec();
            let wanted = Array::f32(vec![1, 1, n_vocab], wanted);
            // The cache is fp16.
            let moved = distance(&wanted, &logits["logits"]).relative_l2;
            assert!(moved < 1e-3, "token {}: {moved:e}", n_past + i);
        }
        n_past += now.len();
    }
}
