//! The conformance cases of the ONNX project: each a model, its inputs and its outputs.
//!
//! `RUSSET_ONNX_CASES` names a folder of cases (`onnx/backend/test/data/node` of the Python package);
//! without it there is nothing to do. `RUSSET_ONNX_REPORT` names a file for one line of JSON each.
//! `bench/onnx_conformance.py` finds the folder and makes docs/onnx.md of the report.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use russet_exec::{Arithmetic, Array, Numbers, Session};
use russet_formats::{Error, onnx};
use russet_ir::{Graph, Op, Tensor, Type, verify_program};
use serde_json::json;

/// What became of a case.
#[derive(Debug)]
enum Outcome {
    Passed,
    /// Nodes that no program can have, with the reasons.
    Unsupported(Vec<String>),
    /// The numbers differ.
    Wrong(String),
    Failed(String),
    Panicked(String),
}

#[test]
fn conformance() {
    let Some(folder) = std::env::var_os("RUSSET_ONNX_CASES") else { return };
    let folder = PathBuf::from(folder);
    let mut cases: Vec<PathBuf> =
        fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()).collect();
    cases.retain(|c| c.join("model.onnx").is_file());
    cases.sort();
    assert!(!cases.is_empty(), "no case in {}", folder.display());
    let only = std::env::var("RUSSET_ONNX_ONLY").unwrap_or_default();
    let mut report = String::new();
    let mut panicked = Vec::new();
    let mut n_passed = 0;
    let n = cases.len();
    for case in cases {
        let name = case.file_name().unwrap().to_string_lossy().into_owned();
        if !name.contains(&only) {
            continue;
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| run(&case)));
        let outcome = outcome.unwrap_or_else(|e| {
            let text = e.downcast_ref::<String>().cloned();
            let text = text.or_else(|| e.downcast_ref::<&str>().map(|s| s.to_string()));
            Outcome::Panicked(text.unwrap_or_default())
        });
        let (status, why) = match outcome {
            Outcome::Passed => ("passed", vec![]),
            Outcome::Unsupported(why) => ("unsupported", why),
            Outcome::Wrong(why) => ("wrong", vec![why]),
            Outcome::Failed(why) => ("failed", vec![why]),
            Outcome::Panicked(why) => ("panicked", vec![why]),
        };
        n_passed += usize::from(status == "passed");
        if status == "panicked" {
            panicked.push(format!("{name}: {why:?}"));
        }
        writeln!(report, "{}", json!({ "case": name, "status": status, "why": why })).unwrap();
    }
    println!("{n_passed} of {n} cases passed");
    if let Some(file) = std::env::var_os("RUSSET_ONNX_REPORT") {
        fs::write(file, report).unwrap();
    }
    assert!(panicked.is_empty(), "{}", panicked.join("\n"));
}

/// A case as it is; and where it gives axes, shapes and the like as inputs, which must be known when
/// a program is written, with those as constants: at first all but the first input.
fn run(case: &Path) -> Outcome {
    let mut plain = run_with(case, &onnx::Options::default());
    if matches!(plain, Outcome::Passed) {
        return plain;
    }
    let Ok(inputs) = tensors(&case.join("test_data_set_0"), "input") else { return plain };
    for first in [1, 0] {
        let few = |t: &Tensor| t.shape.len() <= 1 && t.n_elements() <= 16 || t.n_elements() == 0;
        let values = inputs.iter().skip(first).filter(|s| few(&s.stored));
        let values: BTreeMap<String, Tensor> =
            values.map(|s| (s.name.clone(), s.stored.clone())).collect();
        let known = run_with(case, &onnx::Options { values, ..onnx::Options::default() });
        match (&plain, known) {
            (_, Outcome::Passed) => return Outcome::Passed,
            // Numbers that differ say more than that they are not known.
            (Outcome::Unsupported(_), known) => plain = known,
            _ => {}
        }
    }
    plain
}

