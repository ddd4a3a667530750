//! What is not arithmetic: loops, lists, states, labels, and the buffers of compiled programs.

use super::structure::same_types;
use crate::infer::{Outputs, TypeError, Types};
use crate::{DType, Dim, OpDef, Symbol, TensorType, Type, Value, op};

op! {
    /// Runs the second block on `loop_vars`, then on what it returned, for as long as the first
    /// block, given the same, returns true.
    "while_loop" since Ios15 => WhileLoop { loop_vars: Vec<Value> }
}

impl OpDef for WhileLoop {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let (Some(condition), Some(body)) = (types.block(0), types.block(1)) else {
            return Err(TypeError::param("`while_loop` has two blocks"));
        };
        let is_bool = |t: &Type| {
            t.tensor().is_some_and(|t| t.dtype == DType::Bool && t.n_elements() == Some(1))
        };
        if condition.len() != 1 || !is_bool(&condition[0]) {
            return Err(TypeError::param("its first block returns other than one bool"));
        }
        let given: Vec<Type> = self.loop_vars.iter().map(|&v| types.ty(v).clone()).collect();
        if !same_types(body, &given) {
            return Err(TypeError::param("its body returns other types than it takes"));
        }
        Ok(Outputs(body.iter().map(|t| (t.clone(), None)).collect()))
    }
}

op! {
    /// An empty list of `init_length` tensors of `elem_shape`; a name there stands for an extent
    /// that is not known yet.
    "make_list" since Ios15 => MakeList {
        init_length: Option<i32>;
        dynamic_length: bool = true;
        elem_shape: Vec<Value>;
        dtype: DType = DType::F32;
    }
}
op! {
    /// The number of tensors in a list.
    "list_length" since Ios15 => ListLength { ls: Value }
}
op! {
    /// The list with `value` at `index`; one that grows is made long enough.
    "list_write" since Ios15 => ListWrite { ls: Value; index: Value; value: Value }
}
op! {
    /// The tensor at `index`.
    "list_read" since Ios15 => ListRead { ls: Value; index: Value }
}
op! {
    /// The tensors at `indices` `[n]`, stacked.
    "list_gather" since Ios15 => ListGather { ls: Value; indices: Value }
}
op! {
    /// The list with the rows of `value` `[n, ..]` at `indices` `[n]`.
    "list_scatter" since Ios15 => ListScatter { ls: Value; indices: Value; value: Value }
}

/// The type of a list's elements and its length.
fn list<'a>(types: &Types<'a>, at: Value) -> Result<(&'a TensorType, Option<u64>), TypeError> {
    match types.ty(at) {
        Type::List(element, n) => match &**element {
            Type::Tensor(t) => Ok((t, *n)),
            found => Err(TypeError::NotTensor { at, found: found.clone() }),
        },
        found => Err(TypeError::NotList { at, found: found.clone() }),
    }
}

fn index(types: &Types<'_>, at: Value, rank: usize) -> Result<(), TypeError> {
    let found = types.int(at)?.rank();
    // A scalar is also written as a tensor of one.
    if found == rank || (rank == 0 && types.tensor(at)?.n_elements() == Some(1)) {
        return Ok(());
    }
    Err(TypeError::Rank { at, found, expected: if rank == 0 { "0" } else { "1" } })
}

/// A list with elements of `value`'s type, if it may hold them.
fn with_elements(
    types: &Types<'_>,
    ls: Value,
    (at, value): (Value, TensorType),
) -> Result<Outputs, TypeError> {
    let (element, n) = list(types, ls)?;
    if element.dtype != value.dtype || element.rank() != value.rank() {
        let found = value.dtype;
        return Err(TypeError::MixedDTypes { at, found, expected: element.dtype });
    }
    for (axis, (e, v)) in element.shape.iter().zip(&value.shape).enumerate() {
        if e.fixed().zip(v.fixed()).is_some_and(|(e, v)| e != v) {
            let (found, expected) = (v.clone(), e.clone());
            return Err(TypeError::Extent { at, axis, found, expected });
        }
    }
    Ok(Outputs(vec![(Type::List(Box::new(element.clone().into()), n), None)]))
}

impl OpDef for MakeList {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let mut shape = Vec::new();
        for &v in &self.elem_shape {
            // A shape is written as scalars, as vectors, or with names among the numbers.
            let constant = types.constant(v).ok_or(TypeError::NotConstant { at: v })?;
            if let Some(names) = constant.as_strings() {
                shape.extend(names.iter().map(|n| Dim::Symbol(Symbol::new(&word(n)))));
                continue;
            }
            let dims = types.dims(v).ok_or(TypeError::NotConstant { at: v })?;
            shape.extend(dims);
        }
        let absurd = |d: &Dim| d.fixed().is_some_and(|n| n > i32::MAX as u64);
        if shape.len() > 5 || shape.iter().any(absurd) {
            return Err(TypeError::param("elem_shape is no shape of a tensor"));
        }
        let n = match self.init_length {
            None => None,
            Some(n) => {
                let n = u64::try_from(n);
                Some(n.map_err(|_| TypeError::param("a negative init_length"))?)
            }
        };
        let element = TensorType { dtype: self.dtype, shape };
        let n = n.filter(|_| !self.dynamic_length);
        Ok(Outputs(vec![(Type::List(Box::new(element.into()), n), None)]))
    }
}

