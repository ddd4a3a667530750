//! Everything wrong with a graph, as findings.

use std::collections::{BTreeSet, HashMap};
use std::fmt;

use crate::graph::{BlockId, NodeId};
use crate::{Args, DType, Dim, Graph, Op, Opset, Program, Symbol, Type, Value};

/// Something wrong (or worth knowing), where it is, and what to do.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// Stable and short, as in `error[type-mismatch]`.
    pub code: &'static str,
    pub message: String,
    /// The function, then where the op comes from.
    pub place: String,
    /// The op as the text form shows it, empty when none is concerned.
    pub snippet: String,
    pub help: Option<String>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] {}: {}", self.code, self.place, self.message)
    }
}

/// Every way in which `program` breaks the rules of its opset; empty when it breaks none.
pub fn verify_program(program: &Program) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut names: Vec<&str> = program.functions.iter().map(|f| f.name.as_str()).collect();
    names.sort_unstable();
    if let Some(twice) = names.windows(2).find(|w| w[0] == w[1]) {
        let message = format!("two functions are called `{}`", twice[0]);
        let place = "the program".into();
        let snippet = String::new();
        found.push(Finding { code: "duplicate-name", message, place, snippet, help: None });
    }
    for graph in &program.functions {
        found.extend(verify(graph, program.opset));
    }
    found
}

/// Every way in which `graph` breaks the rules of `opset`; empty when it breaks none.
///
/// Checked: names are valid and unique, operands are defined before use and in scope, every op
/// exists in the opset with these parameters, stated types are the inferred ones, outputs exist.
pub fn verify(graph: &Graph, opset: Opset) -> Vec<Finding> {
    let mut check = Check { graph, opset, found: Vec::new(), names: HashMap::new() };
    let listed = graph.all_nodes().into_iter().flat_map(|id| graph.node(id).outputs.clone());
    let inputs = graph.blocks.iter().flat_map(|b| b.inputs.clone());
    inputs.chain(listed).for_each(|v| check.name(v));
    check.words();
    check.block(BlockId::BODY, &mut vec![false; graph.n_values()]);
    check.found
}

struct Check<'g> {
    graph: &'g Graph,
    opset: Opset,
    found: Vec<Finding>,
    names: HashMap<&'g str, Value>,
}

impl<'g> Check<'g> {
    fn report(&mut self, code: &'static str, node: Option<NodeId>, message: String) {
        let (origin, snippet) = match node {
            Some(id) => (
                format!(": {}", self.graph.node(id).origin),
                crate::text::node(self.graph, id, self.opset),
            ),
            None => Default::default(),
        };
        let place = format!("function {}{origin}", self.graph.name);
        self.found.push(Finding { code, message, place, snippet, help: None });
    }

    fn name(&mut self, v: Value) {
        let name = self.graph.value(v).name.as_str();
        let valid = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '@';
        let first = name.chars().next();
        if !first.is_some_and(|c| c.is_ascii_alphabetic() || c == '_') || !name.chars().all(valid) {
            let message = format!("`{name}` is no identifier Core ML accepts");
            self.report("bad-name", None, message);
        }
        if self.names.insert(name, v).is_some() {
            self.report("duplicate-name", None, format!("two values are called `{name}`"));
        }
    }

    /// Names that are not of values: a package may hold any string, the text form cannot.
    fn words(&mut self) {
        let graph = self.graph;
        if !is_word(&graph.name) {
            let message = format!("{:?} is no name of a function", graph.name);
            self.report("bad-name", None, message);
        }
        let mut symbols: BTreeSet<&Symbol> = graph.symbols.ranges.keys().collect();
        symbols.extend(graph.symbols.enumerated.iter().flat_map(|row| row.keys()));
        graph.values().for_each(|(_, data)| add_symbols(&data.ty, &mut symbols));
        for symbol in symbols {
            let first = symbol.0.chars().next();
            let begins = first.is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
            if !begins || !is_word(&symbol.0.replace('.', "_")) {
                self.report("bad-name", None, format!("{:?} is no name of a length", symbol.0));
            }
        }
        for id in graph.all_nodes() {
            let Op::Opaque(op) = &graph.node(id).op else { continue };
            let params = op.operands.iter().map(|(param, _)| param);
            for name in params.chain([&op.name]).filter(|n| !is_word(n)) {
                self.report(
                    "bad-name",
                    Some(id),
                    format!("{name:?} is no name of an op or a parameter"),
                );
            }
        }
    }

