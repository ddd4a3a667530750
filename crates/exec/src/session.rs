//! A function made ready to run many times: weights packed once, buffers kept, ops fused.
//!
//! Values are strided views of shared buffers, so reshapes, splits and transposes move nothing
//! until an op needs its elements in a row. A product takes its bias, activation and residual sum
//! along while its result is in cache; each step is still rounded as an op of its own, so fusing
//! changes no bit.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use russet_ir::ops::Split;
use russet_ir::{Graph, NodeId, Op, Value};

use crate::env::{Env, checked_inputs, named, stored, table_lookup};
use crate::kernels::binary::{Binary, broadcast_shape, combine};
use crate::kernels::gemm::{
    Activation, Bias, Epilogue, PackedLeft, PackedRight, Product, Rows, View, multiply,
    multiply_each,
};
use crate::kernels::half::Rounding;
use crate::kernels::layer_norm::{Affine, layer_norm};
use crate::kernels::softmax::softmax;
use crate::kernels::strided::{self, Axis};
use crate::kernels::unary;
use crate::ops::{
    Operands, checked_len, evaluate_with, gather_rows, reshape, split_sizes, transpose_axes,
    unary_kernel,
};
use crate::{Array, ExecError, Numbers};

/// The rules numbers obey while running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Arithmetic {
    /// 32-bit floats throughout; fp16 types are not rounded.
    #[default]
    F32,
    /// As the Neural Engine computes: every result is stored as fp16, sums are wide, and products
    /// of matrices are infinite from 32768.
    Ane,
}

impl Arithmetic {
    pub(crate) fn rounding(self) -> Rounding {
        match self {
            Arithmetic::F32 => Rounding::F32,
            Arithmetic::Ane => Rounding::Ane,
        }
    }
}

/// A function ready to run. It holds its own copy of the graph and the packed weights.
pub struct Session {
    graph: Graph,
    rounding: Rounding,
    steps: Vec<Step>,
    constants: BTreeMap<Value, Array>,
    /// Buffers of earlier runs, to be used again.
    pool: Mutex<Vec<Vec<f32>>>,
}

struct Step {
    node: NodeId,
    kind: Kind,
    /// Values nobody reads after this step.
    last_uses: Vec<Value>,
}

enum Kind {
    Plain,
    Product(Box<Dense>),
}

/// A product with constant weights and what follows it.
struct Dense {
    x: Value,
    weight: Packed,
    bias: Option<Vec<f32>>,
    activation: Activation,
    residual: Option<Value>,
    out: Value,
    n_out: usize,
    depth: usize,
}

enum Packed {
    /// A linear layer: rows of `x` times the packed weight.
    Linear(PackedRight),
    /// A 1x1 convolution: the packed weight times columns of `x`.
    Pointwise(PackedLeft),
}

/// A tensor while running: a strided view of a shared buffer of floats.
#[derive(Clone)]
struct Buffer {
    data: Arc<Vec<f32>>,
    start: usize,
    axes: Vec<Axis>,
}

enum Slot {
    Empty,
    Float(Buffer),
    Other(Array),
}

impl Buffer {
    fn new(data: Vec<f32>, shape: &[usize]) -> Buffer {
        Buffer { data: Arc::new(data), start: 0, axes: strided::axes(shape) }
    }

    fn shape(&self) -> Vec<usize> {
        self.axes.iter().map(|a| a.len).collect()
    }

    fn n_elements(&self) -> usize {
        self.axes.iter().map(|a| a.len).product()
    }

    /// The elements, if they lie one after another.
    fn contiguous(&self) -> Option<&[f32]> {
        let mut expected = 1;
        for axis in self.axes.iter().rev() {
            if axis.len != 1 && axis.stride != expected {
                return None;
            }
            expected *= axis.len as isize;
        }
        self.data.get(self.start..self.start + self.n_elements())
    }
}

