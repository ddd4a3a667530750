//! One run in progress: the steps' values and the ops with a path of their own.

use std::borrow::Cow;
use std::sync::Arc;

use russet_ir::ops::{
    Identity, LayerNorm, Matmul, ReadState, Split, TensorBufferToTensor, TensorToTensorBuffer,
};
use russet_ir::{NodeId, Op, Type, Value};

use super::buffer::{Buffer, Matrices, Slot};
use super::{Kind, Session, Step};
use crate::ane::node;
use crate::ane::special::before_softmax_along;
use crate::env::{Env, decoded, stored, table_lookup};
use crate::kernels::binary::{Binary, broadcast_shape, combine_views};
use crate::kernels::gemm::{Activation, Epilogue, Product, Rows, multiply_each};
use crate::kernels::layer_norm::{Affine, layer_norm};
use crate::kernels::rounding::Rounding;
use crate::kernels::softmax::softmax;
use crate::kernels::strided::{self, Axis};
use crate::kernels::unary;
use crate::ops::{
    Operands, checked_len, evaluate_with, gather_rows, reshape, split_sizes, transpose_axes,
    unary_kernel,
};
use crate::{Array, ExecError};

/// Buffers nobody uses at the moment.
#[derive(Default)]
pub(super) struct Pool(Vec<Vec<f32>>);

/// Buffers kept at most: more than any function holds at once would be a leak.
const POOL_LEN_MAX: usize = 256;

impl Pool {
    /// A buffer of `n` floats, of any content; one of exactly this size needs no filling.
    fn take(&mut self, n: usize) -> Vec<f32> {
        let fits = |v: &Vec<f32>| v.capacity() >= n && v.capacity() / 4 <= n.max(256);
        let exact = self.0.iter().rposition(|v| v.len() == n);
        let mut v = match exact.or_else(|| self.0.iter().rposition(fits)) {
            Some(i) => self.0.swap_remove(i),
            None => Vec::with_capacity(n),
        };
        v.resize(n, 0.0);
        v
    }

    fn keep(&mut self, v: Vec<f32>) {
        if self.0.len() < POOL_LEN_MAX {
            self.0.push(v);
        }
    }
}

pub(super) struct Run<'s> {
    pub(super) session: &'s Session,
    slots: Vec<Slot>,
    pool: Pool,
    /// Values the current step is the last to read.
    last_uses: &'s [Value],
    rounding: Rounding,
}

