//! Ops that make tensors of a shape: repetition, filling, ranges, one-hot rows, stacking.

use super::movement::made_shape;
use crate::dims::{Calculation, KNOWN_MAX, named, number, product};
use crate::infer::{Outputs, TypeError, Types};
use crate::{DType, Dim, OpDef, TensorType, Value, op, resolve_axis};

op! {
    /// `x` repeated along each axis, `reps` times.
    "tile" since Ios15 => Tile { x: Value; reps: Value }
}

impl OpDef for Tile {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let x = types.wide(self.x)?;
        let n = types.vector(self.reps)?;
        if x.rank() == 0 || n != x.rank() as u64 {
            return Err(TypeError::Rank {
                at: self.x,
                found: x.rank(),
                expected: "one of `reps` per axis",
            });
        }
        let Some(reps) = types.dims(self.reps) else {
            let name = types.name(self.reps);
            let dim = |i| named(&format!("{}.tile.{name}.{i}", types.name(self.x)));
            return Ok(
                TensorType { dtype: x.dtype, shape: (0..x.rank()).map(dim).collect() }.into()
            );
        };
        let fixed = reps.iter().map(|r| r.fixed().map(|n| n as i64)).enumerate();
        if let Some((i, Some(n))) = fixed.into_iter().find(|(_, n)| n.is_some_and(|n| n <= 0)) {
            return Err(TypeError::param(format!("axis {i} is repeated {n} times")));
        }
        let extents = x.shape.iter().zip(&reps).map(|(d, r)| product(&[d.clone(), r.clone()]));
        let out = TensorType { dtype: x.dtype, shape: extents.collect() };
        let known = types.known_ints(self.x).filter(|_| out.rank() == 1).and_then(|dims| {
            let n = out.shape[0].fixed().filter(|&n| n <= KNOWN_MAX as u64)?;
            Some(dims.iter().cycle().take(n as usize).cloned().collect())
        });
        Ok(Outputs::dims(out, known))
    }
}

op! {
    /// The values as slices along a new axis, at `axis` of the result.
    "stack" since Ios15 => Stack { values: Vec<Value>; axis: i32 }
}

impl OpDef for Stack {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let Some(&first) = self.values.first() else {
            return Err(TypeError::param("nothing to stack"));
        };
        let mut out = types.element(first)?.clone();
        let rank = out.rank() + 1;
        let axis = resolve_axis(self.axis, rank);
        let axis = axis.ok_or(TypeError::Axis { at: first, axis: self.axis, rank })?;
        for &at in &self.values[1..] {
            let t = types.same_dtype(at, out.dtype)?;
            types.same_shape(at, &out.shape)?;
            // A number beside a symbol says more.
            out.shape
                .iter_mut()
                .zip(&t.shape)
                .filter(|(_, d)| d.fixed().is_some())
                .for_each(|(a, d)| *a = d.clone());
        }
        out.shape.insert(axis, Dim::Fixed(self.values.len() as u64));
        let known = (rank == 1 && self.values.len() <= KNOWN_MAX)
            .then(|| self.values.iter().map(|&v| types.known_ints(v)).collect::<Option<Vec<_>>>());
        Ok(Outputs::dims(out, known.flatten().map(|d| d.concat())))
    }
}

op! {
    /// A tensor of this shape with `value` everywhere (fp32 zero when absent).
    "fill" since Ios15 => Fill { shape: Value; value: Option<Value> }
}
op! {
    /// A tensor of the shape of `ref_tensor` with `value` everywhere (fp32 zero when absent).
    "fill_like" since Ios16 => FillLike { ref_tensor: Value; value: Option<Value> }
}

/// A tensor of one element repeated.
fn filled(types: &Types<'_>, shape: Vec<Dim>, value: Option<Value>) -> Result<Outputs, TypeError> {
    let dtype = scalar_dtype(types, value, DType::F32)?;
    let out = TensorType { dtype, shape };
    let n = out.n_elements().filter(|&n| n <= KNOWN_MAX as u64 && out.rank() <= 1);
    let known = value.and_then(|v| types.known_ints(v)).zip(n);
    let known = known.and_then(|(v, n)| Some(vec![v.first()?.clone(); n as usize]));
    Ok(Outputs::dims(out, known))
}

