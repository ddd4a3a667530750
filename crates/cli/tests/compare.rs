//! `russet compare`: ranges, rules, steps, recorded results, folders of inputs, pages.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{json, russet, text};
use russet_formats::arrays;
use russet_formats::mlpackage::{self, Description};
use russet_ir::{Tensor, text::parse};
use serde_json::Value;

fn s(path: &Path) -> &str {
    path.to_str().expect("a path of text")
}

/// A package of the program in `text`.
fn package(folder: &Path, name: &str, text: &str) -> PathBuf {
    let program = parse(text).unwrap_or_else(|e| panic!("{e} in\n{text}"));
    let out = folder.join(format!("{name}.mlpackage"));
    mlpackage::write(&program, &Description::default(), &out).expect("a package");
    out
}

/// Inputs `x` in a file.
fn inputs(file: &Path, x: &[f32]) {
    let x = Tensor::f32(vec![1, x.len() as u64], x);
    arrays::write(file, &[("x".to_owned(), x)]).expect("a file of inputs");
}

/// Two products of sums, the second 64 times as large.
const PRODUCTS: &str = "program ios18
func main(%x: fp32[1, 2]) {
  %w = const(val=fp32[2, 2] [1.0, 1.0, 0.5, -0.5])
  %v = const(val=fp32[1, 2] [64.0, 0.0])
  %h = linear(x=%x, weight=%w)
  %a = silu(x=%h)
  %y = linear(x=%a, weight=%v)
} -> %y
";

const COUNTER: &str = "program ios18
func main(%x: fp16[1, 2], %sum: state<fp16[1, 2]>) {
  %held = read_state(input=%sum)
  %y = add(x=%held, y=%x)
  write_state(input=%sum, data=%y)
} -> %y
";

fn row<'a>(rows: &'a Value, key: &str, name: &str) -> &'a Value {
    let rows = rows.as_array().expect("rows");
    rows.iter().find(|r| r[key] == name).unwrap_or_else(|| panic!("{name} in {rows:?}"))
}

#[test]
fn ranges_over_a_folder_do_not_depend_on_its_order() {
    let folder = tempfile::tempdir().unwrap();
    let model = package(folder.path(), "x", PRODUCTS);
    let mut seen = Vec::new();
    for order in [["a", "b", "c"], ["c", "a", "b"], ["b", "c", "a"]] {
        let all = folder.path().join(order.concat());
        fs::create_dir(&all).unwrap();
        fs::write(all.join("notes.txt"), "not for us").unwrap();
        for (name, x) in order.iter().zip([[1.0, -1.0], [200.0, 56.0], [0.1, 0.1]]) {
            inputs(&all.join(format!("{name}.npz")), &x);
        }
        let found = json(&["compare", s(&model), "--ranges", "--inputs", s(&all)]);
        assert_eq!(found["sets"], 3);
        seen.push(found["ranges"].clone());
    }
    assert!(seen[0] == seen[1] && seen[1] == seen[2]);
    let y = row(&seen[0], "value", "y");
    assert_eq!((&y["largest"], &y["limit"]), (&16384.0.into(), &32768.0.into()));
    assert_eq!((&y["limit_name"], &y["margin"]), (&"product".into(), &2.0.into()));
    assert_eq!(row(&seen[0], "value", "a")["limit"], 65504.0);
    let told = text(&["compare", s(&model), "--ranges", "--inputs", s(&folder.path().join("abc"))]);
    assert!(told.contains("0 beyond, 1 within a factor of 4"), "{told}");
}

#[test]
fn each_rule_is_taken_away_alone() {
    let folder = tempfile::tempdir().unwrap();
    let model = package(folder.path(), "x", PRODUCTS);
    let file = folder.path().join("x.npz");
    inputs(&file, &[500.0, 200.0]);
    let base = ["compare", s(&model), "--inputs", s(&file)];
    let found = json(&[&base[..], &["--ablate"]].concat());
    let rules = &found["rules"];
    assert_eq!(rules.as_array().map(Vec::len), Some(16));
    // 44,800 is infinite as a product, and nothing else makes it so.
    for rule in rules.as_array().unwrap() {
        assert_eq!(rule["relative_l2"].is_number(), rule["rule"] == "product-limit", "{rule}");
    }
    let without = json(&[&base[..], &["--without", "product-limit"]].concat());
    assert_eq!(
        without["outputs"][0]["relative_l2"],
        row(rules, "rule", "product-limit")["relative_l2"]
    );
    assert_eq!(without["arithmetic_b"], "ane without product-limit");
    let broken = json(&[&base[..], &["--per-op"]].concat());
    assert_eq!(
        (&broken["first_broken"], &broken["outputs"][0]["infinite"]),
        (&"y".into(), &1.0.into())
    );
    let told = text(&[&base[..], &["--ablate", "--top", "1"]].concat());
    assert!(told.contains("product-limit") && told.contains("finite again"), "{told}");
    let older = json(&[&base[..], &["--arithmetic-b", "ane:m2-max", "--ablate"]].concat());
    row(&older["rules"], "rule", "offset-slice");
}

