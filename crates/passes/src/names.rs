//! Names that a reader of the package sees.

use std::collections::{HashMap, HashSet};

use russet_ir::{Def, Graph, Value, ValueData};

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
    // Those of inner blocks too: no node makes them.
    let is_input = |d: &ValueData| matches!(d.def, Def::Input(..));
    let inputs = graph.values().filter(|(_, d)| is_input(d)).map(|(v, _)| v);
    let to_rename: HashSet<Value> = renamed.iter().copied().collect();
    let kept = made.iter().copied().filter(|v| !to_rename.contains(v)).chain(inputs);
    let mut taken: HashSet<String> = kept.map(|v| graph.value(v).name.clone()).collect();
    // The number from which on to try, by name: very many may have one name.
    let mut next: HashMap<String, u64> = HashMap::new();
    for v in renamed {
        let mut name = graph.value(v).name.clone();
        MARKS.iter().for_each(|mark| name = name.replace(mark, ""));
        let base = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let base = base.strip_suffix('_').filter(|b| !b.is_empty()).unwrap_or(&name).to_owned();
        let free = [base.clone(), name].into_iter().find(|n| !taken.contains(n));
        let free = free.unwrap_or_else(|| {
            let next = next.entry(base.clone()).or_insert(1);
            loop {
                let numbered = format!("{base}_{next}");
                *next += 1;
                if !taken.contains(&numbered) {
                    break numbered;
                }
            }
        });
        graph.rename(v, &free);
        taken.insert(free);
    }
}