/// The element type of an operand that is a single element, or what its absence stands for.
pub(super) fn scalar_dtype(
    types: &Types<'_>,
    value: Option<Value>,
    absent: DType,
) -> Result<DType, TypeError> {
    let Some(at) = value else { return Ok(absent) };
    let t = types.wide(at)?;
    match t.n_elements() {
        Some(1) => Ok(t.dtype),
        _ => Err(TypeError::Rank { at, found: t.rank(), expected: "0" }),
    }
}

impl OpDef for Fill {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        filled(types, made_shape(types, self.shape)?, self.value)
    }
}

impl OpDef for FillLike {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        filled(types, types.wide(self.ref_tensor)?.shape.clone(), self.value)
    }
}

op! {
    /// `start`, `start + step`, and so on, before `end` is reached.
    "range_1d" since Ios15 => Range1d { end: Value; start: Value; step: Value }
}

impl Range1d {
    /// How many numbers there are; `None` for a step of zero or more than any tensor holds.
    pub fn count(end: f64, start: f64, step: f64) -> Option<u64> {
        let n = ((end - start) / step).ceil();
        (step != 0.0 && n < 9e15).then(|| n.max(0.0) as u64)
    }
}

impl OpDef for Range1d {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let dtype = types.number(self.end)?.dtype;
        for v in [self.end, self.start, self.step] {
            types.same_dtype(v, dtype)?;
            scalar_dtype(types, Some(v), dtype)?;
        }
        let one = |v: Value| types.known_ints(v).and_then(|d| d.into_iter().next());
        let constant = |v: Value| types.constant(v).and_then(crate::Tensor::item_f32);
        let dims = [self.end, self.start, self.step].map(one);
        let floats = [self.end, self.start, self.step].map(constant);
        let numbers = match (&dims, floats) {
            ([Some(e), Some(s), Some(t)], _) => {
                let int = |d: &Dim| d.fixed().map(|n| n as i64 as f64);
                int(e).zip(int(s)).zip(int(t)).map(|((e, s), t)| (e, s, t))
            }
            (_, [Some(e), Some(s), Some(t)]) if dtype != DType::I32 => {
                Some((e.into(), s.into(), t.into()))
            }
            _ => None,
        };
        if let Some((end, start, step)) = numbers {
            let n = Range1d::count(end, start, step);
            let n = n.ok_or_else(|| TypeError::param(format!("{start} to {end} by {step}")))?;
            let element = |i: u64| number((start + i as f64 * step) as i64);
            let known = (dtype == DType::I32 && n <= KNOWN_MAX as u64)
                .then(|| (0..n).map(element).collect());
            return Ok(Outputs::dims(TensorType::new(dtype, [n]), known));
        }
        // As many as the difference, when the step is one.
        let n = match dims {
            [Some(end), Some(start), Some(Dim::Fixed(1))] => Calculation::Sub.on(&end, &start),
            _ => None,
        };
        let name = |v: Value| types.name(v);
        let unknown = || {
            let parts = [self.end, self.start, self.step].map(name);
            named(&format!("range.{}", parts.join(".")))
        };
        Ok(TensorType::new(dtype, [n.unwrap_or_else(unknown)]).into())
    }
}

op! {
    /// For each index a row with `on_value` there and `off_value` elsewhere (int32 1 and 0 when
    /// absent), along a new axis.
    "one_hot" since Ios15 => OneHot {
        indices: Value;
        one_hot_vector_size: Value;
        axis: i32 = -1;
        on_value: Option<Value>;
        off_value: Option<Value>;
    }
}