#[test]
fn results_that_were_recorded_are_compared_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let model = package(folder.path(), "x", PRODUCTS);
    let (file, saved) = (folder.path().join("x.npz"), folder.path().join("ops.npz"));
    inputs(&file, &[1.0, 0.3]);
    let base = ["compare", s(&model), "--inputs", s(&file)];
    let first = json(&[&base[..], &["--per-op", "--record", s(&saved)]].concat());
    let against = ["compare", s(&model), s(&saved), "--inputs", s(&file), "--per-op"];
    let again = json(&against);
    assert_eq!(again["ops"].as_array().map(Vec::len), Some(3));
    for op in again["ops"].as_array().unwrap() {
        let before = row(&first["ops"], "value", op["value"].as_str().unwrap());
        assert_eq!(op["relative_l2"], before["relative_l2"]);
        assert!(op["own_relative_l2"].is_null() && before["own_relative_l2"].is_number());
    }
    let same = json(&[&against[..], &["--arithmetic-a", "ane"]].concat());
    assert_eq!(same["outputs"][0]["relative_l2"], 0.0);
}

#[test]
fn errors_grow_over_steps_of_states() {
    let folder = tempfile::tempdir().unwrap();
    let model = package(folder.path(), "x", COUNTER);
    let file = folder.path().join("x.npz");
    inputs(&file, &[0.1, 0.1]);
    let base = ["compare", s(&model), "--inputs", s(&file), "--steps", "1000"];
    let found = json(&base);
    let errors = found["steps"]["relative_l2"].as_array().expect("steps").clone();
    assert_eq!(errors.len(), 1000);
    // A sum of tenths in fp16 loses more the longer it gets.
    let at = |i: usize| errors[i - 1].as_f64().unwrap();
    assert!(at(1) < 1e-3 && at(1000) > 10.0 * at(10), "{} {} {}", at(1), at(10), at(1000));
    assert!(found["steps"]["exponent"].as_f64().unwrap() > 0.3);
    let same = json(&[&base[..], &["--arithmetic-b", "f32"]].concat());
    assert!(same["steps"]["relative_l2"].as_array().unwrap().iter().all(|e| e == 0.0));
    let page = folder.path().join("steps.html");
    let told = text(&[&base[..], &["--html", s(&page)]].concat());
    assert!(told.contains("error over 1000 steps, like steps^"), "{told}");
    assert!(fs::read_to_string(page).unwrap().contains("Error over steps"));
}

#[test]
fn a_page_stands_alone() {
    let folder = tempfile::tempdir().unwrap();
    let model = package(folder.path(), "x", PRODUCTS);
    let page = folder.path().join("page.html");
    text(&["compare", s(&model), "--ranges", "--ablate", "--html", s(&page)]);
    let page = fs::read_to_string(page).unwrap();
    for part in ["<svg", "%y", "fixed-accumulator", "Margins", "silu"] {
        assert!(page.contains(part), "{part}");
    }
    for foreign in ["<script", "http", "src=", "@import", "url("] {
        assert!(!page.contains(foreign), "{foreign}");
    }
}

#[test]
fn threads_and_runs_do_not_show() {
    let folder = tempfile::tempdir().unwrap();
    let model = package(folder.path(), "x", PRODUCTS);
    let run = |threads| {
        let base = ["compare", s(&model), "--per-op", "--ranges", "--ablate", "--threads", threads];
        json(&base)
    };
    let one = run("1");
    assert!(one == run("2") && one == run("1") && one == run("2"));
}

#[test]
fn what_cannot_be_compared_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let model = package(folder.path(), "x", PRODUCTS);
    let empty = folder.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let recorded = folder.path().join("other.npz");
    inputs(&recorded, &[1.0]);
    for (arguments, expected) in [
        (vec!["--steps", "10"], "for models with states"),
        (vec!["--arithmetic-b", "f32", "--ablate"], "f32 has no rules"),
        (vec!["--arithmetic-b", "bf16", "--without", "product-limit"], "no rules to leave out"),
        (vec!["--without", "gravity"], "one of fp16-storage"),
        (vec!["--arithmetic-b", "ane:m9"], "a chip from m1 to m5"),
        (vec!["--inputs", s(&empty)], "no .npz, .npy or .safetensors"),
        (vec![s(&recorded), "--steps", "3"], "one is recorded"),
        (vec![s(&recorded)], "no output in common"),
    ] {
        let done = russet(&[&["compare", s(&model)], &arguments[..]].concat());
        assert_eq!(done.code, Some(2), "{arguments:?}");
        assert!(done.stderr.contains(expected), "{arguments:?}: {}", done.stderr);
    }
}
