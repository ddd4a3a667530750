//! Values by name of the graph, and the plain way to run a few of its nodes.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::BTreeMap;

use russet_ir::ops::{ListWrite, WhileLoop};
use russet_ir::{BlockId, DType, Dim, Graph, NodeId, Op, Symbol, Tensor, Type, Value};

use crate::ane::node;
use crate::kernels::rounding::Rounding;
use crate::ops::{Operands, checked_len, evaluate_with, gather_rows, list_written};
use crate::{Arithmetic, Array, ExecError, Numbers};

/// Arrays of a graph's values, by value. Constants are not among them: they are read when needed.
pub struct Env {
    values: Vec<Option<Array>>,
    /// Constants that blocks read, decoded once: a loop reads them again and again.
    constants: Vec<OnceCell<Array>>,
    /// Blocks that are being run, one within the other.
    depth: usize,
    rounding: Rounding,
}

/// Rounds of a loop beyond which it is taken for one that never ends.
const ROUNDS_MAX: usize = 1 << 22;

impl Env {
    /// An environment in f32 that holds the inputs only.
    pub fn new(graph: &Graph, inputs: &BTreeMap<String, Array>) -> Result<Env, ExecError> {
        Env::with(graph, inputs, Arithmetic::F32)
    }

    /// An environment in an arithmetic that holds the inputs only.
    pub fn with(
        graph: &Graph,
        inputs: &BTreeMap<String, Array>,
        arithmetic: Arithmetic,
    ) -> Result<Env, ExecError> {
        let rounding = arithmetic.rounding();
        let all = inputs.iter().map(|(name, a)| (name.as_str(), a)).collect();
        let fresh = checked_inputs(graph, &all)?;
        let mut env = Env::empty(graph, rounding);
        for (&v, fresh) in graph.inputs().iter().zip(fresh) {
            let given = || inputs.get(&graph.value(v).name).cloned();
            let array = fresh.or_else(given).expect("checked to be there");
            env.set(v, stored(array, rounding));
        }
        Ok(env)
    }

    /// An environment that holds nothing yet.
    pub(crate) fn empty(graph: &Graph, rounding: Rounding) -> Env {
        let constants = vec![OnceCell::new(); graph.n_values()];
        Env { values: vec![None; graph.n_values()], constants, depth: 0, rounding }
    }

    pub(crate) fn put(&mut self, v: Value, array: Array) {
        self.set(v, array);
    }

    pub fn get(&self, v: Value) -> Option<&Array> {
        self.values.get(v.index())?.as_ref()
    }

    pub(crate) fn take(&mut self, v: Value) -> Option<Array> {
        self.values.get_mut(v.index())?.take()
    }

    fn set(&mut self, v: Value, array: Array) {
        if self.values.len() <= v.index() {
            self.values.resize(v.index() + 1, None);
        }
        self.values[v.index()] = Some(array);
    }

    /// Forgets the values for which `keep` does not hold.
    pub fn retain(&mut self, keep: impl Fn(Value) -> bool) {
        let slots = self.values.iter_mut().enumerate();
        slots.filter(|(_, slot)| slot.is_some()).for_each(|(i, slot)| {
            if !keep(Value::from_index(i)) {
                *slot = None;
            }
        });
    }

    /// Runs these nodes in this order. Values they read must be here, or be constants.
    pub fn run(&mut self, graph: &Graph, nodes: &[NodeId]) -> Result<(), ExecError> {
        for &id in nodes {
            let node = graph.node(id);
            if node.op.is_const() {
                continue;
            }
            // Decoded where it is read; here only that it can be.
            if node.op.is_constexpr() {
                match node.outputs.iter().all(|&v| graph.weight(v).is_some()) {
                    true => continue,
                    false => {
                        let why = "its parts do not fit each other";
                        return Err(named(ExecError::unsupported(node.op.name(), why), graph, id));
                    }
                }
            }
            let made = match &node.op {
                Op::Cond(op) => {
                    let pred = self.read(graph, op.pred)?;
                    let block = node.blocks[usize::from(!truth(&pred)?)];
                    self.run_block(graph, block)?
                }
                Op::WhileLoop(op) => self.run_loop(graph, op, [node.blocks[0], node.blocks[1]])?,
                Op::WriteState(op) => {
                    let data = self.read(graph, op.data)?.into_owned();
                    self.set(op.input, data);
                    continue;
                }
                Op::ListWrite(op) => vec![self.list_write(graph, op, id)?],
                op => self.evaluate(graph, op).map_err(|e| named(e, graph, id))?,
            };
            for (&v, array) in node.outputs.iter().zip(made) {
                self.set(v, array);
            }
        }
        Ok(())
    }