impl Session {
    /// Prepares `graph`: packs weights and fuses what follows a product.
    pub fn new(graph: &Graph, arithmetic: Arithmetic) -> Result<Session, ExecError> {
        Session::prepare(graph, arithmetic, true)
    }

    /// Prepares `graph` so that every op's own result can be observed.
    pub fn observable(graph: &Graph, arithmetic: Arithmetic) -> Result<Session, ExecError> {
        Session::prepare(graph, arithmetic, false)
    }

    fn prepare(graph: &Graph, arithmetic: Arithmetic, fuse: bool) -> Result<Session, ExecError> {
        let rounding = arithmetic.rounding();
        let mut steps: Vec<Step> = Vec::new();
        let mut fused: Vec<NodeId> = Vec::new();
        let order: Vec<NodeId> =
            graph.nodes().filter(|(_, n)| !n.op.is_const()).map(|(id, _)| id).collect();
        // A product runs where the last op it takes along stands, so that all it reads is there.
        let mut products: BTreeMap<NodeId, Dense> = BTreeMap::new();
        for &id in &order {
            if let Some((dense, taken)) = Dense::at(graph, id, rounding, fuse) {
                let last = *taken.last().expect("the product itself is taken");
                fused.extend(taken.iter().filter(|&&t| t != last));
                products.insert(last, dense);
            }
        }
        for id in order {
            if fused.contains(&id) {
                continue;
            }
            let kind = match products.remove(&id) {
                Some(dense) => Kind::Product(Box::new(dense)),
                None => Kind::Plain,
            };
            steps.push(Step { node: id, kind, last_uses: Vec::new() });
        }
        let mut session = Session {
            graph: graph.clone(),
            rounding,
            steps,
            constants: BTreeMap::new(),
            pool: Mutex::new(Vec::new()),
        };
        session.keep_constants()?;
        session.find_last_uses();
        Ok(session)
    }

    /// Decodes the constants that steps read other than as packed weights or tables.
    fn keep_constants(&mut self) -> Result<(), ExecError> {
        for step in &self.steps {
            if matches!(step.kind, Kind::Product(_)) {
                continue;
            }
            let op = &self.graph.node(step.node).op;
            let table = table_lookup(&self.graph, op).map(|_| op.operands()[0]);
            let inner = self.graph.node(step.node).blocks.is_empty();
            for v in op.operands().into_iter().filter(|&v| Some(v) != table && inner) {
                if let (Some(t), false) = (self.graph.constant(v), self.constants.contains_key(&v))
                {
                    let dtype = t.dtype;
                    let array = Array::from_tensor(t).ok_or(ExecError::DType { dtype })?;
                    self.constants.insert(v, stored(array, self.rounding));
                }
            }
        }
        Ok(())
    }

    fn find_last_uses(&mut self) {
        let mut seen = vec![false; self.graph.n_values()];
        self.graph.outputs().iter().for_each(|v| seen[v.index()] = true);
        for step in self.steps.iter_mut().rev() {
            let node = self.graph.node(step.node);
            let mut reads = match &step.kind {
                Kind::Product(p) => std::iter::once(p.x).chain(p.residual).collect(),
                Kind::Plain => node.op.operands(),
            };
            for &block in &node.blocks {
                // What inner nodes read stays until the function ends.
                let nodes = &self.graph.block(block).nodes;
                nodes.iter().flat_map(|&n| self.graph.node(n).op.operands()).for_each(|v| {
                    seen[v.index()] = true;
                });
            }
            reads.extend(&node.outputs);
            for v in reads {
                if !std::mem::replace(&mut seen[v.index()], true) {
                    step.last_uses.push(v);
                }
            }
        }
    }

    /// The function this session runs.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Runs the function once. Any shape the function allows is accepted.
    pub fn run(
        &self,
        inputs: &BTreeMap<String, Array>,
    ) -> Result<BTreeMap<String, Array>, ExecError> {
        self.run_observed(inputs, &mut |_, _| {})
    }

