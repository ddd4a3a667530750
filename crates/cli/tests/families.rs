//! Every encoder family against transformers' own results on small random models.
//!
//! The golden values are made by `bench/golden_families.py`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use russet_exec::{Arithmetic, Array, Session};
use russet_formats::huggingface::{self, Mask, Options};
use russet_ir::{Graph, Opset, Symbol};
use russet_passes::{compile, distance, pipeline};

const FAMILIES: [&str; 4] = ["bert", "distilbert", "mpnet", "roberta"];

fn folder(family: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../testing/data/families").join(family)
}

/// Arrays of the golden file by name.
fn golden(family: &str) -> BTreeMap<String, Array> {
    let arrays = russet_formats::arrays::read(&folder(family).join("golden.npz"));
    let arrays = arrays.expect("golden values").into_iter();
    arrays.map(|(name, t)| (name, Array::from_tensor(&t).expect("numbers"))).collect()
}

/// The hidden states of tokens that are no padding, one after another.
fn unmasked(hidden: &Array, mask: &Array) -> Array {
    let width = *hidden.shape.last().expect("an axis of channels");
    let rows = hidden.as_f32().expect("floats").chunks(width);
    let kept = rows.zip(mask.as_i32().expect("a mask")).filter(|(_, m)| **m == 1);
    let kept: Vec<f32> = kept.flat_map(|(row, _)| row.iter().copied()).collect();
    Array::f32(vec![kept.len() / width, width], kept)
}

/// Distance of the function's hidden states from the golden ones, where there are tokens.
fn moved(graph: &Graph, family: &str, arithmetic: Arithmetic) -> f64 {
    let golden = golden(family);
    let inputs = graph.inputs().iter().map(|&v| {
        let name = graph.value(v).name.clone();
        let array = golden[&name].clone();
        (name, array)
    });
    let session = Session::new(graph, arithmetic).expect("a graph that runs");
    let made = session.run(&inputs.collect()).expect("a run");
    let mask = &golden["attention_mask"];
    let [expected, made] = [&golden["last_hidden_state"], &made["last_hidden_state"]];
    distance(&unmasked(expected, mask), &unmasked(made, mask)).relative_l2
}

fn options(family: &str, lengths: &[u64], mask: Mask) -> Options {
    let batch = golden(family)["input_ids"].shape[0] as u64;
    Options { lengths: lengths.to_vec(), batch, mask, ..Options::default() }
}

fn golden_length(family: &str) -> u64 {
    golden(family)["input_ids"].shape[1] as u64
}

#[test]
fn the_source_form_is_what_transformers_computes() {
    for family in FAMILIES {
        for mask in [Mask::Input, Mask::FromIds] {
            let options = options(family, &[golden_length(family)], mask);
            let source = huggingface::load(&folder(family), &options).expect("a model");
            let moved = moved(&source.program.functions[0], family, Arithmetic::F32);
            assert!(moved < 1e-5, "{family} {mask:?}: {moved:e}");
        }
    }
}

#[test]
fn the_compiled_form_is_too_at_fixed_and_enumerated_lengths() {
    for family in FAMILIES {
        let n = golden_length(family);
        for lengths in [vec![n], vec![n, n + 4]] {
            let options = options(family, &lengths, Mask::Input);
            let mut program =
                huggingface::load(&folder(family), &options).expect("a model").program;
            program.opset = Opset::Ios18;
            let source = &program.functions[0];
            let inputs = russet_passes::random_inputs(source, 3, n).expect("small inputs");
            let passes = pipeline(russet_passes::Options { opset: Opset::Ios18 });
            compile(&mut program, &passes, &[("main".into(), inputs.clone())].into(), &mut |_| {})
                .expect("proven rewrites");
            let graph = &program.functions[0];
            let [f32, fp16, ane] = [Arithmetic::F32, Arithmetic::FP16, Arithmetic::ANE]
                .map(|arithmetic| moved(graph, family, arithmetic));
            let said = format!("{family} {lengths:?}: f32 {f32:e}, fp16 {fp16:e}, ane {ane:e}");
            // The engine's activations after a product are less exact than fp16.
            assert!(f32 < 2e-3 && fp16 < 1e-2 && ane < 6e-2, "{said}");
            inner_transposes_are_gone(graph, family);
        }
    }
}

/// One change of layout at the beginning, one at the end, and convolutions for linear layers.
fn inner_transposes_are_gone(graph: &Graph, family: &str) {
    let count = |name: &str| graph.nodes().filter(|(_, n)| n.op.name() == name).count();
    assert_eq!(count("linear"), 0, "{family}");
    assert!(count("transpose") <= 2, "{family}: {} transposes", count("transpose"));
    assert_eq!(count("conv"), 2 * 6, "{family}: six layers' products in each of two layers");
    let bound = match graph.is_symbolic() {
        true => graph.bind(&[(Symbol::new("S"), golden_length(family))].into()).expect("a length"),
        false => graph.clone(),
    };
    assert!(bound.nodes().all(|(_, n)| n.outputs.iter().all(|&v| bound.shape(v).len() <= 4)));
}