impl<'s> Run<'s> {
    pub fn new(session: &'s Session, pool: Pool) -> Run<'s> {
        let slots = vec![Slot::Empty; session.graph.n_values()];
        Run { session, slots, pool, last_uses: &[], rounding: session.rounding }
    }

    /// Every buffer, to be used by the next run.
    pub fn into_pool(mut self) -> Pool {
        for i in 0..self.slots.len() {
            self.release(Value::from_index(i));
        }
        self.pool
    }

    /// Of the op that is being run.
    pub fn rounding(&self) -> Rounding {
        self.rounding
    }

    pub fn step(&mut self, step: &'s Step) -> Result<(), ExecError> {
        self.last_uses = &step.last_uses;
        self.rounding = self.session.rounding;
        match &step.kind {
            Kind::Product(p) => p.run(self),
            Kind::Attention(a) if a.run(self)? => Ok(()),
            Kind::Attention(a) => a.nodes.iter().try_for_each(|&id| self.op(id)),
            Kind::Conv(c) if c.run(self)? => Ok(()),
            Kind::Conv(c) => [c.conv, step.node].into_iter().try_for_each(|id| self.op(id)),
            Kind::Plain => self.op(step.node),
        }
    }

    fn op(&mut self, id: NodeId) -> Result<(), ExecError> {
        let node = self.session.graph.node(id);
        self.rounding = node::rounding(&self.session.graph, &node.op, self.session.rounding);
        match self.fast(&node.op, &node.outputs)? {
            true => Ok(()),
            false => self.plain(id),
        }
    }

    pub fn take(&mut self, n: usize) -> Vec<f32> {
        self.pool.take(n)
    }

    /// A buffer that was taken and holds no value.
    pub fn give_back(&mut self, data: Vec<f32>) {
        self.pool.keep(data);
    }

    pub fn release(&mut self, v: Value) {
        if let Slot::Float(buffer) = std::mem::replace(&mut self.slots[v.index()], Slot::Empty)
            && let Ok(data) = Arc::try_unwrap(buffer.data)
        {
            self.pool.keep(data);
        }
    }

    /// The array of a value nobody reads any more, without copying it if nobody shares it.
    pub fn take_array(&mut self, v: Value) -> Result<Array, ExecError> {
        if let Slot::Float(b) = &self.slots[v.index()]
            && b.contiguous().is_some_and(|x| x.len() == b.data.len())
            && let Slot::Float(b) = std::mem::replace(&mut self.slots[v.index()], Slot::Empty)
        {
            let shape = b.shape();
            let data = Arc::try_unwrap(b.data).unwrap_or_else(|shared| shared.to_vec());
            return Ok(Array::f32(shape, data));
        }
        self.array(v).map(Cow::into_owned)
    }

    pub fn set_slot(&mut self, v: Value, slot: Slot) {
        self.slots[v.index()] = slot;
    }

    pub fn put(&mut self, v: Value, buffer: Buffer) {
        self.set_slot(v, Slot::Float(buffer));
    }

    pub fn fail(&self, why: impl Into<String>) -> ExecError {
        ExecError::unsupported("", why)
    }

    /// The view that `v` is; `None` when it is not of floats.
    pub fn float(&self, v: Value) -> Option<Buffer> {
        match (&self.session.constants[v.index()], &self.slots[v.index()]) {
            (Slot::Float(buffer), _) | (Slot::Empty, Slot::Float(buffer)) => Some(buffer.clone()),
            _ => None,
        }
    }

    pub fn array(&self, v: Value) -> Result<Cow<'_, Array>, ExecError> {
        let slot = match &self.session.constants[v.index()] {
            Slot::Empty => &self.slots[v.index()],
            constant => constant,
        };
        match slot {
            Slot::Other(array) => Ok(Cow::Borrowed(array)),
            Slot::Float(b) => {
                let mut data = vec![0.0; b.n_elements()];
                strided::copy(&b.data, b.start, b.axes.clone(), &mut data);
                Ok(Cow::Owned(Array::f32(b.shape(), data)))
            }
            Slot::Empty => match self.session.graph.weight(v) {
                Some(t) => decoded(&t, self.session.rounding).map(Cow::Owned),
                None => Err(self.fail("a value was never computed")),
            },
        }
    }

    /// Integers of a small operand, such as a shape.
    pub(super) fn ints(&self, v: Value) -> Result<Vec<i64>, ExecError> {
        let array = self.array(v)?;
        let ints = array.as_i32().ok_or_else(|| self.fail("an operand is not of integers"))?;
        Ok(ints.iter().map(|&i| i.into()).collect())
    }

    /// The elements of `v` in a buffer of their own, dense in memory, and their axes.
    ///
    /// The buffer of a value that is read for the last time is taken when nobody else holds it.
    pub(super) fn owned(&mut self, v: Value) -> Option<(Vec<f32>, Vec<Axis>)> {
        let x = self.float(v)?;
        let dense = x.dense().is_some();
        let (n, axes, start) = (x.n_elements(), x.axes.clone(), x.start);
        if dense && x.data.len() == n && self.last_uses.contains(&v) {
            self.slots[v.index()] = Slot::Empty;
            return match Arc::try_unwrap(x.data) {
                Ok(data) => Some((data, axes)),
                Err(shared) => {
                    let mut data = self.take(n);
                    data.copy_from_slice(&shared);
                    Some((data, axes))
                }
            };
        }
        let mut data = self.take(n);
        if dense {
            data.copy_from_slice(&x.data[start..][..n]);
            return Some((data, axes));
        }
        strided::copy(&x.data, start, axes, &mut data);
        Some((data, strided::axes(&x.shape())))
    }

    /// The result of an op that keeps the axes of its operand.
    fn put_owned(&mut self, v: Value, mut data: Vec<f32>, axes: Vec<Axis>) {
        self.rounding().store(&mut data);
        self.put(v, Buffer { axes, ..Buffer::new(data, &[]) });
    }