    /// Runs the function and shows `observe` the result of every step.
    pub fn run_observed(
        &self,
        inputs: &BTreeMap<String, Array>,
        observe: &mut dyn FnMut(Value, &dyn Fn() -> Array),
    ) -> Result<BTreeMap<String, Array>, ExecError> {
        let arrays = checked_inputs(&self.graph, inputs)?;
        let mut slots: Vec<Slot> = (0..self.graph.n_values()).map(|_| Slot::Empty).collect();
        for (&v, array) in self.graph.inputs().iter().zip(arrays) {
            slots[v.index()] = slot(stored(array.clone(), self.rounding));
        }
        let mut run = Run { session: self, slots, pool: std::mem::take(&mut *self.lock()) };
        for step in &self.steps {
            run.step(step).map_err(|e| named(e, &self.graph, step.node))?;
            let made: &[Value] = match &step.kind {
                Kind::Product(p) => std::slice::from_ref(&p.out),
                Kind::Plain => &self.graph.node(step.node).outputs,
            };
            for &v in made {
                observe(v, &|| run.array(v).expect("just computed").into_owned());
            }
            step.last_uses.iter().for_each(|&v| run.release(v));
        }
        let outputs = self.graph.outputs().iter().map(|&v| {
            let name = self.graph.value(v).name.clone();
            run.array(v).map(|a| (name, a.into_owned()))
        });
        let outputs = outputs.collect();
        for i in 0..run.slots.len() {
            run.release(Value::from_index(i));
        }
        *self.lock() = run.pool;
        outputs
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Vec<f32>>> {
        self.pool.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Dense {
    /// The product at node `id`, with the nodes it takes along, itself first.
    fn at(g: &Graph, id: NodeId, rounding: Rounding, fuse: bool) -> Option<(Dense, Vec<NodeId>)> {
        let node = g.node(id);
        let (x, weight, bias) = match &node.op {
            Op::Linear(op) => (op.x, op.weight, op.bias),
            Op::Conv(op) if op.is_pointwise(&g.types()) => (op.x, op.weight, op.bias),
            _ => return None,
        };
        let t = g.constant(weight)?;
        let (n_out, depth) = (t.shape[0] as usize, t.shape[1] as usize);
        let floats = |v: Value| {
            let mut x = g.constant(v).filter(|t| t.dtype.is_float())?.to_f32();
            rounding.store(&mut x);
            Some(x)
        };
        let bias = match bias {
            Some(b) => Some(floats(b)?),
            None => None,
        };
        if g.constant(x).is_some() {
            return None;
        }
        let values = floats(weight)?;
        let view = View::new(&values, n_out, depth);
        let weight = match &node.op {
            Op::Linear(_) => Packed::Linear(PackedRight::new(view.transposed())),
            _ => Packed::Pointwise(PackedLeft::new(view)),
        };
        let mut dense = Dense {
            x,
            weight,
            bias,
            activation: Activation::None,
            residual: None,
            out: node.outputs[0],
            n_out,
            depth,
        };
        let mut taken = vec![id];
        if fuse {
            dense.take_along(g, &mut taken);
        }
        Some((dense, taken))
    }

    fn take_along(&mut self, g: &Graph, taken: &mut Vec<NodeId>) {
        let only_user = |v: Value| match g.users(v) {
            [id] if !g.is_output(v) && g.node(*id).blocks.is_empty() => Some(*id),
            _ => None,
        };
        if let Some(id) = only_user(self.out) {
            let activation = match unary_kernel(&g.node(id).op) {
                Some((unary::Unary::Gelu, _)) => Some(Activation::Gelu),
                Some((unary::Unary::GeluTanh, _)) => Some(Activation::GeluTanh),
                Some((unary::Unary::Relu, _)) => Some(Activation::Relu),
                Some((unary::Unary::Silu, _)) => Some(Activation::Silu),
                _ => None,
            };
            if let Some(activation) = activation {
                self.activation = activation;
                self.out = g.node(id).outputs[0];
                taken.push(id);
            }
        }
        if let Some(id) = only_user(self.out)
            && let Op::Add(op) = &g.node(id).op
        {
            let other = if op.x == self.out { op.y } else { op.x };
            if g.ty(other) == g.ty(self.out) && g.constant(other).is_none() && other != self.out {
                self.residual = Some(other);
                self.out = g.node(id).outputs[0];
                taken.push(id);
            }
        }
    }
}

fn slot(array: Array) -> Slot {
    match array.data {
        Numbers::F32(data) => Slot::Float(Buffer::new(data, &array.shape)),
        _ => Slot::Other(array),
    }
}

/// One run in progress.
struct Run<'s> {
    session: &'s Session,
    slots: Vec<Slot>,
    pool: Vec<Vec<f32>>,
}

impl Run<'_> {
    fn step(&mut self, step: &Step) -> Result<(), ExecError> {
        let session = self.session;
        let node = session.graph.node(step.node);
        match &step.kind {
            Kind::Product(p) => self.product(p),
            Kind::Plain => {
                if !self.fast(&node.op, &node.outputs)? {
                    self.plain(step.node)?;
                }
                Ok(())
            }
        }
    }

    /// A buffer of `n` floats, of any content.
    fn take(&mut self, n: usize) -> Vec<f32> {
        let fits = |v: &Vec<f32>| v.capacity() >= n && v.capacity() / 4 <= n.max(256);
        let mut v = match self.pool.iter().rposition(fits) {
            Some(i) => self.pool.swap_remove(i),
            None => Vec::with_capacity(n),
        };
        v.resize(n, 0.0);
        v
    }

    fn release(&mut self, v: Value) {
        if let Slot::Float(buffer) = std::mem::replace(&mut self.slots[v.index()], Slot::Empty)
            && let Ok(data) = Arc::try_unwrap(buffer.data)
        {
            self.pool.push(data);
        }
    }

    fn set(&mut self, v: Value, data: Vec<f32>, shape: &[usize]) {
        self.slots[v.index()] = Slot::Float(Buffer::new(data, shape));
    }

    fn fail(&self, why: impl Into<String>) -> ExecError {
        ExecError::unsupported("", why)
    }

    /// The view that `v` is; `None` when it is not of floats.
    fn float(&self, v: Value) -> Option<Buffer> {
        if let Some(array) = self.session.constants.get(&v) {
            return Some(Buffer::new(array.as_f32()?.to_vec(), &array.shape));
        }
        match &self.slots[v.index()] {
            Slot::Float(buffer) => Some(buffer.clone()),
            _ => None,
        }
    }

    /// The same with its elements in a row.
    fn rows(&mut self, v: Value) -> Option<Buffer> {
        let buffer = self.float(v)?;
        if buffer.contiguous().is_some() {
            return Some(buffer);
        }
        let mut data = self.take(buffer.n_elements());
        strided::copy(&buffer.data, buffer.start, buffer.axes.clone(), &mut data);
        Some(Buffer::new(data, &buffer.shape()))
    }

    fn array(&self, v: Value) -> Result<Cow<'_, Array>, ExecError> {
        if let Some(array) = self.session.constants.get(&v) {
            return Ok(Cow::Borrowed(array));
        }
        match &self.slots[v.index()] {
            Slot::Other(array) => Ok(Cow::Borrowed(array)),
            Slot::Float(b) => {
                let mut data = vec![0.0; b.n_elements()];
                strided::copy(&b.data, b.start, b.axes.clone(), &mut data);
                Ok(Cow::Owned(Array::f32(b.shape(), data)))
            }
            Slot::Empty => match self.session.graph.constant(v) {
                Some(t) => {
                    let dtype = t.dtype;
                    let array = Array::from_tensor(t).ok_or(ExecError::DType { dtype })?;
                    Ok(Cow::Owned(stored(array, self.session.rounding)))
                }
                None => Err(self.fail("a value was never computed")),
            },
        }
    }

