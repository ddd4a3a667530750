//! A node being imported: its operands and attributes, and the ops it becomes.

use russet_ir::ops::*;
use russet_ir::{BlockId, DType, Dim, Op, Opset, Origin, Tensor, Value, broadcast_shapes};

use super::elem::Elem;
use super::importer::{Importer, Out, Scope, Val, Why};
use super::lit::Lit;
use super::names::word;
use super::node::Attributes;
use super::proto::{GraphProto, NodeProto};

/// What an import returns: one for each output it makes.
pub type Outs = Result<Vec<Out>, Why>;
/// How one op of ONNX becomes ops of MIL.
pub type Import = fn(&mut Cx<'_, '_>) -> Outs;

pub struct Cx<'a, 'm> {
    pub im: &'a mut Importer<'m>,
    pub attrs: Attributes<'m>,
    /// Version of the op set the node is of.
    pub version: i64,
    /// The op's name.
    pub op: &'m str,
    /// The opset of the program that is made.
    pub opset: Opset,
    /// Of each output: does the node name it?
    pub outputs: Vec<bool>,
    /// The axis scales of integers go along, where it is not the node's attribute.
    pub scale_axis: Option<i64>,
    inputs: Vec<Option<Val>>,
    scope: &'a Scope<'a, 'm>,
    origin: Origin,
    base: String,
}

/// Elements beyond which a shape is none that anything is computed on: int32 counts them.
const ELEMENTS_MAX: u64 = i32::MAX as u64;

/// Elements up to which a number is written out again and again.
const WIDENED_MAX: u64 = 1 << 22;

/// One extent of a shape: a number, that of an axis of a value, or what is left.
#[derive(Debug, Clone, Copy)]
pub enum Part {
    N(u64),
    Of(Value, usize),
    Rest,
}

impl<'a, 'm> Cx<'a, 'm> {
    pub fn new(
        im: &'a mut Importer<'m>,
        node: &'m NodeProto,
        attrs: Attributes<'m>,
        inputs: Vec<Option<Val>>,
        version: i64,
        scope: &'a Scope<'_, 'm>,
    ) -> Cx<'a, 'm> {
        let first = node.output.iter().find(|o| !o.is_empty()).map_or("", String::as_str);
        let name = if node.name.is_empty() { first } else { node.name.as_str() };
        Cx {
            attrs,
            version,
            op: &node.op_type,
            opset: im.opset,
            outputs: node.output.iter().map(|o| !o.is_empty()).collect(),
            scale_axis: None,
            inputs,
            scope,
            origin: Origin::source(name),
            base: word(first),
            im,
        }
    }

    // Operands.

    pub fn n_inputs(&self) -> usize {
        self.inputs.len()
    }

    pub fn opt_val(&self, i: usize) -> Option<Val> {
        self.inputs.get(i).copied().flatten()
    }

    pub fn has(&self, i: usize) -> bool {
        self.opt_val(i).is_some()
    }

    pub fn val(&self, i: usize) -> Result<Val, Why> {
        self.opt_val(i).ok_or_else(|| Why(format!("operand {i} is missing")))
    }

    /// Operand `i`, as it is computed with.
    pub fn x(&mut self, i: usize) -> Result<Value, Why> {
        let v = self.val(i)?;
        self.im.value(v)
    }

    /// The first operand with 8 or 16 bits where it has them: for ops that only move.
    pub fn raw_first(&mut self) -> Result<Value, Why> {
        match self.elem(0).narrow().is_some() && self.opset >= Opset::Ios17 {
            true => self.raw(0),
            false => self.x(0),
        }
    }

    pub fn raw(&mut self, i: usize) -> Result<Value, Why> {
        let v = self.val(i)?;
        self.im.raw(v)
    }

    pub fn opt(&mut self, i: usize) -> Result<Option<Value>, Why> {
        match self.opt_val(i) {
            Some(v) => self.im.value(v).map(Some),
            None => Ok(None),
        }
    }