    /// Ops with a path of their own; `false` when the plain one must do.
    fn fast(&mut self, op: &Op, outputs: &[Value]) -> Result<bool, ExecError> {
        let Some(&out) = outputs.first() else { return Ok(false) };
        if let Some((kernel, v)) = unary_kernel(op) {
            let Some((mut data, axes)) = self.owned(v) else { return Ok(false) };
            unary::map_as(kernel, &mut data, self.rounding());
            self.put_owned(out, data, axes);
            return Ok(true);
        }
        match op {
            Op::Add(op) => self.binary(Binary::Add, op.x, op.y, out),
            Op::Sub(op) => self.binary(Binary::Sub, op.x, op.y, out),
            Op::Mul(op) => self.binary(Binary::Mul, op.x, op.y, out),
            Op::RealDiv(op) => self.binary(Binary::Div, op.x, op.y, out),
            Op::Softmax(op) => {
                let Some((mut data, axes)) = self.owned(op.x) else { return Ok(false) };
                let Some(axis) = russet_ir::resolve_axis(op.axis, axes.len()) else {
                    return Err(self.fail(format!("axis {} of rank {}", op.axis, axes.len())));
                };
                let (n, inner) = line(&axes, axis);
                before_softmax_along(&mut data, n, inner, self.rounding());
                softmax(&mut data, n, inner);
                self.put_owned(out, data, axes);
                Ok(true)
            }
            Op::LayerNorm(op) => self.layer_norm(op, out),
            Op::Matmul(op) => self.matmul(op, out),
            Op::Reshape(op) => {
                let target = self.ints(op.shape)?;
                let Some(x) = self.float(op.x) else { return Ok(false) };
                let shape = reshape(&x.shape(), &target);
                let shape = shape.ok_or_else(|| self.fail(format!("no shape {target:?}")))?;
                self.reshaped(x, out, &shape);
                Ok(true)
            }
            Op::Squeeze(_) | Op::ExpandDims(_) => self.unit_axes(op, out),
            Op::Transpose(op) => {
                let Some(x) = self.float(op.x) else { return Ok(false) };
                let perm = transpose_axes(&op.perm, x.axes.len());
                let perm = perm.ok_or_else(|| self.fail(format!("perm {:?}", op.perm)))?;
                self.put(out, x.permuted(&perm));
                Ok(true)
            }
            Op::Split(op) => self.split(op, outputs),
            Op::Identity(Identity { x: same })
            | Op::ReadState(ReadState { input: same })
            | Op::TensorBufferToTensor(TensorBufferToTensor { input: same })
            | Op::TensorToTensorBuffer(TensorToTensorBuffer { input: same, .. }) => {
                let Some(x) = self.float(*same) else { return Ok(false) };
                self.put(out, x);
                Ok(true)
            }
            Op::Gather(_) => self.gather(op, out),
            Op::Cast(op) => self.cast(op, out),
            Op::Conv(op) => self.conv(op, Activation::None, out),
            Op::SliceByIndex(op) => self.slice(op, out),
            Op::SliceUpdate(op) => self.slice_update(op, out),
            Op::Concat(op) => self.concat(op, out),
            _ => Ok(false),
        }
    }

    fn binary(&mut self, op: Binary, x: Value, y: Value, out: Value) -> Result<bool, ExecError> {
        let (Some(a), Some(b)) = (self.float(x), self.float(y)) else { return Ok(false) };
        let (sa, sb) = (a.shape(), b.shape());
        let shape = broadcast_shape(&sa, &sb);
        let shape =
            shape.ok_or_else(|| self.fail(format!("{sa:?} and {sb:?} do not broadcast")))?;
        // In memory like an operand of this shape, so that rows are read in a row.
        let like = [(&a, &sa), (&b, &sb)].into_iter().find(|(_, s)| **s == shape);
        let order = like.map_or_else(|| (0..shape.len()).collect(), |(x, _)| x.order());
        let mut data = self.take(checked_len(&shape)?);
        let axes = |x: &Buffer| -> Vec<Axis> {
            let axes = x.broadcast(&shape).expect("the shape they broadcast to");
            order.iter().map(|&i| axes[i]).collect()
        };
        let (p, q) = (a.data.get(a.start..), b.data.get(b.start..));
        let (p, q) = (p.unwrap_or_default(), q.unwrap_or_default());
        combine_views(op, (p, axes(&a)), (q, axes(&b)), &mut data);
        let moved: Vec<usize> = order.iter().map(|&i| shape[i]).collect();
        let mut made = vec![Axis { len: 1, stride: 1 }; shape.len()];
        strided::axes(&moved).into_iter().zip(&order).for_each(|(axis, &i)| made[i] = axis);
        self.put_owned(out, data, made);
        Ok(true)
    }