    /// Integers of a small operand, such as a shape.
    fn ints(&self, v: Value) -> Result<Vec<i64>, ExecError> {
        let array = self.array(v)?;
        let ints = array.as_i32().ok_or_else(|| self.fail("an operand is not of integers"))?;
        Ok(ints.iter().map(|&i| i.into()).collect())
    }

    fn product(&mut self, p: &Dense) -> Result<(), ExecError> {
        let x = self.rows(p.x).ok_or_else(|| self.fail("a product of other than floats"))?;
        let residual = match p.residual {
            Some(v) => Some(self.rows(v).ok_or_else(|| self.fail("a sum of other than floats"))?),
            None => None,
        };
        let mut shape = x.shape();
        let (n_out, depth, rounding) = (p.n_out, p.depth, self.session.rounding);
        let activation = p.activation;
        match &p.weight {
            Packed::Linear(weight) => {
                let last = shape.last_mut().filter(|d| **d == depth);
                *last.ok_or_else(|| self.fail("a row of another length"))? = n_out;
                let n_rows = x.n_elements() / depth.max(1);
                let mut out = self.take(checked_len(&shape)?);
                let bias = p.bias.as_deref().map_or(Bias::None, Bias::PerColumn);
                let residual = residual.as_ref().and_then(Buffer::contiguous);
                let residual = residual.map(|r| View::new(r, n_rows, n_out));
                let epilogue = Epilogue { bias, activation, residual, rounding };
                let left = View::new(x.contiguous().expect("made so"), n_rows, depth);
                multiply(left, weight, Rows::new(&mut out, n_rows, n_out), &epilogue);
                self.set(p.out, out, &shape);
            }
            Packed::Pointwise(weight) => {
                let places: usize = shape[2..].iter().product();
                if shape[1] != depth {
                    return Err(self.fail("another number of channels"));
                }
                shape[1] = n_out;
                let mut out = self.take(checked_len(&shape)?);
                let bias = p.bias.as_deref().map_or(Bias::None, Bias::PerRow);
                let residual = residual.as_ref().and_then(Buffer::contiguous);
                let x = x.contiguous().expect("made so");
                let image = (n_out * places).max(1);
                for (i, out) in out.chunks_exact_mut(image).enumerate() {
                    let residual =
                        residual.map(|r| View::new(&r[i * image..][..image], n_out, places));
                    let epilogue = Epilogue { bias, activation, residual, rounding };
                    let right =
                        View::new(&x[i * depth * places..][..depth * places], depth, places);
                    multiply(weight, right, Rows::new(out, n_out, places), &epilogue);
                }
                self.set(p.out, out, &shape);
            }
        }
        Ok(())
    }

