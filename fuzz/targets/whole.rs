//! Text to a program, and the whole way of it: printed, run plain and packed, rewritten with proof,
//! bound, predicted, written and read.
#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use russet_exec::ane::Ane;
use russet_exec::{Arithmetic, Array, Session};
use russet_formats::mlpackage::{self, Description};
use russet_ir::{Graph, Opset, Program, text, verify_program};
use russet_machine::{Profile, estimate, place};
use russet_passes::{Options, PassError, Proof, compile, pipeline, random_inputs};

/// Largest value that is run, in elements, and most ops: the point is what ops do, not how long.
const ELEMENTS_MAX: u64 = 4096;
const NODES_MAX: usize = 200;

fuzz_target!(|data: &[u8]| {
    let Ok(source) = std::str::from_utf8(data) else { return };
    let Ok(program) = text::parse(source) else { return };
    if !verify_program(&program).is_empty() {
        return;
    }
    let printed = text::print(&program, text::Weights::Inline);
    let again = text::parse(&printed).unwrap_or_else(|e| panic!("{e}\n{printed}"));
    assert_eq!(text::print(&again, text::Weights::Inline), printed);
    let m4 = Profile::named("m4").expect("a built-in profile");
    for graph in &program.functions {
        let bindings = graph.symbols.enumerated.clone();
        for binding in bindings.iter().take(2).chain([&Default::default()]) {
            let Ok(bound) = graph.bind(binding) else { continue };
            estimate(&bound, &place(&bound, &m4), &m4);
            if is_small(&bound) {
                run(&bound);
            }
        }
    }
    if program.functions.iter().all(is_small) {
        rewrite(&program);
    }
    write(&program);
});

fn is_small(graph: &Graph) -> bool {
    let small = |n: Option<u64>| n.is_some_and(|n| n <= ELEMENTS_MAX);
    let mut tensors = graph.values().filter_map(|(_, d)| d.ty.tensor());
    graph.all_nodes().len() <= NODES_MAX
        && !graph.is_symbolic()
        && tensors.all(|t| t.fixed_shape().is_none() || small(t.n_elements()))
}

fn inputs(graph: &Graph) -> Option<BTreeMap<String, Array>> {
    random_inputs(graph, 7, 3).ok()
}

fn run(graph: &Graph) {
    let Some(inputs) = inputs(graph) else { return };
    for arithmetic in [Arithmetic::F32, Arithmetic::Ane(Ane::default())] {
        if let Ok(session) = Session::new(graph, arithmetic) {
            let _ = session.run(&inputs);
        }
        if let Ok(session) = Session::observable(graph, arithmetic) {
            let _ = session.run(&inputs);
        }
    }
    let plain = Proof::new(graph, &inputs).is_ok();
    let packed = Session::new(graph, Arithmetic::F32).is_ok_and(|s| s.run(&inputs).is_ok());
    assert!(!plain || packed, "runs plain but not packed");
}

/// The driver refuses edits that move a result: a refusal is a wrong pass. Not counted are NaN and
/// infinite numbers, of which every one may move.
fn rewrite(program: &Program) {
    for opset in [Opset::Ios15, Opset::Ios18] {
        let mut rewritten = program.clone();
        let passes = pipeline(Options { opset });
        let named = |g: &Graph| Some((g.name.clone(), inputs(g)?));
        let inputs = program.functions.iter().map(named).collect::<Option<_>>();
        let Some(inputs) = inputs else { return };
        match compile(&mut rewritten, &passes, &inputs, &mut |_| {}) {
            Ok(_) | Err(PassError::Run(_) | PassError::Unproven { .. }) => {}
            Err(e) => panic!("{e}\n{}", text::print(program, text::Weights::Inline)),
        }
        let mut unproven = program.clone();
        match compile(&mut unproven, &passes, &Default::default(), &mut |_| {}) {
            Ok(_) => write(&unproven),
            Err(e) => panic!("{e}\n{}", text::print(program, text::Weights::Inline)),
        }
    }
}

fn write(program: &Program) {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("x.mlpackage");
    if mlpackage::write(program, &Description::default(), &out).is_ok() {
        let again = mlpackage::read(&out).unwrap_or_else(|e| {
            panic!("{e}\n{}", text::print(program, text::Weights::Inline));
        });
        assert_eq!(verify_program(&again.program), []);
    }
}