    fn run_block(&mut self, graph: &Graph, block: BlockId) -> Result<Vec<Array>, ExecError> {
        let block = graph.block(block);
        self.depth += 1;
        let done = self.run(graph, &block.nodes);
        self.depth -= 1;
        done?;
        let output = |&v: &Value| self.read(graph, v).map(Cow::into_owned);
        block.outputs.iter().map(output).collect()
    }

    fn run_loop(
        &mut self,
        graph: &Graph,
        op: &WhileLoop,
        [condition, body]: [BlockId; 2],
    ) -> Result<Vec<Array>, ExecError> {
        let given = op.loop_vars.iter().map(|&v| self.read(graph, v).map(Cow::into_owned));
        let mut vars = given.collect::<Result<Vec<_>, _>>()?;
        for _ in 0..ROUNDS_MAX {
            let inputs = &graph.block(condition).inputs;
            inputs.iter().zip(&vars).for_each(|(&v, a)| self.set(v, a.clone()));
            let goes_on = self.run_block(graph, condition)?;
            if !goes_on.first().map_or(Ok(false), truth)? {
                return Ok(vars);
            }
            let inputs = &graph.block(body).inputs;
            inputs.iter().zip(vars).for_each(|(&v, a)| self.set(v, a));
            vars = self.run_block(graph, body)?;
        }
        Err(ExecError::unsupported("while_loop", format!("it did not end in {ROUNDS_MAX} rounds")))
    }

    /// Writes into the list itself when nobody else will read it: a loop that fills a list would
    /// otherwise copy it each time.
    fn list_write(
        &mut self,
        graph: &Graph,
        op: &ListWrite,
        id: NodeId,
    ) -> Result<Array, ExecError> {
        let only = graph.users(op.ls) == [id] && !graph.is_output(op.ls);
        let list = match self.values.get_mut(op.ls.index()).filter(|_| only) {
            Some(slot) => slot.take(),
            None => None,
        };
        let list = match list {
            Some(list) => list,
            None => self.read(graph, op.ls)?.into_owned(),
        };
        let get = |v: Value| self.read(graph, v);
        let operands = Operands { get: &get, rounding: self.rounding, op: "list_write" };
        list_written(&operands, list, op).map_err(|e| named(e, graph, id))
    }

    fn evaluate(&self, graph: &Graph, op: &Op) -> Result<Vec<Array>, ExecError> {
        if let Some((table, indices)) = table_lookup(graph, op)
            && let Some(indices) = self.get(indices)
        {
            return Ok(vec![stored(gather_rows(&table, indices)?, self.rounding)]);
        }
        let get = |v: Value| self.read(graph, v);
        let rounding = node::rounding(graph, op, self.rounding);
        evaluate_with(op, &Operands { get: &get, rounding, op: op.name() })
    }

    fn read(&self, graph: &Graph, v: Value) -> Result<Cow<'_, Array>, ExecError> {
        if self.depth > 0
            && self.get(v).is_none()
            && let Some(kept) = self.constants.get(v.index())
            && let Some(t) = graph.weight(v)
        {
            if let Some(array) = kept.get() {
                return Ok(Cow::Borrowed(array));
            }
            let array = decoded(&t, self.rounding)?;
            return Ok(Cow::Borrowed(kept.get_or_init(|| array)));
        }
        read(graph, v, |v| self.get(v), self.rounding)
    }
}