fn run_with(case: &Path, options: &onnx::Options) -> Outcome {
    let source = match onnx::load(&case.join("model.onnx"), options) {
        Ok(source) => source,
        Err(Error::Nodes { findings, .. }) => {
            return Outcome::Unsupported(findings.iter().map(ToString::to_string).collect());
        }
        Err(e) => return Outcome::Failed(e.to_string()),
    };
    let findings = verify_program(&source.program);
    if let Some(first) = findings.first() {
        return Outcome::Failed(first.to_string());
    }
    let graph = &source.program.functions[0];
    let session = match Session::new(graph, Arithmetic::F32) {
        Ok(session) => session,
        Err(e) => return Outcome::Failed(e.to_string()),
    };
    let sets = fs::read_dir(case).unwrap().map(|e| e.unwrap().path());
    let sets = sets.filter(|p| p.is_dir() && p.to_string_lossy().contains("test_data_set"));
    for set in sets {
        let (inputs, expected) = match (tensors(&set, "input"), tensors(&set, "output")) {
            (Ok(i), Ok(o)) => (i, o),
            (Err(e), _) | (_, Err(e)) => return Outcome::Failed(e),
        };
        let mut given = BTreeMap::new();
        let left = inputs.iter().filter(|s| !options.values.contains_key(&s.name));
        for (&v, t) in graph.inputs().iter().zip(left) {
            given.insert(graph.value(v).name.clone(), array(t));
        }
        let made = match session.run(&given) {
            Ok(made) => made,
            Err(e) => return Outcome::Failed(e.to_string()),
        };
        for (&v, want) in graph.outputs().iter().zip(&expected) {
            let name = &graph.value(v).name;
            let Some(found) = made.get(name) else { return Outcome::Failed(format!("no {name}")) };
            if let Err(why) = compare(graph, v, found, want) {
                return Outcome::Wrong(format!("{name}: {why}"));
            }
        }
    }
    Outcome::Passed
}

/// The tensors `input_0.pb`, … in order.
fn tensors(set: &Path, kind: &str) -> Result<Vec<onnx::Stored>, String> {
    let mut all = Vec::new();
    for i in 0.. {
        let file = set.join(format!("{kind}_{i}.pb"));
        if !file.exists() {
            break;
        }
        let stored = onnx::read_tensor(&file).map_err(|e| format!("{kind} {i}: {e}"))?;
        all.push(stored);
    }
    Ok(all)
}

/// As a program takes it: truth values as integers.
fn array(stored: &onnx::Stored) -> Array {
    let a = Array::from_tensor(&stored.tensor).expect("numbers");
    match a.data {
        Numbers::Bool(v) => Array::i32(a.shape, v.into_iter().map(i32::from).collect()),
        _ => a,
    }
}

fn compare(
    graph: &Graph,
    v: russet_ir::Value,
    found: &Array,
    want: &onnx::Stored,
) -> Result<(), String> {
    let expected = array(want);
    if found.shape != expected.shape {
        return Err(format!("shape {:?}, not {:?}", found.shape, expected.shape));
    }
    // Drawn numbers are others in every library.
    let random = graph.all_nodes().into_iter().any(|id| graph.node(id).op.is_random());
    if random {
        return Ok(());
    }
    let (a, b) = match (&found.data, &expected.data) {
        (Numbers::F32(a), Numbers::F32(b)) => (a, b),
        (a, b) if a == b => return Ok(()),
        (Numbers::I32(a), Numbers::I32(b)) => {
            let n = a.iter().zip(b).filter(|(a, b)| a != b).count();
            let first = a.iter().zip(b).find(|(a, b)| a != b);
            return Err(format!("{n} of {} integers differ: {first:?}", a.len()));
        }
        _ => return Err(format!("another type: {:?}", graph.ty(v))),
    };
    // The tolerances of the ONNX project for fp32; narrower types were rounded at every step there.
    let half = want.elem == "float16" || has_half(graph);
    let (relative, absolute) = match (want.elem, half) {
        ("bfloat16", _) => (2e-2, 2e-2),
        (_, true) => (5e-3, 5e-3),
        _ => (1e-3, 1e-5),
    };
    for (i, (&a, &b)) in a.iter().zip(b).enumerate() {
        let same = a == b || (a.is_nan() && b.is_nan());
        let near = (a - b).abs() <= absolute + relative * b.abs();
        if !same && !near {
            return Err(format!("number {i} is {a}, not {b}"));
        }
    }
    Ok(())
}

fn has_half(graph: &Graph) -> bool {
    graph
        .inputs()
        .iter()
        .any(|&v| matches!(graph.ty(v), Type::Tensor(t) if t.dtype == russet_ir::DType::F16))
        || graph
            .nodes()
            .any(|(_, n)| matches!(n.op, Op::Cast(ref c) if c.dtype == russet_ir::DType::F16))
}