    /// Ops with a path of their own; `false` when the plain one must do.
    fn fast(&mut self, op: &Op, outputs: &[Value]) -> Result<bool, ExecError> {
        let out = outputs[0];
        if let Some((kernel, v)) = unary_kernel(op) {
            let Some(mut data) = self.copied(v) else { return Ok(false) };
            unary::map(kernel, &mut data.0);
            self.session.rounding.store(&mut data.0);
            self.set(out, data.0, &data.1);
            return Ok(true);
        }
        match op {
            Op::Add(op) => self.binary(Binary::Add, op.x, op.y, out),
            Op::Sub(op) => self.binary(Binary::Sub, op.x, op.y, out),
            Op::Mul(op) => self.binary(Binary::Mul, op.x, op.y, out),
            Op::RealDiv(op) => self.binary(Binary::Div, op.x, op.y, out),
            Op::Softmax(op) => {
                let Some((mut data, shape)) = self.copied(op.x) else { return Ok(false) };
                let Some(axis) = russet_ir::resolve_axis(op.axis, shape.len()) else {
                    return Ok(false);
                };
                softmax(&mut data, shape[axis], shape[axis + 1..].iter().product());
                self.session.rounding.store(&mut data);
                self.set(out, data, &shape);
                Ok(true)
            }
            Op::LayerNorm(op) => self.layer_norm(op, out),
            Op::Matmul(op) => self.matmul(op, out),
            Op::Reshape(op) => {
                let target = self.ints(op.shape)?;
                let Some(x) = self.float(op.x) else { return Ok(false) };
                let shape = reshape(x.n_elements(), &target);
                let shape = shape.ok_or_else(|| self.fail(format!("no shape {target:?}")))?;
                self.reshaped(op.x, out, &shape)
            }
            Op::Squeeze(_) | Op::ExpandDims(_) => self.unit_axes(op, out),
            Op::Transpose(op) => {
                let Some(x) = self.float(op.x) else { return Ok(false) };
                let perm = transpose_axes(&op.perm, x.axes.len());
                let perm = perm.ok_or_else(|| self.fail(format!("perm {:?}", op.perm)))?;
                let axes = perm.into_iter().map(|p| x.axes[p]).collect();
                self.slots[out.index()] = Slot::Float(Buffer { axes, ..x });
                Ok(true)
            }
            Op::Split(op) => self.split(op, outputs),
            Op::Identity(op) => {
                let Some(x) = self.float(op.x) else { return Ok(false) };
                self.slots[out.index()] = Slot::Float(x);
                Ok(true)
            }
            Op::Gather(_) => self.gather(op, out),
            _ => Ok(false),
        }
    }