    pub fn elem(&self, i: usize) -> Elem {
        self.opt_val(i).map_or(Elem::F32, |v| self.im.elem(v))
    }

    /// The numbers of operand `i`, if they are known and few.
    pub fn lit(&self, i: usize) -> Option<Lit> {
        self.im.lit(self.opt_val(i)?)
    }

    /// The constant operand `i` is, as it is stored.
    pub fn tensor(&self, i: usize) -> Option<Tensor> {
        self.im.tensor(self.opt_val(i)?).cloned()
    }

    /// Integers that must be known; None when the operand is absent.
    pub fn opt_ints(&self, i: usize, name: &str) -> Result<Option<Vec<i64>>, Why> {
        if !self.has(i) {
            return Ok(None);
        }
        let ints = self.lit(i).and_then(|l| l.as_ints().map(<[i64]>::to_vec));
        let unknown = || Why(format!("`{name}` is not known before running"));
        ints.map(Some).ok_or_else(unknown)
    }

    pub fn ints(&self, i: usize, name: &str) -> Result<Vec<i64>, Why> {
        self.opt_ints(i, name)?.ok_or_else(|| Why(format!("`{name}` is missing")))
    }

    pub fn int(&self, i: usize, name: &str) -> Result<i64, Why> {
        let ints = self.ints(i, name)?;
        ints.first().copied().ok_or_else(|| Why(format!("`{name}` is empty")))
    }

    /// Numbers that must be known; None when the operand is absent.
    pub fn opt_floats(&self, i: usize, name: &str) -> Result<Option<Vec<f64>>, Why> {
        if !self.has(i) {
            return Ok(None);
        }
        let unknown = || Why(format!("`{name}` is not known before running"));
        self.lit(i).map(|l| Some(l.as_f64())).ok_or_else(unknown)
    }

    /// Integers of attribute `name` before opset `since`, of operand `i` from then on.
    pub fn ints_either(&self, name: &str, i: usize, since: i64) -> Result<Option<Vec<i64>>, Why> {
        match self.version < since {
            true => Ok(self.attrs.ints(name).map(<[i64]>::to_vec)),
            false => self.opt_ints(i, name),
        }
    }

    // Attributes.

    pub fn int_attr(&self, name: &str, absent: i64) -> i64 {
        self.attrs.int(name).unwrap_or(absent)
    }

    pub fn flag(&self, name: &str, absent: bool) -> bool {
        self.attrs.int(name).map_or(absent, |i| i != 0)
    }

    pub fn float_attr(&self, name: &str, absent: f32) -> f32 {
        self.attrs.float(name).unwrap_or(absent)
    }

