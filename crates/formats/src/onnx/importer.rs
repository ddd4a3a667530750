//! Nodes in, ops out: values by name, nodes in order, everything that cannot be said collected.

use std::collections::HashMap;

use russet_ir::ops::{Cast, Const};
use russet_ir::{BlockId, DType, Def, Finding, Graph, Op, OpError, Opset, Origin, Tensor, Value};

use super::cx::Cx;
use super::data::{self, Files};
use super::elem::Elem;
use super::fold::fold;
use super::lit::Lit;
use super::names::word;
use super::node::Attributes;
use super::ops;
use super::proto::{FunctionProto, GraphProto, NodeProto, OperatorSetIdProto};

/// Why a node cannot become ops. Empty when what is wrong has been reported already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Why(pub String);

impl Why {
    fn reported() -> Why {
        Why(String::new())
    }
}

impl From<&str> for Why {
    fn from(why: &str) -> Why {
        Why(why.to_owned())
    }
}

impl From<String> for Why {
    fn from(why: String) -> Why {
        Why(why)
    }
}

impl From<OpError> for Why {
    fn from(e: OpError) -> Why {
        Why(e.to_string())
    }
}

/// A value of the ONNX graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Val(usize);

struct Slot {
    /// As the file has it.
    name: String,
    elem: Elem,
    content: Content,
    /// Its constant as a value of the program, once something read it; with 8 or 16 bits where the
    /// type has them.
    raw: Option<Value>,
    /// The same with 32 bits.
    wide: Option<Value>,
}

enum Content {
    Constant(Tensor),
    Computed(Value),
    /// The node that should make it could not be imported.
    Failed,
    /// An optional output that is not made here.
    Absent,
}

impl Slot {
    fn absent(&self) -> Why {
        Why(format!("`{}` is an optional output that is not made here", self.name))
    }
}

/// What a node makes of one of its outputs.
pub enum Out {
    Value(Value, Elem),
    Constant(Tensor, Elem),
    /// The very value that was given.
    Same(Val),
    /// An optional output nobody reads, or that has no place in a program.
    Absent,
}

/// Values by name: of a graph, of a graph inside a node, or of a function's body.
pub struct Scope<'s, 'm> {
    names: HashMap<&'m str, Val>,
    outer: Option<&'s Scope<'s, 'm>>,
    /// Those of the call a function's body belongs to.
    attrs: Attributes<'m>,
    opsets: &'m [OperatorSetIdProto],
    depth: usize,
}

impl<'m> Scope<'_, 'm> {
    pub fn of_model(opsets: &'m [OperatorSetIdProto]) -> Scope<'m, 'm> {
        let (names, attrs) = (HashMap::new(), Attributes::default());
        Scope { names, outer: None, attrs, opsets, depth: 0 }
    }

    pub fn get(&self, name: &str) -> Option<Val> {
        let mut scope = self;
        loop {
            match (scope.names.get(name), scope.outer) {
                (Some(&v), _) => return Some(v),
                (None, Some(outer)) => scope = outer,
                (None, None) => return None,
            }
        }
    }

    pub fn insert(&mut self, name: &'m str, v: Val) {
        self.names.insert(name, v);
    }

    /// The version of an op set; the default one when the file does not say.
    fn version(&self, domain: &str) -> i64 {
        let is = |o: &&OperatorSetIdProto| {
            o.domain == domain || (domain.is_empty() && o.domain == "ai.onnx")
        };
        self.opsets.iter().find(is).map_or(1, |o| o.version)
    }
}

/// Nodes that may come out of functions and loops beside those of the file: functions that call
/// functions, and loops in loops, double with every level.
const N_UNFOLDED_MAX: usize = 250_000;
/// Functions in functions.
const DEPTH_MAX: usize = 32;
/// Problems kept; more would be read by nobody.
const N_PROBLEMS_MAX: usize = 1000;

pub struct Importer<'m> {
    pub graph: Graph,
    pub opset: Opset,
    /// Where new nodes go.
    pub block: BlockId,
    pub problems: Vec<Finding>,
    pub files: &'m Files,
    slots: Vec<Slot>,
    functions: HashMap<(&'m str, &'m str), &'m FunctionProto>,
    n_nodes: usize,
    n_nodes_max: usize,
}