    /// The elements of `v` in a buffer of their own, and their shape.
    ///
    /// Without another holder of the buffer, it is taken and not copied: a value read for the last
    /// time is only held by its slot.
    fn copied(&mut self, v: Value) -> Option<(Vec<f32>, Vec<usize>)> {
        let x = self.rows(v)?;
        let shape = x.shape();
        let mut data = self.take(x.n_elements());
        data.copy_from_slice(x.contiguous().expect("made so"));
        Some((data, shape))
    }

    fn binary(&mut self, op: Binary, x: Value, y: Value, out: Value) -> Result<bool, ExecError> {
        let (Some(a), Some(b)) = (self.rows(x), self.rows(y)) else { return Ok(false) };
        let (sa, sb) = (a.shape(), b.shape());
        let shape = broadcast_shape(&sa, &sb);
        let shape =
            shape.ok_or_else(|| self.fail(format!("{sa:?} and {sb:?} do not broadcast")))?;
        let mut data = self.take(checked_len(&shape)?);
        let (p, q) = (a.contiguous().expect("made so"), b.contiguous().expect("made so"));
        combine(op, (p, &sa), (q, &sb), &shape, &mut data);
        self.session.rounding.store(&mut data);
        self.set(out, data, &shape);
        Ok(true)
    }

    fn layer_norm(
        &mut self,
        op: &russet_ir::ops::LayerNorm,
        out: Value,
    ) -> Result<bool, ExecError> {
        let one_axis = match op.axes.as_deref() {
            Some([axis]) => *axis,
            _ => return Ok(false),
        };
        let Some((mut data, shape)) = self.copied(op.x) else { return Ok(false) };
        let Some(axis) = russet_ir::resolve_axis(one_axis, shape.len()) else { return Ok(false) };
        let part = |v: Option<Value>| v.and_then(|v| self.session.constants.get(&v)?.as_f32());
        let (gamma, beta) = (part(op.gamma), part(op.beta));
        let constant = op.gamma.is_some() == gamma.is_some() && op.beta.is_some() == beta.is_some();
        let n = shape[axis];
        if !constant || [gamma, beta].into_iter().flatten().any(|g| g.len() != n) {
            return Ok(false);
        }
        let inner = shape[axis + 1..].iter().product();
        layer_norm(&mut data, n, inner, &Affine { gamma, beta, epsilon: op.epsilon });
        self.session.rounding.store(&mut data);
        self.set(out, data, &shape);
        Ok(true)
    }