    fn block(&mut self, block: BlockId, defined: &mut Vec<bool>) {
        let b = self.graph.block(block);
        b.inputs.iter().for_each(|v| defined[v.index()] = true);
        for &id in &b.nodes {
            self.node(id, defined);
            self.graph.node(id).outputs.iter().for_each(|v| defined[v.index()] = true);
        }
        for &v in &b.outputs {
            if !defined[v.index()] {
                let name = &self.graph.value(v).name;
                self.report("undefined", None, format!("output `{name}` is not defined"));
            }
        }
        let mine = b.nodes.iter().flat_map(|&id| &self.graph.node(id).outputs).chain(&b.inputs);
        if block != BlockId::BODY {
            mine.for_each(|v| defined[v.index()] = false);
        }
    }

    fn node(&mut self, id: NodeId, defined: &mut Vec<bool>) {
        let node = self.graph.node(id);
        let op = &node.op;
        for v in op.operands() {
            if !defined[v.index()] {
                let name = &self.graph.value(v).name;
                let message = format!("`{name}` is read before it is defined");
                self.report("undefined", Some(id), message);
            }
        }
        for &inner in &node.blocks {
            self.block(inner, defined);
        }
        self.exists(id, op);
        self.narrow(id, op);
        let inferred = self.graph.with_block_types(&node.blocks, |t| op.infer(t));
        match inferred {
            Err(e) => {
                let error = self.graph.op_error(op, e);
                self.report("type-mismatch", Some(id), error.to_string());
            }
            Ok(types) if types.0.len() != node.outputs.len() => {
                let (n, stated) = (types.0.len(), node.outputs.len());
                let message = format!("`{}` has {n} outputs, {stated} are named", op.name());
                self.report("type-mismatch", Some(id), message);
            }
            Ok(types) => {
                for (&v, (inferred, _)) in node.outputs.iter().zip(&types.0) {
                    self.stated(id, v, inferred);
                }
            }
        }
    }

    fn exists(&mut self, id: NodeId, op: &Op) {
        let opset = self.opset;
        if let Some(declared) = op.declared().filter(|d| !d.is_in(opset)) {
            let (name, since) = (declared.name, declared.since);
            let message = match declared.until {
                Some(until) if since <= opset => {
                    format!("`{name}` is another op from {until} on, this is {opset}")
                }
                _ => format!("`{name}` exists from {since} on, this is {opset}"),
            };
            self.report("opset", Some(id), message);
            return;
        }
        // A parameter the opset does not have is dropped when written: it must hold its default.
        let (now, all) = (op.args(opset), op.all_args());
        let written = Args(now.iter().map(|(p, a)| ((*p).to_owned(), a.clone())).collect());
        let read = Op::from_args(op.name(), written, opset).and_then(Result::ok);
        let read = read.as_ref().map_or(Vec::new(), Op::all_args);
        for hidden in all.iter().filter(|(p, _)| !now.iter().any(|(q, _)| q == p)) {
            if !read.contains(hidden) {
                let param = hidden.0;
                let message = format!("`{param}` of `{}` does not exist in {opset}", op.name());
                self.report("opset", Some(id), message);
            }
        }
    }

    /// Narrow integers are made since iOS 17; before, only constants and compressed weights are.
    fn narrow(&mut self, id: NodeId, op: &Op) {
        use DType::{I8, I16, U8, U16};
        let stored = op.is_const() || op.declared().is_none() || op.is_constexpr();
        if self.opset >= Opset::Ios17 || stored {
            return;
        }
        let dtypes = self.graph.node(id).outputs.iter();
        let dtypes = dtypes.filter_map(|&v| Some(self.graph.ty(v).tensor()?.dtype));
        if let Some(dtype) = dtypes.into_iter().find(|d| matches!(d, I8 | U8 | I16 | U16)) {
            let (opset, since) = (self.opset, Opset::Ios17);
            let message = format!("`{}` makes {dtype} from {since} on, this is {opset}", op.name());
            self.report("opset", Some(id), message);
        }
    }

    fn stated(&mut self, id: NodeId, v: Value, inferred: &Type) {
        let stated = &self.graph.value(v).ty;
        if !inferred.agrees(stated) {
            let name = &self.graph.value(v).name;
            let message = format!("`{name}` is stated as {stated}, its operands make {inferred}");
            self.report("type-mismatch", Some(id), message);
        }
    }
}

/// What names are made of in the text form.
fn is_word(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '@';
    !name.is_empty() && name.chars().all(is_part)
}

fn add_symbols<'t>(ty: &'t Type, all: &mut BTreeSet<&'t Symbol>) {
    match ty {
        Type::Tensor(t) | Type::State(t) => all.extend(t.shape.iter().filter_map(|d| match d {
            Dim::Symbol(s) => Some(s),
            Dim::Fixed(_) => None,
        })),
        Type::List(t, _) => add_symbols(t, all),
        Type::Dict(k, v) => {
            add_symbols(k, all);
            add_symbols(v, all);
        }
    }
}