impl<'m> Importer<'m> {
    /// For a file of `n_nodes` nodes.
    pub fn new(
        opset: Opset,
        functions: &'m [FunctionProto],
        files: &'m Files,
        n_nodes: usize,
    ) -> Importer<'m> {
        let by_name = |f: &'m FunctionProto| ((f.domain.as_str(), f.name.as_str()), f);
        Importer {
            graph: Graph::new("main"),
            opset,
            block: BlockId::BODY,
            problems: Vec::new(),
            files,
            slots: Vec::new(),
            functions: functions.iter().map(by_name).collect(),
            n_nodes: 0,
            n_nodes_max: n_nodes + N_UNFOLDED_MAX,
        }
    }

    fn slot(&mut self, name: &str, elem: Elem, content: Content) -> Val {
        self.slots.push(Slot { name: name.to_owned(), elem, content, raw: None, wide: None });
        Val(self.slots.len() - 1)
    }

    pub fn computed(&mut self, name: &str, elem: Elem, value: Value) -> Val {
        self.slot(name, elem, Content::Computed(value))
    }

    pub fn constant(&mut self, name: &str, elem: Elem, tensor: Tensor) -> Val {
        self.slot(name, elem, Content::Constant(tensor))
    }

    pub fn failed(&mut self, name: &str) -> Val {
        self.slot(name, Elem::F32, Content::Failed)
    }

    pub fn has_failed(&self, v: Val) -> bool {
        matches!(self.slots[v.0].content, Content::Failed)
    }

    pub fn elem(&self, v: Val) -> Elem {
        self.slots[v.0].elem
    }

    /// The constant as it is stored, if the value is one.
    pub fn tensor(&self, v: Val) -> Option<&Tensor> {
        match &self.slots[v.0].content {
            Content::Constant(t) => Some(t),
            _ => None,
        }
    }

    /// The numbers of a small constant, or of shape arithmetic that is known.
    pub fn lit(&self, v: Val) -> Option<Lit> {
        let slot = &self.slots[v.0];
        match &slot.content {
            Content::Constant(t) => Lit::of(t, slot.elem),
            Content::Computed(value) => {
                let ty = self.graph.ty(*value).tensor().filter(|t| t.dtype == DType::I32)?;
                let shape = ty.fixed_shape()?.iter().map(|&d| d as usize).collect();
                Some(Lit::ints(slot.elem, shape, self.graph.types().ints(*value)?))
            }
            Content::Failed | Content::Absent => None,
        }
    }

    /// The value with 8 or 16 bits where it has them: for what only moves, casts or dequantizes.
    pub fn raw(&mut self, v: Val) -> Result<Value, Why> {
        let slot = &self.slots[v.0];
        match &slot.content {
            Content::Computed(value) => Ok(*value),
            Content::Failed => Err(Why::reported()),
            Content::Absent => Err(slot.absent()),
            Content::Constant(t) => {
                if let Some(value) = slot.raw {
                    return Ok(value);
                }
                let small = slot.elem.is_int() && slot.elem.stored().bits() <= 8;
                if !small {
                    return self.value(v);
                }
                let (t, name) = (t.clone(), slot.name.clone());
                let value = self.push_constant(t, &format!("{name}_raw"))?;
                self.slots[v.0].raw = Some(value);
                Ok(value)
            }
        }
    }

    /// The value as it is computed with: floats, int32 or bool.
    pub fn value(&mut self, v: Val) -> Result<Value, Why> {
        let slot = &self.slots[v.0];
        if let Some(value) = slot.wide {
            return Ok(value);
        }
        let value = match &slot.content {
            Content::Failed => return Err(Why::reported()),
            Content::Absent => return Err(slot.absent()),
            Content::Constant(t) => {
                let t = data::computed(t, slot.elem)?;
                if t.dtype == DType::String {
                    return Err(Why::from("MIL computes nothing with strings"));
                }
                let name = slot.name.clone();
                self.push_constant(t, &name)?
            }
            Content::Computed(value) => {
                let (value, wanted) = (*value, slot.elem.computed());
                if self.graph.ty(value).tensor().is_none_or(|t| t.dtype == wanted) {
                    return Ok(value);
                }
                let name = format!("{}_wide", word(&slot.name));
                let wide =
                    self.push(Cast { x: value, dtype: wanted }.into(), &name, Origin::default())?;
                // In a block it is not seen from outside.
                if self.block != BlockId::BODY {
                    return Ok(wide[0]);
                }
                wide[0]
            }
        };
        self.slots[v.0].wide = Some(value);
        Ok(value)
    }

    /// Constants belong to the function's own block, so that every block sees them.
    fn push_constant(&mut self, val: Tensor, name: &str) -> Result<Value, Why> {
        let names = [self.graph.unique_name(&word(name))];
        let origin = Origin::source(name);
        let added =
            self.graph.push_node(BlockId::BODY, Const { val }.into(), &names, vec![], origin)?;
        Ok(added[0])
    }

    /// A constant of ours.
    pub fn push_number(&mut self, val: Tensor, name: &str, origin: Origin) -> Result<Value, Why> {
        let names = [self.graph.unique_name(name)];
        let added =
            self.graph.push_node(BlockId::BODY, Const { val }.into(), &names, vec![], origin)?;
        Ok(added[0])
    }

    /// Adds an op to the current block.
    pub fn push(&mut self, op: Op, name: &str, origin: Origin) -> Result<Vec<Value>, Why> {
        self.push_blocks(op, name, vec![], origin)
    }

    pub fn push_blocks(
        &mut self,
        op: Op,
        name: &str,
        blocks: Vec<BlockId>,
        origin: Origin,
    ) -> Result<Vec<Value>, Why> {
        let first = self.graph.unique_name(name);
        let added = self.graph.push_node(self.block, op, &[first], blocks, origin)?;
        // The others are named after the first, which may meet a name that is taken.
        for &v in &added[1..] {
            let name = self.graph.value(v).name.clone();
            self.graph.rename(v, "");
            let free = self.graph.unique_name(&name);
            self.graph.rename(v, &free);
        }
        Ok(added)
    }

    pub fn report(&mut self, place: String, why: Why) {
        if !why.0.is_empty() && self.problems.len() < N_PROBLEMS_MAX {
            let (code, message, snippet) = ("unsupported-node", why.0, String::new());
            self.problems.push(Finding { code, message, place, snippet, help: None });
        }
    }

    /// Initializers of a graph as constants.
    pub fn initializers(&mut self, graph: &'m GraphProto, scope: &mut Scope<'_, 'm>) {
        for t in &graph.initializer {
            let v = match data::tensor(t, self.files) {
                Ok((tensor, elem)) => self.constant(&t.name, elem, tensor),
                Err(why) => {
                    self.report(format!("initializer `{}`", t.name), why);
                    self.failed(&t.name)
                }
            };
            scope.insert(&t.name, v);
        }
        for s in &graph.sparse_initializer {
            let name = s.values.as_ref().map_or("", |v| v.name.as_str());
            let v = match data::sparse(s, self.files) {
                Ok((tensor, elem)) => self.constant(name, elem, tensor),
                Err(why) => {
                    self.report(format!("initializer `{name}`"), why);
                    self.failed(name)
                }
            };
            scope.insert(name, v);
        }
    }

    /// All nodes, in order; what fails is reported, and what depends on it passed over.
    pub fn nodes(&mut self, nodes: &'m [NodeProto], scope: &mut Scope<'_, 'm>) {
        for node in nodes {
            let made = self.node(node, scope);
            for (i, name) in node.output.iter().enumerate().filter(|(_, n)| !n.is_empty()) {
                let v = match made.as_ref().map(|m| m.get(i)) {
                    Ok(Some(&Some(v))) => v,
                    // Named and not read, it is no problem.
                    Ok(_) => self.slot(name, Elem::F32, Content::Absent),
                    Err(()) => self.failed(name),
                };
                scope.insert(name, v);
            }
        }
    }

    fn node(&mut self, node: &'m NodeProto, scope: &Scope<'_, 'm>) -> Result<Vec<Option<Val>>, ()> {
        let made = self.import(node, scope);
        made.map_err(|why| self.report(place(node), why))
    }

    fn import(
        &mut self,
        node: &'m NodeProto,
        scope: &Scope<'_, 'm>,
    ) -> Result<Vec<Option<Val>>, Why> {
        self.n_nodes += 1;
        if self.n_nodes > self.n_nodes_max {
            let once = self.n_nodes == self.n_nodes_max + 1;
            let why = format!("the model unfolds to more than {} nodes", self.n_nodes_max);
            return Err(if once { Why(why) } else { Why::reported() });
        }
        let mut inputs = Vec::with_capacity(node.input.len());
        for name in &node.input {
            let v = match name.as_str() {
                "" => None,
                name => match scope.get(name) {
                    Some(v) if self.has_failed(v) => return Err(Why::reported()),
                    Some(v) => Some(v),
                    None => return Err(Why(format!("it reads `{name}`, which nothing makes"))),
                },
            };
            inputs.push(v);
        }
        let attrs = Attributes::of(&node.attribute, &scope.attrs);
        let domain = if node.domain == "ai.onnx" { "" } else { node.domain.as_str() };
        let version = scope.version(domain);
        if domain.is_empty() && !inputs.is_empty() {
            let lits = inputs.iter().map(|v| match v {
                None => Some(None),
                Some(v) => self.lit(*v).map(Some),
            });
            let lits: Option<Vec<Option<Lit>>> = lits.collect();
            let folded = lits.and_then(|lits| fold(&node.op_type, &attrs, &lits, version));
            if let Some((lit, tensor)) = folded.and_then(|l| Some((l.clone(), l.tensor()?))) {
                let name = node.output.first().map_or("", String::as_str);
                return Ok(vec![Some(self.constant(name, lit.elem, tensor))]);
            }
        }
        if let Some(import) = ops::find(domain, &node.op_type) {
            let before = self.graph.n_values();
            let mut cx = Cx::new(self, node, attrs, inputs, version, scope);
            let outs = import(&mut cx)?;
            return Ok(self.bind(node, outs, before));
        }
        if let Some(&f) = self.functions.get(&(node.domain.as_str(), node.op_type.as_str())) {
            return self.call(f, &inputs, attrs, scope.depth);
        }
        Err(Why(ops::missing(domain, &node.op_type)))
    }

    /// Names what a node made after its outputs.
    fn bind(&mut self, node: &NodeProto, outs: Vec<Out>, before: usize) -> Vec<Option<Val>> {
        let mut all = Vec::with_capacity(outs.len());
        for (i, out) in outs.into_iter().enumerate() {
            let name = node.output.get(i).map_or("", String::as_str);
            all.push(match out {
                Out::Value(value, elem) => {
                    let new = value.index() >= before
                        && matches!(self.graph.value(value).def, Def::Node(..));
                    if new && !name.is_empty() {
                        self.graph.rename(value, "");
                        let free = self.graph.unique_name(&word(name));
                        self.graph.rename(value, &free);
                    }
                    Some(self.computed(name, elem, value))
                }
                Out::Constant(tensor, elem) => Some(self.constant(name, elem, tensor)),
                Out::Same(v) => Some(v),
                Out::Absent => None,
            });
        }
        all
    }

    /// A function of the model's own: its nodes, on these inputs.
    fn call(
        &mut self,
        f: &'m FunctionProto,
        inputs: &[Option<Val>],
        attrs: Attributes<'m>,
        depth: usize,
    ) -> Result<Vec<Option<Val>>, Why> {
        if depth >= DEPTH_MAX {
            return Err(Why(format!("functions call functions {DEPTH_MAX} deep")));
        }
        let attrs = attrs.or(&f.attribute_proto);
        let names = HashMap::new();
        let mut scope =
            Scope { names, outer: None, attrs, opsets: &f.opset_import, depth: depth + 1 };
        for (name, v) in f.input.iter().zip(inputs) {
            if let Some(v) = v {
                scope.insert(name, *v);
            }
        }
        self.nodes(&f.node, &mut scope);
        let made = f.output.iter().map(|name| scope.get(name));
        let made: Vec<Option<Val>> = made.collect();
        match made.iter().flatten().any(|&v| self.has_failed(v)) {
            true => Err(Why::reported()),
            false => Ok(made),
        }
    }

    /// The graph inside a node: its outputs on these inputs.
    pub fn subgraph(
        &mut self,
        graph: &'m GraphProto,
        inputs: &[Val],
        outer: &Scope<'_, 'm>,
    ) -> Result<Vec<Val>, Why> {
        let (names, attrs) = (HashMap::new(), outer.attrs.clone());
        let (opsets, depth) = (outer.opsets, outer.depth);
        let mut scope = Scope { names, outer: Some(outer), attrs, opsets, depth };
        self.initializers(graph, &mut scope);
        for (info, &v) in graph.input.iter().zip(inputs) {
            scope.insert(&info.name, v);
        }
        self.nodes(&graph.node, &mut scope);
        let mut outputs = Vec::new();
        for info in &graph.output {
            let v = scope.get(&info.name);
            let v = v.ok_or_else(|| {
                Why(format!("its graph returns `{}`, which nothing makes", info.name))
            })?;
            if self.has_failed(v) {
                return Err(Why::reported());
            }
            outputs.push(v);
        }
        Ok(outputs)
    }
}

/// A node as messages name it.
fn place(node: &NodeProto) -> String {
    let op = match node.domain.as_str() {
        "" | "ai.onnx" => node.op_type.clone(),
        domain => format!("{domain}.{}", node.op_type),
    };
    match (node.name.as_str(), node.output.iter().find(|o| !o.is_empty())) {
        ("", Some(output)) => format!("{op} that makes `{output}`"),
        ("", None) => op,
        (name, _) => format!("{op} `{name}`"),
    }
}