    pub fn text_attr(&self, name: &str, absent: &'m str) -> &'m str {
        self.attrs.text(name).filter(|s| !s.is_empty()).unwrap_or(absent)
    }

    // Types.

    pub fn shape(&self, v: Value) -> Vec<Dim> {
        self.im.graph.shape(v).to_vec()
    }

    pub fn rank(&self, v: Value) -> usize {
        self.im.graph.shape(v).len()
    }

    pub fn dtype(&self, v: Value) -> DType {
        self.im.graph.ty(v).tensor().map_or(DType::F32, |t| t.dtype)
    }

    pub fn is_float(&self, v: Value) -> bool {
        self.dtype(v).is_float()
    }

    /// The shape as numbers; None while there is a symbol, or more elements than any tensor has.
    pub fn fixed_shape(&self, v: Value) -> Option<Vec<u64>> {
        let ty = self.im.graph.ty(v).tensor()?;
        ty.n_elements().filter(|&n| n <= ELEMENTS_MAX)?;
        ty.fixed_shape()
    }

    /// The shape as numbers, which `what` needs.
    pub fn need_shape(&self, v: Value, what: &str) -> Result<Vec<u64>, Why> {
        self.fixed_shape(v).ok_or_else(|| {
            let shape: Vec<String> = self.shape(v).iter().map(Dim::to_string).collect();
            Why(format!("{what} needs fixed extents, they are [{}]", shape.join(", ")))
        })
    }

    /// The extent of an axis as a number, which `what` needs.
    pub fn need_extent(&self, v: Value, axis: usize, what: &str) -> Result<u64, Why> {
        let dim = self.shape(v).get(axis).cloned();
        let dim = dim.ok_or_else(|| Why(format!("{what} needs an axis {axis}")))?;
        let fixed = dim.fixed().filter(|&n| n <= ELEMENTS_MAX);
        fixed.ok_or_else(|| Why(format!("{what} needs a fixed extent, it is {dim}")))
    }

    /// Is there such an axis?
    fn check_axis(&self, v: Value, axis: usize) -> Result<(), Why> {
        let rank = self.rank(v);
        if axis < rank { Ok(()) } else { Err(Why(format!("axis {axis} of {rank} does not exist"))) }
    }

    pub fn axis(&self, v: Value, axis: i64) -> Result<usize, Why> {
        resolve(axis, self.rank(v))
    }

    pub fn axes(&self, v: Value, axes: &[i64]) -> Result<Vec<usize>, Why> {
        axes.iter().map(|&a| self.axis(v, a)).collect()
    }

    // Results.

    /// One output with the element type of the first operand.
    pub fn same(&self, v: Value) -> Outs {
        self.one(v, self.elem(0))
    }

    pub fn one(&self, v: Value, elem: Elem) -> Outs {
        Ok(vec![Out::Value(v, elem)])
    }

    /// One output of integers that may have left their narrow type: its low bits.
    pub fn wrapped(&mut self, v: Value, elem: Elem) -> Outs {
        let v = self.wrap(v, elem)?;
        self.one(v, elem)
    }

    pub fn wrap(&mut self, v: Value, elem: Elem) -> Result<Value, Why> {
        match elem.narrow() {
            Some(narrow) if self.dtype(v) == DType::I32 && self.opset >= Opset::Ios17 => {
                let low = self.cast(v, narrow)?;
                self.cast(low, DType::I32)
            }
            _ if self.dtype(v) == DType::I32 && elem.stored().bits() <= 16 => {
                let (low, high) = elem.range();
                let span = self.int_like((high - low + 1) as i32)?;
                let low = self.int_like(low as i32)?;
                let shifted = self.sub(v, low)?;
                let rest = self.push(Mod { x: shifted, y: span })?;
                self.add(rest, low)
            }
            _ => Ok(v),
        }
    }

    // Ops.

    pub fn push(&mut self, op: impl Into<Op>) -> Result<Value, Why> {
        self.push_all(op)?.first().copied().ok_or_else(|| Why::from("an op without outputs"))
    }

    pub fn push_all(&mut self, op: impl Into<Op>) -> Result<Vec<Value>, Why> {
        let op = op.into();
        let name = format!("{}_{}", self.base, op.name());
        self.im.push(op, &name, self.origin.clone())
    }

    pub fn push_blocks(
        &mut self,
        op: impl Into<Op>,
        blocks: Vec<BlockId>,
    ) -> Result<Vec<Value>, Why> {
        let op = op.into();
        let name = format!("{}_{}", self.base, op.name());
        self.im.push_blocks(op, &name, blocks, self.origin.clone())
    }

    pub fn constant(&mut self, t: Tensor) -> Result<Value, Why> {
        let name = format!("{}_const", self.base);
        self.im.push_number(t, &name, self.origin.clone())
    }

    /// A float constant of the type of `like`.
    pub fn floats(&mut self, shape: Vec<u64>, values: &[f32], like: DType) -> Result<Value, Why> {
        self.constant(Tensor::f32(shape, values).cast(like))
    }

    pub fn vector(&mut self, values: &[i64]) -> Result<Value, Why> {
        let ints: Vec<i32> = values.iter().map(|&i| saturated(i)).collect();
        self.constant(Tensor::i32(vec![ints.len() as u64], &ints))
    }

    pub fn int_like(&mut self, i: i32) -> Result<Value, Why> {
        self.constant(Tensor::i32(vec![], &[i]))
    }

    /// The number `x` as a scalar of the type `v` is computed with.
    pub fn number(&mut self, x: f64, v: Value) -> Result<Value, Why> {
        let dtype = self.dtype(v);
        self.number_of(x, dtype)
    }

    pub fn number_of(&mut self, x: f64, dtype: DType) -> Result<Value, Why> {
        match dtype {
            DType::Bool => self.constant(Tensor::bool(x != 0.0)),
            d if d.is_float() => self.floats(vec![], &[x as f32], d),
            _ => self.int_like(x as i32),
        }
    }

    pub fn cast(&mut self, x: Value, dtype: DType) -> Result<Value, Why> {
        if self.dtype(x) == dtype { Ok(x) } else { self.push(Cast { x, dtype }) }
    }

    pub fn add(&mut self, x: Value, y: Value) -> Result<Value, Why> {
        self.push(Add { x, y })
    }

    pub fn sub(&mut self, x: Value, y: Value) -> Result<Value, Why> {
        self.push(Sub { x, y })
    }

    pub fn mul(&mut self, x: Value, y: Value) -> Result<Value, Why> {
        self.push(Mul { x, y })
    }

    /// `x / y` of floats.
    pub fn div(&mut self, x: Value, y: Value) -> Result<Value, Why> {
        self.push(RealDiv { x, y })
    }

    pub fn scale(&mut self, x: Value, by: f64) -> Result<Value, Why> {
        let k = self.number(by, x)?;
        self.mul(x, k)
    }

    pub fn offset(&mut self, x: Value, by: f64) -> Result<Value, Why> {
        let k = self.number(by, x)?;
        self.add(x, k)
    }

    pub fn max(&mut self, x: Value, y: Value) -> Result<Value, Why> {
        self.push(Maximum { x, y })
    }

    pub fn min(&mut self, x: Value, y: Value) -> Result<Value, Why> {
        self.push(Minimum { x, y })
    }

    /// `a` where `cond` holds, else `b`. Core ML takes the result's shape from `a` and `b` alone, so
    /// that one of them is made as large as the condition where both are smaller.
    pub fn select(&mut self, cond: Value, a: Value, b: Value) -> Result<Value, Why> {
        let both = broadcast_shapes(&self.shape(a), &self.shape(b));
        let target = both.as_ref().and_then(|both| broadcast_shapes(&self.shape(cond), both));
        let Some(target) = target.filter(|t| both.as_ref() != Some(t)) else {
            return self.push(Select { cond, a, b });
        };
        if self.dtype(a) == DType::Bool {
            return self.push(Select { cond, a, b });
        }
        // Infinities stay single numbers, which passes find.
        let finite = |cx: &Self, v: Value| {
            cx.im.graph.constant(v).is_none_or(|t| t.to_f32().iter().all(|x| x.is_finite()))
        };
        let (a, b) = match finite(self, a) {
            true => (self.widened(a, cond, &target)?, b),
            false => (a, self.widened(b, cond, &target)?),
        };
        self.push(Select { cond, a, b })
    }

    /// `v` in the shape `target`, that of `cond` or wider: the same numbers again and again.
    fn widened(&mut self, v: Value, cond: Value, target: &[Dim]) -> Result<Value, Why> {
        let sizes: Option<Vec<u64>> = target.iter().map(Dim::fixed).collect();
        let n = sizes.as_ref().and_then(|s| s.iter().try_fold(1u64, |n, &d| n.checked_mul(d)));
        let one = self.im.graph.constant(v).filter(|t| t.n_elements() == 1).cloned();
        if let (Some(sizes), Some(n), Some(t)) = (sizes, n.filter(|&n| n <= WIDENED_MAX), one) {
            let bytes = t.to_bytes().repeat(n as usize);
            let made = Tensor::new(t.dtype, sizes, bytes.into()).map_err(|e| e.to_string())?;
            return self.constant(made);
        }
        let dtype = self.dtype(v);
        let ones = self.push(Cast { x: cond, dtype })?;
        let zeros = self.scale(ones, 0.0)?;
        self.add(zeros, v)
    }

    pub fn matmul(&mut self, x: Value, y: Value) -> Result<Value, Why> {
        self.push(Matmul { x, y, transpose_x: false, transpose_y: false })
    }

    pub fn mean(&mut self, x: Value, axes: &[usize]) -> Result<Value, Why> {
        self.push(ReduceMean { x, axes: Some(small(axes)), keep_dims: true })
    }

    pub fn sum(&mut self, x: Value, axes: &[usize]) -> Result<Value, Why> {
        self.push(ReduceSum { x, axes: Some(small(axes)), keep_dims: true })
    }

    /// What the op `op` of the standard set (of version 20) makes of these operands, with the node's
    /// own attributes.
    pub fn standard(&mut self, op: &'static str, inputs: &[Option<Value>]) -> Result<Value, Why> {
        let import = super::ops::find("", op).ok_or("there is no import of this op")?;
        let elem = |cx: &Self, v: Value| match cx.dtype(v) {
            DType::F16 => Elem::F16,
            d if d.is_float() => Elem::F32,
            DType::Bool => Elem::Bool,
            _ => Elem::I32,
        };
        let mut operands = Vec::new();
        for v in inputs {
            let named = v.map(|v| (elem(self, v), v));
            operands.push(named.map(|(elem, v)| self.im.computed(op, elem, v)));
        }
        let inputs = std::mem::replace(&mut self.inputs, operands);
        let version = std::mem::replace(&mut self.version, 20);
        let own = std::mem::replace(&mut self.op, op);
        let made = import(self);
        (self.inputs, self.version, self.op) = (inputs, version, own);
        match made?.into_iter().next() {
            Some(Out::Value(v, _)) => Ok(v),
            Some(Out::Same(v)) => self.im.value(v),
            Some(Out::Constant(t, _)) => self.constant(t),
            Some(Out::Absent) | None => Err(Why::from("it makes nothing")),
        }
    }

    // Shapes.

    pub fn transpose(&mut self, x: Value, perm: &[usize]) -> Result<Value, Why> {
        if perm.iter().copied().eq(0..perm.len()) && perm.len() == self.rank(x) {
            return Ok(x);
        }
        self.push(Transpose { x, perm: small(perm) })
    }

    pub fn expand_dims(&mut self, x: Value, axes: &[usize]) -> Result<Value, Why> {
        if axes.is_empty() {
            return Ok(x);
        }
        self.push(ExpandDims { x, axes: small(axes) })
    }

    pub fn squeeze(&mut self, x: Value, axes: &[usize]) -> Result<Value, Why> {
        if axes.is_empty() {
            return Ok(x);
        }
        self.push(Squeeze { x, axes: Some(small(axes)) })
    }

    pub fn concat(&mut self, values: Vec<Value>, axis: usize) -> Result<Value, Why> {
        match values[..] {
            [one] => Ok(one),
            _ => self.push(Concat { values, axis: axis as i32, interleave: false }),
        }
    }

    /// `x` under a shape of parts; at most one of them is the rest.
    pub fn reshape(&mut self, x: Value, parts: &[Part]) -> Result<Value, Why> {
        let shape = self.shape_of(parts, true)?;
        self.push(Reshape { x, shape })
    }

    pub fn reshape_fixed(&mut self, x: Value, shape: &[u64]) -> Result<Value, Why> {
        let parts: Vec<Part> = shape.iter().map(|&n| Part::N(n)).collect();
        self.reshape(x, &parts)
    }

    /// A vector of these extents. A single unknown one is the rest, where there may be one.
    pub fn shape_of(&mut self, parts: &[Part], may_rest: bool) -> Result<Value, Why> {
        for part in parts {
            if let Part::Of(v, axis) = *part {
                self.check_axis(v, axis)?;
            }
        }
        let extent = |p: &Part| match *p {
            Part::N(n) => Some(n as i64),
            Part::Of(v, axis) => self.shape(v)[axis].fixed().map(|n| n as i64),
            Part::Rest => Some(-1),
        };
        let mut known: Vec<Option<i64>> = parts.iter().map(extent).collect();
        let no_rest = !parts.iter().any(|p| matches!(p, Part::Rest));
        // A zero among them leaves nothing to work the rest out from.
        let zero = known.contains(&Some(0));
        if may_rest && no_rest && !zero && known.iter().filter(|k| k.is_none()).count() == 1 {
            known.iter_mut().filter(|k| k.is_none()).for_each(|k| *k = Some(-1));
        }
        if let Some(all) = known.iter().copied().collect::<Option<Vec<i64>>>() {
            return self.vector(&all);
        }
        let mut pieces = Vec::new();
        for (part, known) in parts.iter().zip(known) {
            pieces.push(match (part, known) {
                (&Part::Of(v, axis), None) => self.extent(v, axis)?,
                (_, n) => self.vector(&[n.unwrap_or(-1)])?,
            });
        }
        self.concat(pieces, 0)
    }

    /// The extent of an axis as a vector of one.
    pub fn extent(&mut self, v: Value, axis: usize) -> Result<Value, Why> {
        self.check_axis(v, axis)?;
        if let Some(n) = self.shape(v)[axis].fixed() {
            return self.vector(&[n as i64]);
        }
        let shape = self.push(Shape { x: v })?;
        self.slice(shape, 0, axis as i64, Some(axis as i64 + 1))
    }

    /// Extent `axis` of the value a part is of.
    pub fn part_dim(&self, part: Part, axis: usize) -> Option<Dim> {
        match part {
            Part::Of(v, _) => self.shape(v).get(axis).cloned(),
            _ => None,
        }
    }

    pub fn is_fixed(&self, part: Part) -> bool {
        match part {
            Part::N(_) => true,
            Part::Of(v, axis) => self.shape(v).get(axis).is_some_and(|d| d.fixed().is_some()),
            Part::Rest => false,
        }
    }

    pub fn parts(&self, v: Value) -> Vec<Part> {
        (0..self.rank(v)).map(|i| Part::Of(v, i)).collect()
    }

    /// Elements `begin..end` of one axis; to its end when there is none.
    pub fn slice(
        &mut self,
        x: Value,
        axis: usize,
        begin: i64,
        end: Option<i64>,
    ) -> Result<Value, Why> {
        self.check_axis(x, axis)?;
        let rank = self.rank(x);
        let mut begins = vec![0; rank];
        let mut ends = vec![0; rank];
        begins[axis] = begin;
        ends[axis] = end.unwrap_or(0);
        let (begin, ending) = (self.vector(&begins)?, self.vector(&ends)?);
        let mask = |masked_too: bool| (0..rank).map(|i| i != axis || masked_too).collect();
        self.push(SliceByIndex {
            x,
            begin,
            end: ending,
            stride: None,
            begin_mask: Some(mask(false)),
            end_mask: Some(mask(end.is_none())),
            squeeze_mask: None,
        })
    }

    /// `x` with extents of 1 repeated to those of `shape`.
    pub fn tile_to(&mut self, x: Value, shape: &[Part]) -> Result<Value, Why> {
        let missing = shape.len().saturating_sub(self.rank(x));
        let x = self.expand_dims(x, &(0..missing).collect::<Vec<_>>())?;
        let fixed = |cx: &Self, p: &Part| match *p {
            Part::N(n) => Some(n),
            Part::Of(v, axis) => cx.shape(v).get(axis).and_then(Dim::fixed),
            Part::Rest => None,
        };
        let wanted: Vec<Option<u64>> = shape.iter().map(|p| fixed(self, p)).collect();
        let have = self.shape(x);
        let reps: Option<Vec<i64>> = have
            .iter()
            .zip(&wanted)
            .map(|(h, w)| match (h, w) {
                (Dim::Fixed(1), Some(w)) => Some(*w as i64),
                (h, Some(w)) if h.fixed().is_none_or(|h| h == *w) => Some(1),
                (Dim::Symbol(_), None) => Some(1),
                _ => None,
            })
            .collect();
        match reps {
            Some(reps) if reps.iter().all(|&r| r == 1) => Ok(x),
            Some(reps) if !reps.contains(&0) => {
                let reps = self.vector(&reps)?;
                self.push(Tile { x, reps })
            }
            _ => {
                let shape = self.shape_of(shape, false)?;
                self.spread(x, shape)
            }
        }
    }

    /// `x` broadcast with a shape that is computed.
    pub fn spread(&mut self, x: Value, shape: Value) -> Result<Value, Why> {
        let dtype = self.dtype(x);
        let one = self.number_of(1.0, dtype)?;
        let ones = self.push(Fill { shape, value: Some(one) })?;
        match dtype {
            DType::Bool => self.push(LogicalAnd { x, y: ones }),
            _ => self.mul(x, ones),
        }
    }

    /// `f` on `x`, which may not be `bool` there: as int32, and back.
    pub fn unbool(
        &mut self,
        x: Value,
        f: impl FnOnce(&mut Self, Value) -> Result<Value, Why>,
    ) -> Result<Value, Why> {
        if self.dtype(x) != DType::Bool {
            return f(self, x);
        }
        let wide = self.cast(x, DType::I32)?;
        let made = f(self, wide)?;
        self.cast(made, DType::Bool)
    }

    // Graphs inside the node.

    pub fn graph_attr(&self, name: &str) -> Result<&'m GraphProto, Why> {
        self.attrs.graph(name).ok_or_else(|| Why(format!("it has no graph `{name}`")))
    }