/// What of a name the name of a symbol may hold.
fn word(name: &str) -> String {
    let part = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    format!("n_{}", name.chars().map(part).collect::<String>())
}

impl OpDef for ListLength {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let (_, n) = list(types, self.ls)?;
        Ok(Outputs::dims(TensorType::scalar(DType::I32), n.map(|n| vec![Dim::Fixed(n)])))
    }
}

impl OpDef for ListWrite {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        index(types, self.index, 0)?;
        let value = types.tensor(self.value)?.clone();
        with_elements(types, self.ls, (self.value, value))
    }
}

impl OpDef for ListRead {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        index(types, self.index, 0)?;
        Ok(list(types, self.ls)?.0.clone().into())
    }
}

impl OpDef for ListGather {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        index(types, self.indices, 1)?;
        let (element, _) = list(types, self.ls)?;
        let mut shape = vec![types.tensor(self.indices)?.shape[0].clone()];
        shape.extend(element.shape.iter().cloned());
        Ok(TensorType { dtype: element.dtype, shape }.into())
    }
}

impl OpDef for ListScatter {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        index(types, self.indices, 1)?;
        let value = types.tensor(self.value)?;
        let Some((n, rest)) = value.shape.split_first() else {
            return Err(TypeError::Rank { at: self.value, found: 0, expected: "at least 1" });
        };
        let indices = &types.tensor(self.indices)?.shape[0];
        if n.fixed().zip(indices.fixed()).is_some_and(|(a, b)| a != b) {
            let (found, expected) = (n.clone(), indices.clone());
            return Err(TypeError::Extent { at: self.value, axis: 0, found, expected });
        }
        let row = TensorType { dtype: value.dtype, shape: rest.to_vec() };
        with_elements(types, self.ls, (self.value, row))
    }
}

op! {
    /// The tensor a state holds.
    "read_state" since Ios18 => ReadState { input: Value }
}
op! {
    /// Makes a state hold `data`; it has no output.
    "write_state" since Ios18 => WriteState { input: Value; data: Value }
}

fn state<'a>(types: &Types<'a>, at: Value) -> Result<&'a TensorType, TypeError> {
    match types.ty(at) {
        Type::State(t) => Ok(t),
        found => Err(TypeError::NotState { at, found: found.clone() }),
    }
}

impl OpDef for ReadState {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        Ok(state(types, self.input)?.clone().into())
    }
}

impl OpDef for WriteState {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let (held, data) = (state(types, self.input)?, types.tensor(self.data)?);
        if !held.agrees(data) {
            let (at, found) = (self.data, data.clone());
            return Err(TypeError::Broadcast { at, found, other: held.clone() });
        }
        Ok(Outputs(Vec::new()))
    }
}

op! {
    /// The label of the largest of `probabilities`, and the probability of each label.
    "classify" since Ios15 => Classify { probabilities: Value; classes: Value }
}

impl OpDef for Classify {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let p = types.float(self.probabilities)?;
        let classes = types.tensor(self.classes)?;
        if !matches!(classes.dtype, DType::String | DType::I64) {
            let (at, found) = (self.classes, classes.dtype);
            return Err(TypeError::DType { at, found, expected: "a string or int64" });
        }
        if p.n_elements().zip(classes.n_elements()).is_some_and(|(p, c)| p != c) {
            return Err(TypeError::param("there are not as many probabilities as classes"));
        }
        let label = Type::from(TensorType::scalar(classes.dtype));
        let number = Type::from(TensorType::scalar(DType::F64));
        let dict = Type::Dict(Box::new(label.clone()), Box::new(number));
        Ok(Outputs(vec![(label, None), (dict, None)]))
    }
}

op! {
    /// The tensor in a buffer of a compiled program: the same numbers, whatever its strides.
    "tensor_buffer_to_tensor" since Ios15 => TensorBufferToTensor { input: Value }
}
op! {
    /// A tensor put into a buffer of a compiled program, of these strides (in elements).
    "tensor_to_tensor_buffer" since Ios15 => TensorToTensorBuffer {
        input: Value; interleave_factors: Option<Value>; strides: Option<Value>
    }
}

impl OpDef for TensorBufferToTensor {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        Ok(types.tensor(self.input)?.clone().into())
    }
}

impl OpDef for TensorToTensorBuffer {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        Ok(types.tensor(self.input)?.clone().into())
    }
}