    fn matmul(&mut self, op: &russet_ir::ops::Matmul, out: Value) -> Result<bool, ExecError> {
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
        let n: usize = batch.iter().product();
        if rows * cols * n > 0 {
            let matrices = data.chunks_exact_mut(rows * cols).enumerate();
            let products = matrices.map(|(i, out)| Product {
                left: left.view(i, &batch),
                right: right.view(i, &batch),
                out: Rows::new(out, rows, cols),
            });
            let rounding = self.session.rounding;
            multiply_each(products.collect(), &Epilogue { rounding, ..Epilogue::default() });
        }
        self.set(out, data, &shape);
        Ok(true)
    }

    fn reshaped(&mut self, x: Value, out: Value, shape: &[usize]) -> Result<bool, ExecError> {
        let Some(x) = self.rows(x) else { return Ok(false) };
        self.slots[out.index()] = Slot::Float(Buffer { axes: strided::axes(shape), ..x });
        Ok(true)
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
            let unit = Axis { len: 1, stride: 0 };
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
        self.slots[out.index()] = Slot::Float(Buffer { axes, ..x });
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
            self.slots[v.index()] = Slot::Float(part);
        }
        Ok(true)
    }

    fn gather(&mut self, op: &Op, out: Value) -> Result<bool, ExecError> {
        let Some((table, indices)) = table_lookup(&self.session.graph, op) else {
            return Ok(false);
        };
        let rows = gather_rows(table, self.array(indices)?.as_ref())?;
        self.slots[out.index()] = slot(stored(rows, self.session.rounding));
        Ok(true)
    }

    /// Any op, by way of arrays.
    fn plain(&mut self, id: NodeId) -> Result<(), ExecError> {
        let graph = &self.session.graph;
        let node = graph.node(id);
        let made = if node.blocks.is_empty() {
            let get = |v: Value| self.array(v);
            let rounding = self.session.rounding;
            evaluate_with(&node.op, &Operands { get: &get, rounding, op: node.op.name() })?
        } else {
            self.with_blocks(id)?
        };
        for (&v, array) in node.outputs.iter().zip(made) {
            self.slots[v.index()] = slot(array);
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
        let outputs = &graph.node(id).outputs;
        let made = outputs.iter().map(|&v| env.get(v).cloned());
        made.collect::<Option<Vec<_>>>().ok_or_else(|| self.fail("a block made nothing"))
    }
}

/// The last two axes of a view as matrices, the others as a batch of them.
struct Matrices<'a> {
    data: &'a [f32],
    batch: Vec<Axis>,
    rows: Axis,
    cols: Axis,
}

impl<'a> Matrices<'a> {
    fn of(x: &'a Buffer, transposed: bool) -> Option<Matrices<'a>> {
        let (batch, matrix) = x.axes.split_at_checked(x.axes.len().checked_sub(2)?)?;
        if x.axes.iter().any(|a| a.stride < 0) {
            return None;
        }
        let (rows, cols) = if transposed { (matrix[1], matrix[0]) } else { (matrix[0], matrix[1]) };
        let data = x.data.get(x.start..)?;
        Some(Matrices { data, batch: batch.to_vec(), rows, cols })
    }

    fn batch_shape(&self) -> Vec<usize> {
        self.batch.iter().map(|a| a.len).collect()
    }

    /// The matrix that broadcasts to place `flat` of a batch of this shape.
    fn view(&self, mut flat: usize, shape: &[usize]) -> View<'a> {
        let mut start = 0;
        for (i, &extent) in shape.iter().enumerate().rev() {
            if let Some(j) = (i + self.batch.len()).checked_sub(shape.len()) {
                let axis = self.batch[j];
                start += if axis.len == 1 { 0 } else { flat % extent * axis.stride as usize };
            }
            flat /= extent;
        }
        let (rows, cols) = (self.rows, self.cols);
        let data = &self.data[start..];
        View::strided(data, rows.len, cols.len, rows.stride as usize, cols.stride as usize)
    }
}
