//! The blocks and operations of a package as nodes.
//!
//! Constants that only say how an op works (an axis, strides) become its attributes, as the ir
//! declares them. An op that the ir does not declare, or that does not fit its declaration, is
//! kept whole, and so is everything it reads; in the second case a finding says why.

use std::collections::{HashMap, HashSet};

use russet_ir::ops::{Const, Opaque};
use russet_ir::{BlockId, Finding, Graph, NodeId, Op, Origin, Tensor, Type, Value};

use super::fit::{Fit, Operand, fit};
use super::links::FunctionLinks;
use super::names::Names;
use super::read::Decoder;
use super::{proto, value};
use crate::Error;

/// Nesting of blocks beyond which a program is refused.
const DEPTH_MAX: usize = 24;

impl Decoder<'_> {
    /// The function `graph`, whose inputs and nodes are still to come.
    pub(super) fn body(
        &mut self,
        graph: Graph,
        inputs: Vec<(String, Type)>,
        block: &proto::Block,
    ) -> Result<Graph, Error> {
        let mut plan = Plan::default();
        self.plan(block, &mut plan, 0)?;
        let attributes_only = plan.attributes.difference(&plan.values).cloned().collect();
        let mut reading = Reading {
            graph,
            scope: Scope::default(),
            names: Names::default(),
            attributes_only,
            constants: plan.constants.into_iter(),
            operations: HashMap::new(),
            made_for: HashMap::new(),
        };
        for (input, ty) in inputs {
            let v = reading.graph.add_input(&reading.names.unique(&input), ty);
            reading.scope.set(input, Entry::Value(v));
        }
        self.block(&mut reading, block, BlockId::BODY)?;
        let Reading { graph, operations, made_for, .. } = reading;
        let links = FunctionLinks { graph: graph.clone(), operations, made_for };
        self.links.insert(graph.name.clone(), links);
        Ok(graph)
    }

    /// Decodes every constant and finds those that are read as values.
    fn plan(&mut self, block: &proto::Block, plan: &mut Plan, depth: usize) -> Result<(), Error> {
        if depth > DEPTH_MAX {
            return Err(Error::malformed(self.file, None, "blocks are nested too deeply"));
        }
        let mark = plan.scope.mark();
        for input in &block.inputs {
            plan.scope.set(input.name.clone(), None);
        }
        for op in &block.operations {
            let at = place(op);
            if op.r#type == "const" {
                let Some(val) = op.attributes.get("val") else {
                    return Err(Error::malformed(self.file, Some(at), "it has no `val`"));
                };
                let tensor = self.tensor(val, at)?;
                plan.constants.push(tensor.clone());
                plan.scope.set(at.to_owned(), Some(tensor));
                continue;
            }
            let mut arguments = Vec::new();
            for (param, argument) in op.inputs.sorted() {
                let mut operands = Vec::new();
                for binding in &argument.arguments {
                    let constant = match &binding.bound {
                        Some(proto::Bound::Name(n)) => plan.scope.get(n).cloned().flatten(),
                        Some(proto::Bound::Value(v)) => Some(self.tensor(v, at)?),
                        None => None,
                    };
                    operands.push(Operand { value: Some(plan.any), constant });
                }
                arguments.push((param.clone(), operands));
            }
            let fit = fit(&op.r#type, &arguments, self.opset);
            for (param, argument) in op.inputs.sorted() {
                let names = argument.arguments.iter().filter_map(|b| match &b.bound {
                    Some(proto::Bound::Name(n)) => Some(n.clone()),
                    _ => None,
                });
                match &fit {
                    Fit::Declared(_, attrs) if attrs.contains(param) => {
                        plan.attributes.extend(names);
                    }
                    _ => plan.values.extend(names),
                }
            }
            for inner in &op.blocks {
                self.plan(inner, plan, depth + 1)?;
            }
            for output in &op.outputs {
                plan.scope.set(output.name.clone(), None);
            }
        }
        plan.values.extend(block.outputs.iter().cloned());
        plan.scope.leave(mark);
        Ok(())
    }

    fn tensor(&mut self, v: &proto::Value, at: &str) -> Result<Tensor, Error> {
        let wrong = |why: String| Error::malformed(self.file, Some(at), why);
        let ty = value::decode_type(v.r#type.as_ref(), at).map_err(wrong)?;
        match &v.contents {
            Some(proto::Contents::Immediate(i)) => value::decode_immediate(&ty, i).map_err(wrong),
            Some(proto::Contents::BlobFile(reference)) => {
                let Some((dtype, shape)) =
                    ty.tensor().and_then(|t| Some((t.dtype, t.fixed_shape()?)))
                else {
                    return Err(wrong(format!("a weight of type {ty} cannot be")));
                };
                self.weights.tensor(reference, dtype, shape, at)
            }
            None => Err(wrong("it has neither a value nor a place in the weight file".into())),
        }
    }

    fn block(&mut self, r: &mut Reading, block: &proto::Block, id: BlockId) -> Result<(), Error> {
        let mark = r.scope.mark();
        for input in &block.inputs {
            let name = r.names.unique(&input.name);
            let ty = value::decode_type(input.r#type.as_ref(), &name);
            let ty = ty.map_err(|e| Error::malformed(self.file, Some(&input.name), e))?;
            let v = r.graph.add_block_input(id, &name, ty);
            r.scope.set(input.name.clone(), Entry::Value(v));
        }
        for (i, op) in block.operations.iter().enumerate() {
            let before = r.graph.block(id).nodes.len();
            self.operation(r, op, id)?;
            let made = &r.graph.block(id).nodes[before..];
            if let (Some((&node, constants)), BlockId::BODY) = (made.split_last(), id) {
                r.operations.insert(node, i);
                r.made_for.extend(constants.iter().map(|&c| (c, i)));
            }
        }
        let mut outputs = Vec::new();
        for name in &block.outputs {
            match r.scope.get(name) {
                Some(Entry::Value(v)) => outputs.push(*v),
                _ => return Err(Error::malformed(self.file, Some(name), "nothing defines it")),
            }
        }
        r.graph.set_block_outputs(id, outputs);
        r.scope.leave(mark);
        Ok(())
    }

    fn operation(
        &mut self,
        r: &mut Reading,
        op: &proto::Operation,
        block: BlockId,
    ) -> Result<(), Error> {
        let file = self.file;
        let at = place(op);
        if op.r#type == "const" {
            let val = r.constants.next().expect("the plan has every constant, in this order");
            let entry = match r.attributes_only.contains(at) {
                true => Entry::Attribute(val),
                false => Entry::Value(r.constant(block, at, val)),
            };
            r.scope.set(at.to_owned(), entry);
            return Ok(());
        }
        let mut arguments = Vec::new();
        for (param, argument) in op.inputs.sorted() {
            let mut operands = Vec::new();
            for binding in &argument.arguments {
                operands.push(match &binding.bound {
                    Some(proto::Bound::Name(n)) => match r.scope.get(n) {
                        Some(Entry::Value(v)) => {
                            Operand { value: Some(*v), constant: r.graph.constant(*v).cloned() }
                        }
                        Some(Entry::Attribute(t)) => {
                            Operand { value: None, constant: Some(t.clone()) }
                        }
                        None => {
                            let why = format!("it reads `{n}`, which nothing before it defines");
                            return Err(Error::malformed(file, Some(at), why));
                        }
                    },
                    Some(proto::Bound::Value(v)) => {
                        Operand { value: None, constant: Some(self.tensor(v, at)?) }
                    }
                    None => {
                        let why = format!("`{param}` is bound to nothing");
                        return Err(Error::malformed(file, Some(at), why));
                    }
                });
            }
            arguments.push((param.clone(), operands));
        }
        // The constants of a compressed weight are attributes before iOS 18. Those of other ops
        // are notes of a compiler, which stay with the source.
        for (param, v) in op.attributes.sorted() {
            if param == "name" || !op.r#type.starts_with("constexpr_") {
                continue;
            }
            let operand = Operand { value: None, constant: Some(self.tensor(v, at)?) };
            arguments.push((param.clone(), vec![operand]));
        }
        let mut blocks = Vec::new();
        for inner in &op.blocks {
            let id = r.graph.add_block();
            self.block(r, inner, id)?;
            blocks.push(id);
        }
        let names: Vec<String> = op.outputs.iter().map(|o| r.names.unique(&o.name)).collect();
        let mut types = Vec::new();
        for (output, name) in op.outputs.iter().zip(&names) {
            let ty = value::decode_type(output.r#type.as_ref(), name);
            types.push(ty.map_err(|e| Error::malformed(file, Some(&output.name), e))?);
        }
        let mut fitted = fit(&op.r#type, &arguments, self.opset);
        while let Fit::NeedsNode(param) = &fitted {
            if !r.give_node(block, at, param, &mut arguments) {
                break;
            }
            fitted = fit(&op.r#type, &arguments, self.opset);
        }
        let declared = match fitted {
            Fit::Declared(declared, _) => match r.agrees(&declared, &types, &blocks) {
                Ok(()) => Some(declared),
                Err(why) => {
                    self.keep_whole(&r.graph.name, op, why);
                    None
                }
            },
            Fit::Misfit(why) => {
                self.keep_whole(&r.graph.name, op, why);
                None
            }
            Fit::NeedsNode(param) => {
                self.keep_whole(&r.graph.name, op, format!("`{param}` is not understood"));
                None
            }
            Fit::Undeclared => None,
        };
        let node = match declared {
            Some(declared) => declared,
            None => Op::Opaque(r.whole(block, op, arguments, types)),
        };
        let outputs = r.graph.push_node(block, node, &names, blocks, Origin::default());
        let outputs = outputs.map_err(|error| Error::Op {
            file: file.into(),
            at: at.into(),
            error: Box::new(error),
        })?;
        for (output, v) in op.outputs.iter().zip(outputs) {
            r.scope.set(output.name.clone(), Entry::Value(v));
        }
        Ok(())
    }

    fn keep_whole(&mut self, function: &str, op: &proto::Operation, why: String) {
        let at = place(op);
        self.findings.push(Finding {
            code: "kept-whole",
            message: format!("`{}` is kept as it is: {why}", op.r#type),
            place: format!("function {function}: {at}"),
            snippet: String::new(),
            help: None,
        });
    }
}

/// What an operation is called in errors: its first output, or itself when it has none, as
/// `write_state` has.
fn place(op: &proto::Operation) -> &str {
    op.outputs.first().map_or(&op.r#type, |o| &o.name)
}

/// A function under construction.
struct Reading {
    graph: Graph,
    scope: Scope<Entry>,
    names: Names,
    /// Constants that become attributes wherever they are read.
    attributes_only: HashSet<String>,
    /// Every constant, in order.
    constants: std::vec::IntoIter<Tensor>,
    /// As in [`FunctionLinks`].
    operations: HashMap<NodeId, usize>,
    made_for: HashMap<NodeId, usize>,
}

/// What a name stands for.
enum Entry {
    Value(Value),
    /// A constant that has no node of its own.
    Attribute(Tensor),
}

impl Reading {
    fn constant(&mut self, block: BlockId, name: &str, val: Tensor) -> Value {
        let names = [self.names.unique(name)];
        let op = Const { val }.into();
        let made = self.graph.push_node(block, op, &names, vec![], Origin::default());
        made.expect("a constant has no operands")[0]
    }

    /// Makes nodes of the inline constants of a parameter; `false` when it has none.
    fn give_node(
        &mut self,
        block: BlockId,
        at: &str,
        param: &str,
        arguments: &mut [(String, Vec<Operand>)],
    ) -> bool {
        let operands = arguments.iter_mut().filter(|a| a.0 == param).flat_map(|a| &mut a.1);
        let mut any = false;
        for operand in operands.filter(|o| o.value.is_none()) {
            let Some(t) = operand.constant.clone() else { continue };
            operand.value = Some(self.constant(block, &format!("{at}_{param}"), t));
            any = true;
        }
        any
    }

    /// Does the ir infer for `op` what the package states?
    fn agrees(&self, op: &Op, stated: &[Type], blocks: &[BlockId]) -> Result<(), String> {
        let inferred = self.graph.with_block_types(blocks, |t| op.infer(t));
        let inferred = inferred.map_err(|e| self.graph.op_error(op, e).to_string())?.0;
        if inferred.len() != stated.len() {
            return Err(format!("it has {} outputs, not {}", stated.len(), inferred.len()));
        }
        let differs = inferred.iter().zip(stated).find(|(i, s)| !i.0.agrees(s));
        differs.map_or(Ok(()), |(i, s)| Err(format!("it is stated as {s}, not as {}", i.0)))
    }

    /// The op with all its operands; those that have no node get one.
    fn whole(
        &mut self,
        block: BlockId,
        op: &proto::Operation,
        arguments: Vec<(String, Vec<Operand>)>,
        types: Vec<Type>,
    ) -> Opaque {
        let at = place(op);
        let mut operands = Vec::new();
        for (param, given) in arguments {
            let mut values = Vec::new();
            for operand in given {
                values.extend(match (operand.value, operand.constant) {
                    (Some(v), _) => Some(v),
                    (None, Some(t)) => Some(self.constant(block, &format!("{at}_{param}"), t)),
                    (None, None) => None,
                });
            }
            operands.push((param, values));
        }
        Opaque { name: op.r#type.clone(), operands, types }
    }
}

/// What is found out about a function before it is built.
struct Plan {
    /// Every constant, in order.
    constants: Vec<Tensor>,
    /// Names read where the ir has an attribute, and those read where it has a value.
    attributes: HashSet<String>,
    values: HashSet<String>,
    scope: Scope<Option<Tensor>>,
    /// Stands for every value: which one it is does not matter here.
    any: Value,
}

impl Default for Plan {
    fn default() -> Plan {
        let any = Graph::new("").push_const(Tensor::bool(true), "any");
        let (attributes, values) = Default::default();
        Plan { constants: Vec::new(), attributes, values, scope: Scope::default(), any }
    }
}

/// Names in nested blocks: what an inner one defines is forgotten when it ends.
struct Scope<T> {
    names: HashMap<String, T>,
    undo: Vec<(String, Option<T>)>,
}

impl<T> Default for Scope<T> {
    fn default() -> Scope<T> {
        Scope { names: HashMap::new(), undo: Vec::new() }
    }
}

impl<T> Scope<T> {
    fn get(&self, name: &str) -> Option<&T> {
        self.names.get(name)
    }

    fn set(&mut self, name: String, entry: T) {
        let before = self.names.insert(name.clone(), entry);
        self.undo.push((name, before));
    }

    fn mark(&self) -> usize {
        self.undo.len()
    }

    fn leave(&mut self, mark: usize) {
        for (name, before) in self.undo.drain(mark..).rev() {
            match before {
                Some(entry) => self.names.insert(name, entry),
                None => self.names.remove(&name),
            };
        }
    }
}
