//! Names of symbols, which a package has no place for.
//!
//! A package only says which shapes an input may have. That two inputs share one unknown, and what
//! it is called, is noted in the metadata as JSON: for each function the symbols of each input
//! (`["1", "S"]`), the allowed combinations and the ranges. A reader uses the note only where it
//! says the same as the description, so a package changed by another tool is read as it is.

use std::collections::BTreeMap;

use russet_ir::{Dim, Graph, Program, Symbol, Symbols};
use serde::{Deserialize, Serialize};

/// Key in the user-defined metadata.
pub const KEY: &str = "com.russet.symbols";

/// The note about one function.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Hint {
    pub inputs: BTreeMap<String, Vec<String>>,
    pub enumerated: Vec<BTreeMap<String, u64>>,
    pub ranges: BTreeMap<String, (u64, Option<u64>)>,
}

/// The note about a program; `None` when no function is symbolic.
pub fn render(program: &Program) -> Option<String> {
    let symbolic = program.functions.iter().filter(|g| g.is_symbolic());
    let hints: BTreeMap<&str, Hint> = symbolic.map(|g| (g.name.as_str(), Hint::of(g))).collect();
    (!hints.is_empty()).then(|| serde_json::to_string(&hints).expect("maps of strings are JSON"))
}

/// The notes by function; empty when there are none that can be understood.
pub fn parse(text: Option<&String>) -> BTreeMap<String, Hint> {
    text.and_then(|t| serde_json::from_str(t).ok()).unwrap_or_default()
}

impl Hint {
    fn of(graph: &Graph) -> Hint {
        let strings = |b: &russet_ir::Binding| b.iter().map(|(s, &n)| (s.to_string(), n)).collect();
        let ranges = graph.symbols.ranges.iter().map(|(s, &r)| (s.to_string(), r)).collect();
        let shape = |v| graph.shape(v).iter().map(Dim::to_string).collect();
        let inputs = graph.inputs().iter().map(|&v| (graph.value(v).name.clone(), shape(v)));
        let enumerated = graph.symbols.enumerated.iter().map(strings).collect();
        Hint { inputs: inputs.collect(), enumerated, ranges }
    }

    /// The symbols it speaks of.
    pub fn symbols(&self) -> Symbols {
        let symbol = |s: &String| Symbol::new(s);
        let row = |b: &BTreeMap<String, u64>| b.iter().map(|(s, &n)| (symbol(s), n)).collect();
        Symbols {
            enumerated: self.enumerated.iter().map(row).collect(),
            ranges: self.ranges.iter().map(|(s, &r)| (symbol(s), r)).collect(),
        }
    }

    /// The shape of `input`, whose rank is `rank`.
    pub fn shape(&self, input: &str, rank: usize) -> Option<Vec<Dim>> {
        let dims = self.inputs.get(input).filter(|d| d.len() == rank)?;
        let dim = |d: &String| match d.parse() {
            Ok(n) => Dim::Fixed(n),
            Err(_) => Dim::Symbol(Symbol::new(d)),
        };
        Some(dims.iter().map(dim).collect())
    }
}