/// What a condition says.
fn truth(pred: &Array) -> Result<bool, ExecError> {
    let pred = pred.as_bool().and_then(|b| b.first().copied());
    pred.ok_or_else(|| ExecError::unsupported("a condition", "it is no bool"))
}

pub(crate) fn decoded(t: &Tensor, rounding: Rounding) -> Result<Array, ExecError> {
    let mut array = Array::from_tensor(t).ok_or(ExecError::DType { dtype: t.dtype })?;
    if let Numbers::F32(x) = &mut array.data {
        rounding.store_weight(x, t.is_compressed());
    }
    Ok(array)
}

/// A gather of whole rows of a constant table of floats.
pub(crate) fn table_lookup(graph: &Graph, op: &Op) -> Option<(Tensor, Value)> {
    let Op::Gather(op) = op else { return None };
    let table = graph.weight(op.x)?;
    let whole_rows = table.dtype.is_float() && op.axis == 0 && op.batch_dims == 0;
    (whole_rows && !table.shape.is_empty()).then_some((table, op.indices))
}

/// A value: a constant, or what `get` has.
fn read<'a>(
    graph: &Graph,
    v: Value,
    get: impl Fn(Value) -> Option<&'a Array>,
    rounding: Rounding,
) -> Result<Cow<'a, Array>, ExecError> {
    if let Some(array) = get(v) {
        return Ok(Cow::Borrowed(array));
    }
    if let Some(t) = graph.weight(v) {
        return decoded(&t, rounding).map(Cow::Owned);
    }
    let missing = || ExecError::unsupported(&graph.value(v).name, "its value was never computed");
    Err(missing())
}

/// What the arithmetic can hold of an array that comes from outside.
pub(crate) fn stored(mut array: Array, rounding: Rounding) -> Array {
    if let Numbers::F32(x) = &mut array.data {
        rounding.store_input(x);
    }
    array
}

/// Says at which value an op failed.
pub(crate) fn named(error: ExecError, graph: &Graph, id: NodeId) -> ExecError {
    match error {
        ExecError::Unsupported { op, why } => {
            let value = graph.node(id).outputs.first();
            let value = value.map_or_else(String::new, |&v| graph.value(v).name.clone());
            ExecError::Op { op, value, why }
        }
        other => other,
    }
}

/// One op whose operands are all constants.
pub fn evaluate(graph: &Graph, op: &Op) -> Result<Vec<Array>, ExecError> {
    let get = |v: Value| read(graph, v, |_| None, Rounding::F32);
    evaluate_with(op, &Operands { get: &get, rounding: Rounding::F32, op: op.name() })
}

/// One node on given values, in an arithmetic: what that op alone does to exact operands.
///
/// `value` gives every operand that is no constant. Nodes with blocks are not run.
pub fn evaluate_node(
    graph: &Graph,
    id: NodeId,
    arithmetic: Arithmetic,
    value: &dyn Fn(Value) -> Option<Array>,
) -> Result<Vec<Array>, ExecError> {
    let op = &graph.node(id).op;
    let outer = arithmetic.rounding();
    let rounding = node::rounding(graph, op, outer);
    if let Some((table, indices)) = table_lookup(graph, op)
        && let Some(indices) = value(indices)
    {
        return Ok(vec![stored(gather_rows(&table, &indices)?, rounding)]);
    }
    let get = |v: Value| match value(v) {
        Some(array) => Ok(Cow::Owned(stored(array, outer))),
        None => read(graph, v, |_| None, outer),
    };
    let operands = Operands { get: &get, rounding, op: op.name() };
    evaluate_with(op, &operands).map_err(|e| named(e, graph, id))
}