impl OpDef for OneHot {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let indices = types.int(self.indices)?;
        types.int(self.one_hot_vector_size)?;
        let dtype = scalar_dtype(types, self.on_value, DType::I32)?;
        let off = scalar_dtype(types, self.off_value, DType::I32)?;
        if dtype != off {
            let at = self.off_value.or(self.on_value).unwrap_or(self.indices);
            return Err(TypeError::MixedDTypes { at, found: off, expected: dtype });
        }
        let rank = indices.rank() + 1;
        let axis = resolve_axis(self.axis, rank);
        let axis = axis.ok_or(TypeError::Axis { at: self.indices, axis: self.axis, rank })?;
        let size = match types.dims(self.one_hot_vector_size).as_deref() {
            Some([Dim::Fixed(n)]) if (*n as i64) < 0 => {
                return Err(TypeError::param(format!("rows of {} elements", *n as i64)));
            }
            Some([n]) => n.clone(),
            _ => named(&format!("{}.0", types.name(self.one_hot_vector_size))),
        };
        let mut shape = indices.shape.clone();
        shape.insert(axis, size);
        Ok(TensorType { dtype, shape }.into())
    }
}

op! {
    /// `x` as a matrix: the axes before `axis` become one, and the others.
    "flatten2d" since Ios15 => Flatten2d { x: Value; axis: i32 = 1 }
}

impl Flatten2d {
    /// Where a shape of this rank is parted.
    pub fn at(&self, rank: usize) -> Option<usize> {
        let rank_i = i64::try_from(rank).ok()?;
        let at = i64::from(self.axis);
        let at = if at < 0 { at + rank_i } else { at };
        (0..=rank_i).contains(&at).then_some(at as usize)
    }
}

impl OpDef for Flatten2d {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let x = types.wide(self.x)?;
        let (axis, rank) = (self.axis, x.rank());
        let at = self.at(rank).ok_or(TypeError::Axis { at: self.x, axis, rank })?;
        let shape = vec![product(&x.shape[..at]), product(&x.shape[at..])];
        Ok(TensorType { dtype: x.dtype, shape }.into())
    }
}

op! {
    /// `x` under a shape made of runs of axes of others: of each reference those from its begin to
    /// its end, or to the last when its end is masked.
    "reshape_like" since Ios16 => ReshapeLike {
        x: Value;
        ref_tensors: Vec<Value>;
        begins: Vec<Value>;
        ends: Vec<Value>;
        end_masks: Vec<Value>;
    }
}

impl ReshapeLike {
    /// Where a run that begins and ends there lies on a shape of this rank, as in a Python slice.
    pub fn run(begin: i64, end: Option<i64>, rank: usize) -> std::ops::Range<usize> {
        let rank = rank as i64;
        let at = |i: i64| (if i < 0 { i.saturating_add(rank) } else { i }).clamp(0, rank) as usize;
        let (begin, end) = (at(begin), end.map_or(rank as usize, at));
        begin..end.max(begin)
    }
}

impl OpDef for ReshapeLike {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let x = types.element(self.x)?;
        let n = self.ref_tensors.len();
        if [&self.begins, &self.ends, &self.end_masks].iter().any(|v| v.len() != n) {
            return Err(TypeError::param(format!(
                "{n} references need as many begins, ends and masks"
            )));
        }
        let mut shape = Vec::new();
        for i in 0..n {
            let from = types.tensor(self.ref_tensors[i])?;
            types.bool(self.end_masks[i])?;
            let masked = types.constant(self.end_masks[i]).and_then(crate::Tensor::item_f32);
            let masked = masked.ok_or(TypeError::NotConstant { at: self.end_masks[i] })? != 0.0;
            let begin = types.constant_int(self.begins[i])?;
            let end = if masked { None } else { Some(types.constant_int(self.ends[i])?) };
            shape.extend_from_slice(&from.shape[ReshapeLike::run(begin, end, from.rank())]);
        }
        let out = TensorType { dtype: x.dtype, shape };
        if let (Some(a), Some(b)) = (x.n_elements(), out.n_elements())
            && a != b
        {
            return Err(TypeError::param(format!("{x} has no shape of {out}")));
        }
        Ok(out.into())
    }
}
