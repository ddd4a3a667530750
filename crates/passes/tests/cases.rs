//! Every pass by its cases: what it makes of a function, or why it leaves it alone.

use russet_ir::text::{Weights, parse, print_graph};
use russet_ir::{Graph, Opset, Origin, verify};
use russet_passes::{Options, Pass, Proof, Report, pipeline, random_inputs, run_pass};
use russet_testing::{CaseFile, bless, repository};

/// The function without origins, which the cases do not repeat.
fn plain(graph: &Graph) -> String {
    let mut graph = graph.clone();
    let made: Vec<_> = graph.nodes().map(|(_, n)| n.outputs[0]).collect();
    made.into_iter().for_each(|v| graph.set_origin(v, Origin::default()));
    print_graph(&graph, Opset::Ios26, Weights::Inline)
}

fn pass_named(name: &str) -> Box<dyn Pass> {
    let all = pipeline(Options { opset: Opset::Ios18 });
    all.into_iter().find(|p| p.name() == name).unwrap_or_else(|| panic!("no pass `{name}`"))
}

#[test]
fn passes_do_what_their_cases_say() {
    let files = CaseFile::all(&repository("cases/passes"));
    assert!(!files.is_empty());
    for file in files {
        let pass = pass_named(file.name());
        bless(file, |case| {
            let before = parse(&case.input).unwrap_or_else(|e| panic!("{e} in\n{}", case.input));
            let mut graph = before.functions.into_iter().next().expect("a function");
            let inputs = random_inputs(&graph, 7, 4).expect("small inputs");
            let mut proof = Proof::new(&graph, &inputs).expect("a function that runs");
            let mut report = Report::default();
            run_pass(&mut graph, pass.as_ref(), Some(&mut proof), &mut report).expect("a proof");
            assert_eq!(verify(&graph, Opset::Ios26), []);
            let expected = match case.expected.starts_with("skip") {
                true => case.expected.clone(),
                false => {
                    let e = parse(&case.expected);
                    let e = e.unwrap_or_else(|e| panic!("{e} in\n{}", case.expected));
                    plain(&e.functions[0])
                }
            };
            let made = match (report.rewrites.is_empty(), report.skipped.first()) {
                (true, Some(skipped)) => format!("skip {}", skipped.why),
                (true, None) => "skip no match".into(),
                (false, _) => plain(&graph),
            };
            (made, expected)
        });
    }
}

#[test]
fn every_pass_has_cases() {
    for pass in pipeline(Options { opset: Opset::Ios18 }) {
        let path = repository("cases/passes").join(format!("{}.case", pass.name()));
        assert!(path.exists(), "{} has no case", pass.name());
    }
}