    fn layer_norm(&mut self, op: &LayerNorm, out: Value) -> Result<bool, ExecError> {
        let Some([one_axis]) = op.axes.as_deref() else { return Ok(false) };
        let Some(x) = self.float(op.x) else { return Ok(false) };
        let Some(axis) = russet_ir::resolve_axis(*one_axis, x.axes.len()) else {
            return Ok(false);
        };
        let len = x.axes[axis].len;
        drop(x);
        let part = |v: Option<Value>| v.and_then(|v| self.float(v));
        let (gamma, beta) = (part(op.gamma), part(op.beta));
        let (gamma_row, beta_row) = (
            gamma.as_ref().and_then(Buffer::contiguous),
            beta.as_ref().and_then(Buffer::contiguous),
        );
        let rows = [gamma_row, beta_row];
        let all = op.gamma.is_some() == rows[0].is_some() && op.beta.is_some() == rows[1].is_some();
        if !all || rows.into_iter().flatten().any(|r| r.len() != len) {
            return Ok(false);
        }
        let Some((mut data, axes)) = self.owned(op.x) else { return Ok(false) };
        let (n, inner) = line(&axes, axis);
        let affine = Affine { gamma: gamma_row, beta: beta_row, epsilon: op.epsilon };
        layer_norm(&mut data, n, inner, &affine);
        self.put_owned(out, data, axes);
        Ok(true)
    }

    fn matmul(&mut self, op: &Matmul, out: Value) -> Result<bool, ExecError> {
        let (Some(a), Some(b)) = (self.float(op.x), self.float(op.y)) else { return Ok(false) };
        let Some(left) = Matrices::of(&a, op.transpose_x) else { return Ok(false) };
        let Some(right) = Matrices::of(&b, op.transpose_y) else { return Ok(false) };
        let batch = broadcast_shape(&left.batch_shape(), &right.batch_shape());
        let Some(batch) = batch.filter(|_| left.cols.len == right.rows.len) else {
            return Err(self.fail(format!("{:?} times {:?}", a.shape(), b.shape())));
        };
        let (rows, cols) = (left.rows.len, right.cols.len);
        let shape = [&batch[..], &[rows, cols]].concat();
        let mut data = self.take(checked_len(&shape)?);
        if !data.is_empty() {
            let matrices = data.chunks_exact_mut(rows * cols).enumerate();
            let products = matrices.map(|(i, out)| Product {
                left: left.view(i, &batch),
                right: right.view(i, &batch),
                out: Rows::new(out, rows, cols),
            });
            let rounding = self.rounding();
            multiply_each(products.collect(), &Epilogue { rounding, ..Epilogue::default() });
        }
        self.put(out, Buffer::new(data, &shape));
        Ok(true)
    }

    fn reshaped(&mut self, x: Buffer, out: Value, shape: &[usize]) {
        if let Some(view) = x.reshaped(shape) {
            return self.put(out, view);
        }
        let mut data = self.take(x.n_elements());
        strided::copy(&x.data, x.start, x.axes, &mut data);
        self.put(out, Buffer::new(data, shape));
    }

