//! Names that a reader of the package sees.

use std::collections::HashSet;

use russet_ir::{Graph, Value};

/// What passes append to the name of what they replace.
const MARKS: [&str; 3] = ["_fp16", "_moved", "_finite"];

/// Takes the marks of passes off names, as far as they stay unique. Inputs, outputs and values that
/// no pass made keep theirs.
pub fn tidy_names(graph: &mut Graph) {
    let made: Vec<Value> =
        graph.all_nodes().iter().flat_map(|&id| graph.node(id).outputs.clone()).collect();
    let by_pass = |g: &Graph, v: Value| g.def(v).is_some_and(|n| !n.origin.passes.is_empty());
    let renamed: Vec<Value> =
        made.iter().copied().filter(|&v| by_pass(graph, v) && !graph.is_output(v)).collect();
    let inputs = graph.inputs().iter().copied();
    let kept = made.iter().copied().filter(|v| !renamed.contains(v)).chain(inputs);
    let mut taken: HashSet<String> = kept.map(|v| graph.value(v).name.clone()).collect();
    for v in renamed {
        let mut name = graph.value(v).name.clone();
        MARKS.iter().for_each(|mark| name = name.replace(mark, ""));
        let base = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let base = base.strip_suffix('_').filter(|b| !b.is_empty()).unwrap_or(&name).to_owned();
        let numbered = (1..).map(|i| format!("{base}_{i}"));
        let free = [base.clone(), name].into_iter().chain(numbered).find(|n| !taken.contains(n));
        let free = free.expect("numbers do not end");
        graph.rename(v, &free);
        taken.insert(free);
    }
}