/// Checks that every input is there, of the right kind and an allowed shape. In the function's order:
/// nothing for one that is given, zeros for a state that is not.
pub(crate) fn checked_inputs(
    graph: &Graph,
    inputs: &BTreeMap<&str, &Array>,
) -> Result<Vec<Option<Array>>, ExecError> {
    let names: Vec<&str> = graph.inputs().iter().map(|&v| graph.value(v).name.as_str()).collect();
    if let Some(name) = inputs.keys().find(|n| !names.contains(n)) {
        let known = names.iter().map(ToString::to_string).collect();
        return Err(ExecError::UnknownInput { name: (*name).to_owned(), known });
    }
    let mut binding: BTreeMap<Symbol, u64> = BTreeMap::new();
    let mut fresh = Vec::new();
    for (&v, name) in graph.inputs().iter().zip(&names) {
        if let (Type::State(_), None) = (graph.ty(v), inputs.get(*name)) {
            fresh.push(Some(new_state(graph, v)?));
            continue;
        }
        let missing = || ExecError::MissingInput { name: (*name).to_owned() };
        let array = inputs.get(*name).ok_or_else(missing)?;
        check_input(graph, v, array, &mut binding)?;
        fresh.push(None);
    }
    let allowed = &graph.symbols.enumerated;
    if !allowed.is_empty() && !allowed.contains(&binding) {
        let rows: Vec<String> = allowed.iter().map(|b| format!("{:?}", b.values())).collect();
        let name = names.first().copied().unwrap_or_default().to_owned();
        let found = inputs.get(name.as_str()).map_or_else(Vec::new, |a| a.shape.clone());
        let why = format!("its length is none of those the model has: {}", rows.join(", "));
        return Err(ExecError::InputShape { name, found, why });
    }
    Ok(fresh)
}

/// A state before anything was written to it.
pub(crate) fn new_state(graph: &Graph, v: Value) -> Result<Array, ExecError> {
    let name = &graph.value(v).name;
    let Type::State(ty) = graph.ty(v) else {
        return Err(ExecError::unsupported(name, "it is no state"));
    };
    let shape = ty.fixed_shape().and_then(|s| s.into_iter().map(|n| n.try_into().ok()).collect());
    let shape: Vec<usize> =
        shape.ok_or_else(|| ExecError::unsupported(name, "a state has no unknown extents"))?;
    let n = checked_len(&shape)?;
    let data = match ty.dtype {
        DType::Bool => Numbers::Bool(vec![false; n]),
        d if d.is_float() => Numbers::F32(vec![0.0; n]),
        _ => Numbers::I32(vec![0; n]),
    };
    Ok(Array { shape, data })
}

fn check_input(
    graph: &Graph,
    v: Value,
    array: &Array,
    binding: &mut BTreeMap<Symbol, u64>,
) -> Result<(), ExecError> {
    let name = graph.value(v).name.clone();
    let (Type::Tensor(ty) | Type::State(ty)) = graph.ty(v) else {
        return Err(ExecError::unsupported(&name, "inputs other than tensors are not run yet"));
    };
    let (found, fits) = match &array.data {
        Numbers::F32(_) => ("floats", ty.dtype.is_float()),
        Numbers::I32(_) => ("integers", ty.dtype.is_int()),
        Numbers::Bool(_) => ("booleans", ty.dtype == DType::Bool),
    };
    if !fits {
        let expected = ty.dtype.to_string();
        return Err(ExecError::InputType { name, found: found.into(), expected });
    }
    let bad = |why: String| ExecError::InputShape {
        name: graph.value(v).name.clone(),
        found: array.shape.clone(),
        why,
    };
    if array.shape.len() != ty.rank() {
        return Err(bad(format!("{ty} has rank {}", ty.rank())));
    }
    for (i, (&n, dim)) in array.shape.iter().zip(&ty.shape).enumerate() {
        let n = n as u64;
        let expected = match dim {
            Dim::Fixed(d) => *d,
            Dim::Symbol(s) => *binding.entry(s.clone()).or_insert(n),
        };
        if n != expected {
            return Err(bad(format!("axis {i} must be {expected}")));
        }
        if n == 0 {
            return Err(bad(format!("axis {i} is empty")));
        }
        if let Dim::Symbol(s) = dim
            && let Some((low, high)) = graph.symbols.ranges.get(s)
            && (n < *low || high.is_some_and(|h| n > h))
        {
            return Err(bad(format!("axis {i} is outside the model's range")));
        }
    }
    Ok(())
}
