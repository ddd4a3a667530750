//! The same question to every pass and to the whole pipeline, on random functions: does the
//! function still verify, print and parse, and compute what it did?

use russet_exec::{Arithmetic, Session};
use russet_ir::text::{Weights, parse, print};
use russet_ir::{Opset, Program, verify_program};
use russet_passes::{Options, Pass, compile, distance, pipeline, random_inputs};
use russet_testing::random_graph;

fn check(seed: u64, passes: &[Box<dyn Pass>], bound: f64) {
    let graph = random_graph(seed, 24);
    let inputs = random_inputs(&graph, seed, 4).expect("small inputs");
    let mut program = Program::new(Opset::Ios18, vec![graph]);
    assert_eq!(verify_program(&program), [], "seed {seed}");
    let text = print(&program, Weights::Inline);
    let again = parse(&text).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{text}"));
    assert_eq!(print(&again, Weights::Inline), text, "seed {seed}");
    let run = |p: &Program| {
        let session = Session::new(&p.functions[0], Arithmetic::F32).expect("a function that runs");
        session.run(&inputs).expect("a run")
    };
    let before = run(&program);
    let done =
        compile(&mut program, passes, &[("main".into(), inputs.clone())].into(), &mut |_| {});
    done.unwrap_or_else(|e| panic!("seed {seed}: {e}\n{text}"));
    assert_eq!(verify_program(&program), [], "seed {seed}\n{text}");
    for (name, a) in &before {
        let after = run(&program);
        let moved = distance(a, &after[name]).relative_l2;
        assert!(moved <= bound, "seed {seed}: `{name}` moved by {moved:e}\n{text}");
    }
}

#[test]
fn every_pass_alone() {
    for i in 0..pipeline(Options { opset: Opset::Ios18 }).len() {
        for seed in 0..40 {
            let pass = pipeline(Options { opset: Opset::Ios18 }).swap_remove(i);
            let bound = if pass.name() == "to-fp16" { 2e-2 } else { 1e-4 };
            check(seed, &[pass], bound);
        }
    }
}

#[test]
fn the_whole_pipeline() {
    for seed in 100..300 {
        check(seed, &pipeline(Options { opset: Opset::Ios18 }), 2e-2);
    }
}
