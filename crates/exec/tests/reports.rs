//! Reports of people whose numbers went wrong on the Neural Engine: each shows its symptom here.
//!
//! A case says what is true and where the symptom shows: in `ane` arithmetic, in `f32`, in both, or
//! nowhere (what is written instead). `BLESS=1` writes what both arithmetics make.

use std::collections::BTreeMap;
use std::path::Path;

use russet_exec::{Arithmetic, Session};
use russet_ir::text::parse;
use russet_testing::{CaseFile, bless};

fn run(text: &str, arithmetic: Arithmetic) -> Vec<f32> {
    let program = parse(text).unwrap_or_else(|e| panic!("{e} in\n{text}"));
    let session = Session::new(&program.functions[0], arithmetic).expect("a session");
    let made = session.run(&BTreeMap::new()).expect("a run");
    made["y"].as_f32().expect("floats").to_vec()
}

/// Relative error beyond which a number is wrong: ten times what fp16 loses.
const WRONG: f32 = 5e-3;

fn is_wrong(found: &[f32], truth: &[f32]) -> bool {
    assert_eq!(found.len(), truth.len(), "one number for each");
    let far = |(a, b): (&f32, &f32)| {
        let apart = (a - b).abs();
        a != b && (apart.is_nan() || apart > WRONG * b.abs().max(0.01))
    };
    found.iter().zip(truth).any(far)
}

#[test]
fn every_report_shows_its_symptom() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cases/reports");
    let files = CaseFile::all(&folder);
    let names: Vec<&str> = files.iter().map(CaseFile::name).collect();
    assert_eq!(names, ["ur-01", "ur-03", "ur-05", "ur-07", "ur-09", "ur-11"]);
    for file in files {
        let name = file.name().to_owned();
        bless(file, |case| {
            let line = |of: &str| case.expected.lines().find_map(|l| l.strip_prefix(of));
            let symptom = line("symptom ").expect("where the symptom is");
            let stated = line("true ").expect("what is true");
            let numbers = stated.trim_matches(['[', ']']).split(", ");
            let truth: Vec<f32> = numbers.map(|n| n.parse().expect("a number")).collect();
            let [f32, ane] = [Arithmetic::F32, Arithmetic::ANE].map(|a| run(&case.input, a));
            let shown = (is_wrong(&f32, &truth), is_wrong(&ane, &truth));
            let expected = match symptom {
                "ane" => (false, true),
                "f32" => (true, false),
                "both" => (true, true),
                "none" => (false, false),
                other => panic!("{name}: no symptom is called {other}"),
            };
            assert_eq!(shown, expected, "{name}: f32 {f32:?}, ane {ane:?} in\n{}", case.input);
            let made = format!("symptom {symptom}\ntrue {stated}\nf32 {f32:?}\nane {ane:?}");
            (made, case.expected.clone())
        });
    }
}