    pub fn subgraph(&mut self, graph: &'m GraphProto, inputs: &[Val]) -> Result<Vec<Val>, Why> {
        self.im.subgraph(graph, inputs, self.scope)
    }

    /// Everything `f` adds goes into a block of its own.
    pub fn in_block<R>(
        &mut self,
        f: impl FnOnce(&mut Self, BlockId) -> Result<R, Why>,
    ) -> Result<(BlockId, R), Why> {
        let block = self.im.graph.add_block();
        let before = std::mem::replace(&mut self.im.block, block);
        let made = f(self, block);
        self.im.block = before;
        Ok((block, made?))
    }

    /// A name for something of this node.
    pub fn name(&mut self, what: &str) -> String {
        let name = format!("{}_{what}", self.base);
        self.im.graph.unique_name(&name)
    }
}

/// Axes as a parameter.
pub fn small(axes: &[usize]) -> Vec<i32> {
    axes.iter().map(|&a| a as i32).collect()
}

pub fn saturated(i: i64) -> i32 {
    i.clamp(i32::MIN.into(), i32::MAX.into()) as i32
}

/// `axis` counted from the front.
pub fn resolve(axis: i64, rank: usize) -> Result<usize, Why> {
    let from_front = if axis < 0 { axis.saturating_add(rank as i64) } else { axis };
    let found = usize::try_from(from_front).ok().filter(|&a| a < rank);
    found.ok_or_else(|| Why(format!("axis {axis} of {rank} does not exist")))
}

/// Positive numbers as a parameter.
pub fn params(name: &str, ints: &[i64]) -> Result<Vec<i32>, Why> {
    let small: Option<Vec<i32>> = ints.iter().map(|&i| i32::try_from(i).ok()).collect();
    small.ok_or_else(|| Why(format!("`{name}` is {ints:?}")))
}