    /// `squeeze` and `expand_dims`: axes of extent 1 go or come, whatever the strides.
    fn unit_axes(&mut self, op: &Op, out: Value) -> Result<bool, ExecError> {
        let (x, axes) = match op {
            Op::Squeeze(op) => (op.x, op.axes.clone()),
            Op::ExpandDims(op) => (op.x, Some(op.axes.clone())),
            _ => return Ok(false),
        };
        let (Some(x), Some(axes)) = (self.float(x), axes) else { return Ok(false) };
        let expands = matches!(op, Op::ExpandDims(_));
        let rank = x.axes.len() + if expands { axes.len() } else { 0 };
        let at: Option<Vec<usize>> =
            axes.iter().map(|&a| russet_ir::resolve_axis(a, rank)).collect();
        let at = at.ok_or_else(|| self.fail(format!("axes {axes:?} of rank {rank}")))?;
        let axes: Vec<Axis> = if expands {
            let mut rest = x.axes.iter().copied();
            let unit = Axis { len: 1, stride: 1 };
            (0..rank)
                .map_while(|i| if at.contains(&i) { Some(unit) } else { rest.next() })
                .collect()
        } else {
            if at.iter().any(|&i| x.axes[i].len != 1) {
                return Err(self.fail(format!("axes {axes:?} of {:?} are not all 1", x.shape())));
            }
            let kept = x.axes.iter().enumerate().filter(|(i, _)| !at.contains(i));
            kept.map(|(_, a)| *a).collect()
        };
        self.put(out, Buffer { axes, ..x });
        Ok(true)
    }

    fn split(&mut self, op: &Split, outputs: &[Value]) -> Result<bool, ExecError> {
        let Some(x) = self.float(op.x) else { return Ok(false) };
        let Some(axis) = russet_ir::resolve_axis(op.axis, x.axes.len()) else { return Ok(false) };
        let sizes = split_sizes(op, x.axes[axis].len);
        let sizes = sizes.filter(|s| s.len() == outputs.len());
        let sizes = sizes.ok_or_else(|| self.fail(format!("{:?} does not split so", x.shape())))?;
        let mut start = x.start;
        for (&v, len) in outputs.iter().zip(sizes) {
            let mut part = Buffer { start, ..x.clone() };
            part.axes[axis].len = len;
            start += len * x.axes[axis].stride.unsigned_abs();
            self.put(v, part);
        }
        Ok(true)
    }

    fn gather(&mut self, op: &Op, out: Value) -> Result<bool, ExecError> {
        let Some((table, indices)) = table_lookup(&self.session.graph, op) else {
            return Ok(false);
        };
        let rows = gather_rows(&table, self.array(indices)?.as_ref())?;
        self.set_slot(out, Slot::of(stored(rows, self.rounding())));
        Ok(true)
    }

    /// Any op, by way of arrays.
    fn plain(&mut self, id: NodeId) -> Result<(), ExecError> {
        let node = self.session.graph.node(id);
        if let Op::WriteState(op) = &node.op {
            let slot = match self.float(op.data) {
                Some(buffer) => Slot::Float(buffer),
                None => Slot::of(self.array(op.data)?.into_owned()),
            };
            self.set_slot(op.input, slot);
            return Ok(());
        }
        let made = if node.blocks.is_empty() {
            let get = |v: Value| self.array(v);
            let rounding = self.rounding();
            evaluate_with(&node.op, &Operands { get: &get, rounding, op: node.op.name() })?
        } else {
            self.with_blocks(id)?
        };
        for (&v, array) in node.outputs.iter().zip(made) {
            self.set_slot(v, Slot::of(array));
        }
        Ok(())
    }

    /// An op with blocks: all that is known so far becomes an environment of its own.
    fn with_blocks(&mut self, id: NodeId) -> Result<Vec<Array>, ExecError> {
        let graph = &self.session.graph;
        let mut env = Env::empty(graph, self.session.rounding);
        for (v, _) in graph.values() {
            if !matches!(self.slots[v.index()], Slot::Empty) {
                env.put(v, self.array(v)?.into_owned());
            }
        }
        env.run(graph, &[id])?;
        // What the blocks wrote to states.
        for &v in graph.inputs().iter().filter(|&&v| matches!(graph.ty(v), Type::State(_))) {
            if let Some(array) = env.take(v) {
                self.set_slot(v, Slot::of(array));
            }
        }
        let outputs = &graph.node(id).outputs;
        let made = outputs.iter().map(|&v| env.get(v).cloned());
        made.collect::<Option<Vec<_>>>().ok_or_else(|| self.fail("a block made nothing"))
    }
}

/// The length of an axis of dense memory, and how many lines along it lie inside each other: the
/// other axes, however ordered, are those lines.
fn line(axes: &[Axis], axis: usize) -> (usize, usize) {
    match axes[axis] {
        Axis { len: 0 | 1, .. } => (axes[axis].len, 1),
        Axis { len, stride } => (len, stride as usize),
    }
}
