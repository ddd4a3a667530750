//! Ops that move elements: shape changes, slices, gathers, concatenation.

use crate::dims::{KNOWN_MAX, named, part};
use crate::infer::{Known, Outputs, TypeError, Types};
use crate::{DType, Dim, OpDef, Symbol, TensorType, Value, op, resolve_axis};

op! {
    /// The shape of `x` as int32.
    "shape" since Ios15 => Shape { x: Value }
}

impl OpDef for Shape {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let x = types.wide(self.x)?;
        let ty = TensorType::new(DType::I32, [x.rank() as u64]);
        Ok(Outputs::dims(ty, Some(x.shape.clone())))
    }
}

op! {
    /// The elements of `x` under another shape; one -1 in it takes what is left.
    "reshape" since Ios15 => Reshape { x: Value; shape: Value }
}

impl OpDef for Reshape {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let x = types.tensor(self.x)?;
        let Some(shape) = types.dims(self.shape) else {
            return Ok(TensorType { dtype: x.dtype, shape: made_shape(types, self.shape)? }.into());
        };
        let copied = fill_in(&x.shape, &with_copies(&x.shape, &shape));
        // Of nothing, a zero may be meant.
        let shape = copied
            .or_else(|| fill_in(&x.shape, &shape))
            .ok_or_else(|| TypeError::param(format!("{x} has no shape {}", show(&shape))))?;
        let known = types.known_ints(self.x);
        Ok(Outputs::dims(TensorType { dtype: x.dtype, shape }, known))
    }
}

/// The shape that a vector of integers is; of one made while running, only the length is known.
pub(super) fn made_shape(types: &Types<'_>, at: Value) -> Result<Vec<Dim>, TypeError> {
    let n = types.vector(at)?;
    match types.dims(at) {
        Some(dims) if dims.iter().any(|d| d.fixed().is_some_and(|n| (n as i64) < 0)) => {
            Err(TypeError::param(format!("a shape of {}", show(&dims))))
        }
        Some(dims) => Ok(dims),
        None => {
            let name = types.name(at);
            let dim = |i| named(&format!("{name}.{i}"));
            Ok((0..n.min(MADE_RANK_MAX)).map(dim).collect())
        }
    }
}

/// Dimensions up to which a shape made while running is followed.
const MADE_RANK_MAX: u64 = 8;

/// `target` with each 0 replaced by the extent of `from` at that place, counted from the last axis;
/// by 1 where there is none.
fn with_copies(from: &[Dim], target: &[Dim]) -> Vec<Dim> {
    let copied = |(i, d): (usize, &Dim)| match (from.len() + i).checked_sub(target.len()) {
        _ if *d != Dim::Fixed(0) => d.clone(),
        Some(axis) => from[axis].clone(),
        None => Dim::Fixed(1),
    };
    target.iter().enumerate().map(copied).collect()
}

const REST: Dim = Dim::Fixed(-1i64 as u64);

fn show(shape: &[Dim]) -> String {
    let dims: Vec<String> =
        shape.iter().map(|d| if *d == REST { "-1".into() } else { d.to_string() }).collect();
    format!("[{}]", dims.join(", "))
}

/// `target` with its -1 replaced; `None` when the element counts cannot be equal.
fn fill_in(from: &[Dim], target: &[Dim]) -> Option<Vec<Dim>> {
    exactly(from, target).or_else(|| {
        // Whether two shapes have as many elements is not seen from names of calculated extents,
        // nor from symbols that only one of them has: it may be so when they are numbers.
        let mut dims = from.iter().chain(target);
        let calculated = dims.any(|d| matches!(d, Dim::Symbol(s) if s.0.contains('.')));
        let calculated = calculated || !have_same_symbols(from, target);
        let rests = target.iter().filter(|d| **d == REST).count();
        let name = || from.iter().chain(target).map(part).collect::<Vec<_>>().join(".");
        (calculated && rests <= 1).then(|| replace_rest(target, named(&format!("{}.rest", name()))))
    })
}

/// Are the symbols of both the same, each as often?
fn have_same_symbols(a: &[Dim], b: &[Dim]) -> bool {
    let symbols = |dims: &[Dim]| {
        let mut all: Vec<Dim> = dims.iter().filter(|d| d.fixed().is_none()).cloned().collect();
        all.sort();
        all
    };
    symbols(a) == symbols(b)
}

/// [`fill_in`], where the names of extents say everything.
fn exactly(from: &[Dim], target: &[Dim]) -> Option<Vec<Dim>> {
    // A count of elements as a number times symbols.
    let count = |dims: &[&Dim]| -> Option<(u64, Vec<Symbol>)> {
        let n = crate::types::count(dims.iter().filter_map(|d| d.fixed()))?;
        let symbols = dims.iter().filter_map(|d| match d {
            Dim::Symbol(s) => Some(s.clone()),
            Dim::Fixed(_) => None,
        });
        let mut symbols: Vec<Symbol> = symbols.collect();
        symbols.sort();
        Some((n, symbols))
    };
    let all: Vec<&Dim> = from.iter().collect();
    let (n, mut symbols) = count(&all)?;
    let given: Vec<&Dim> = target.iter().filter(|d| **d != REST).collect();
    let (m, given_symbols) = count(&given)?;
    match target.len() - given.len() {
        0 => (n == m && symbols == given_symbols).then(|| target.to_vec()),
        1 => {
            for s in &given_symbols {
                symbols.remove(symbols.iter().position(|t| t == s)?);
            }
            let rest = match symbols.as_slice() {
                [] => Dim::Fixed(n.checked_div(m)?),
                [s] if n == m => Dim::Symbol(s.clone()),
                many => {
                    let product: Vec<String> = many.iter().map(Symbol::to_string).collect();
                    let name = format!("{}.mul{n}div{m}", product.join("."));
                    return Some(replace_rest(target, named(&name)));
                }
            };
            n.is_multiple_of(m).then(|| replace_rest(target, rest))
        }
        _ => None,
    }
}

fn replace_rest(target: &[Dim], rest: Dim) -> Vec<Dim> {
    target.iter().map(|d| if *d == REST { rest.clone() } else { d.clone() }).collect()
}

op! {
    /// `x` with its axes in the order `perm`.
    "transpose" since Ios15 => Transpose { x: Value; perm: Vec<i32> }
}

impl OpDef for Transpose {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let x = types.tensor(self.x)?;
        let perm = self.perm.iter().map(|&p| resolve_axis(p, x.rank()));
        let perm: Option<Vec<usize>> = perm.collect();
        let perm = perm.filter(|p| {
            let mut sorted = p.clone();
            sorted.sort_unstable();
            sorted.iter().copied().eq(0..x.rank())
        });
        let Some(perm) = perm else {
            let why = format!("perm {:?} is no order of {} axes", self.perm, x.rank());
            return Err(TypeError::param(why));
        };
        let shape = perm.iter().map(|&p| x.shape[p].clone()).collect();
        Ok(TensorType { dtype: x.dtype, shape }.into())
    }
}

op! {
    /// `x` with axes of extent 1 inserted, at these places of the result.
    "expand_dims" since Ios15 => ExpandDims { x: Value; axes: Vec<i32> }
}

impl OpDef for ExpandDims {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let x = types.tensor(self.x)?;
        let rank = x.rank() + self.axes.len();
        let mut at = Vec::new();
        for &axis in &self.axes {
            let i = resolve_axis(axis, rank);
            at.push(i.ok_or(TypeError::Axis { at: self.x, axis, rank })?);
        }
        at.sort_unstable();
        at.dedup();
        if at.len() != self.axes.len() {
            return Err(TypeError::param(format!("axes {:?} name one axis twice", self.axes)));
        }
        let mut rest = x.shape.iter().cloned();
        let dim = |i| if at.contains(&i) { Some(Dim::Fixed(1)) } else { rest.next() };
        let shape = (0..rank).map_while(dim).collect();
        Ok(Outputs::dims(TensorType { dtype: x.dtype, shape }, types.known_ints(self.x)))
    }
}

op! {
    /// `x` without these axes of extent 1 (without all of them when absent).
    "squeeze" since Ios15 => Squeeze { x: Value; axes: Option<Vec<i32>> }
}

impl OpDef for Squeeze {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let x = types.tensor(self.x)?;
        let one = Dim::Fixed(1);
        let axes = match &self.axes {
            Some(axes) => types.axes(self.x, axes)?,
            None => (0..x.rank()).filter(|&i| x.shape[i] == one).collect(),
        };
        if let Some(&axis) = axes.iter().find(|&&a| x.shape[a] != one) {
            let found = x.shape[axis].clone();
            return Err(TypeError::Extent { at: self.x, axis, found, expected: one });
        }
        let kept = x.shape.iter().enumerate().filter(|(i, _)| !axes.contains(i));
        let shape = kept.map(|(_, d)| d.clone()).collect();
        Ok(Outputs::dims(TensorType { dtype: x.dtype, shape }, types.known_ints(self.x)))
    }
}

op! {
    /// The values one after another along `axis`; interleaved when asked.
    "concat" since Ios15 => Concat { values: Vec<Value>; axis: i32; interleave: bool = false }
}

impl OpDef for Concat {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let Some(&first) = self.values.first() else {
            return Err(TypeError::param("nothing to concatenate"));
        };
        let mut out = types.tensor(first)?.clone();
        let axis = types.axis(first, self.axis)?;
        let mut along = vec![out.shape[axis].clone()];
        for &at in &self.values[1..] {
            let t = types.same_dtype(at, out.dtype)?;
            if t.rank() != out.rank() {
                let (found, expected) = (t.rank(), "that of the first");
                return Err(TypeError::Rank { at, found, expected });
            }
            for i in (0..t.rank()).filter(|&i| i != axis) {
                types.same_extent(at, i, &out.shape[i])?;
                // A number says more than a symbol.
                if t.shape[i].fixed().is_some() {
                    out.shape[i] = t.shape[i].clone();
                }
            }
            along.push(t.shape[axis].clone());
        }
        out.shape[axis] = sum(&along);
        let dims = (out.rank() == 1)
            .then(|| self.values.iter().map(|&v| types.dims(v)).collect::<Option<Vec<_>>>());
        let dims = dims.flatten().map(|d| d.concat()).filter(|d| d.len() <= KNOWN_MAX);
        Ok(Outputs::dims(out, dims))
    }
}

/// The sum of extents; a symbol named after its parts when some are symbols.
fn sum(dims: &[Dim]) -> Dim {
    match dims.iter().map(Dim::fixed).collect::<Option<Vec<u64>>>() {
        Some(n) => Dim::Fixed(n.iter().fold(0u64, |a, &b| a.saturating_add(b))),
        None => {
            let parts: Vec<String> = dims.iter().map(Dim::to_string).collect();
            named(&parts.join(".plus."))
        }
    }
}

op! {
    /// `x` cut along `axis`: into `num_splits` equal parts, or into parts of `split_sizes`.
    "split" since Ios15 => Split {
        x: Value; num_splits: Option<i32>; split_sizes: Option<Vec<i32>>; axis: i32
    }
}

impl Split {
    /// Extents of the parts along the axis, whose extent is `n`.
    pub fn sizes(&self, n: u64) -> Option<Vec<u64>> {
        if let Some(sizes) = &self.split_sizes {
            let sizes: Option<Vec<u64>> = sizes.iter().map(|&s| u64::try_from(s).ok()).collect();
            let sizes = sizes?;
            let total = sizes.iter().try_fold(0u64, |a, &b| a.checked_add(b))?;
            let agrees = self.num_splits.is_none_or(|k| k as usize == sizes.len());
            return (total == n && agrees).then_some(sizes);
        }
        let parts =
            u64::try_from(self.num_splits?).ok().filter(|&p| p > 0 && p <= n.min(PARTS_MAX))?;
        n.is_multiple_of(parts).then(|| vec![n / parts; parts as usize])
    }
}

impl OpDef for Split {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let x = types.wide(self.x)?;
        let axis = types.axis(self.x, self.axis)?;
        let Dim::Fixed(n) = x.shape[axis] else {
            return Err(TypeError::param(format!("axis {axis} has no fixed extent to split")));
        };
        let sizes = self.sizes(n).ok_or_else(|| {
            let parts = (self.num_splits, &self.split_sizes);
            TypeError::param(format!("{n} does not split into {parts:?} parts"))
        })?;
        let known = types.known_ints(self.x).filter(|_| x.rank() == 1);
        let mut begin = 0;
        let part = |size: u64| {
            let mut part = x.clone();
            part.shape[axis] = Dim::Fixed(size);
            let first = begin;
            begin += size as usize;
            let dims = known.as_ref().and_then(|k| k.get(first..begin));
            (part.into(), dims.map(|d| Known::Dims(d.to_vec())))
        };
        Ok(Outputs(sizes.into_iter().map(part).collect()))
    }
}

op! {
    /// Elements `begin..end` of each axis, every `stride`-th. A masked begin or end is that of the
    /// axis; a squeezed axis keeps only `begin` and is dropped.
    "slice_by_index" since Ios15 => SliceByIndex {
        x: Value;
        begin: Value;
        end: Value;
        stride: Option<Vec<i32>>;
        begin_mask: Option<Vec<bool>>;
        end_mask: Option<Vec<bool>>;
        squeeze_mask: Option<Vec<bool>>;
    }
}

/// Parts beyond which a split is refused: a number alone must not make millions of values.
const PARTS_MAX: u64 = 1 << 16;

/// One axis of a slice: where it starts, how far it steps, how many it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SliceAxis {
    pub start: u64,
    pub step: i64,
    pub n: u64,
    /// Is the axis dropped?
    pub squeezed: bool,
}

impl SliceByIndex {
    fn flag(mask: &Option<Vec<bool>>, i: usize) -> bool {
        mask.as_ref().is_some_and(|m| m.get(i).copied().unwrap_or(false))
    }

    /// Axis `i` of extent `n`, sliced from `begin` to `end` (each negative from the back).
    pub fn axis(&self, i: usize, n: u64, begin: i64, end: i64) -> Option<SliceAxis> {
        let step = i64::from(self.stride.as_ref().map_or(1, |s| s.get(i).copied().unwrap_or(1)));
        let n = i64::try_from(n).ok()?;
        let from_front = |v: i64| if v < 0 { v.saturating_add(n) } else { v };
        if Self::flag(&self.squeeze_mask, i) {
            let start = from_front(begin);
            return (0..n).contains(&start).then_some(SliceAxis {
                start: start as u64,
                step: 1,
                n: 1,
                squeezed: true,
            });
        }
        let (lowest, highest) = if step > 0 { (0, n) } else { (-1, n - 1) };
        let masked = |mask, at: i64, whole: i64| {
            if Self::flag(mask, i) { whole } else { from_front(at).clamp(lowest, highest) }
        };
        let (first, last) = if step > 0 { (0, n) } else { (n - 1, -1) };
        let start = masked(&self.begin_mask, begin, first);
        let stop = masked(&self.end_mask, end, last);
        let span = if step > 0 { stop - start } else { start - stop };
        if step == 0 || span < 0 {
            return (step != 0).then_some(SliceAxis { start: 0, step, n: 0, squeezed: false });
        }
        let taken = (span as u64).div_ceil(step.unsigned_abs());
        Some(SliceAxis { start: start.max(0) as u64, step, n: taken, squeezed: false })
    }
}

impl OpDef for SliceByIndex {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let x = types.tensor(self.x)?;
        types.int(self.begin)?;
        types.int(self.end)?;
        let (begin, end) = (types.ints(self.begin), types.ints(self.end));
        for (at, given) in [(self.begin, &begin), (self.end, &end)] {
            if given.as_ref().is_some_and(|g| g.len() != x.rank()) {
                let (found, expected) = (given.as_ref().map_or(0, Vec::len), "one number per axis");
                return Err(TypeError::Rank { at, found, expected });
            }
        }
        let mut shape = Vec::new();
        for (i, d) in x.shape.iter().enumerate() {
            let squeezed = Self::flag(&self.squeeze_mask, i);
            let whole = Self::flag(&self.begin_mask, i) && Self::flag(&self.end_mask, i);
            let step = self.stride.as_ref().map_or(1, |s| s.get(i).copied().unwrap_or(1));
            let numbers = || Some((begin.as_ref()?[i], end.as_ref()?[i]));
            match (d, numbers()) {
                _ if squeezed => {}
                _ if whole && step.unsigned_abs() == 1 => shape.push(d.clone()),
                (Dim::Fixed(n), _) if whole => {
                    let a = self.axis(i, *n, 0, 0);
                    let a = a.ok_or_else(|| TypeError::param("a stride of 0"))?;
                    shape.push(Dim::Fixed(a.n));
                }
                (Dim::Fixed(n), Some((b, e))) => {
                    let a = self.axis(i, *n, b, e);
                    let why = || format!("slice {b}..{e} of axis {i}, which has {n}");
                    shape.push(Dim::Fixed(a.ok_or_else(|| TypeError::param(why()))?.n));
                }
                _ => {
                    let name = format!("{}.slice.{}.{i}", types.name(self.x), types.name(self.end));
                    shape.push(named(&name));
                }
            }
        }
        // Shape arithmetic: a slice of known numbers and symbols is known too.
        let known = types.dims(self.x).filter(|_| x.rank() == 1).and_then(|dims| {
            let (b, e) = (begin.as_ref()?[0], end.as_ref()?[0]);
            let a = self.axis(0, dims.len() as u64, b, e)?;
            let at = |k: u64| (a.start as i64 + k as i64 * a.step) as usize;
            (0..a.n).map(|k| dims.get(at(k)).cloned()).collect()
        });
        Ok(Outputs::dims(TensorType { dtype: x.dtype, shape }, known))
    }
}

op! {
    /// `size` elements of each axis from `begin` on; a size of -1 takes the rest.
    "slice_by_size" since Ios15 => SliceBySize { x: Value; begin: Value; size: Value }
}

impl OpDef for SliceBySize {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let x = types.tensor(self.x)?;
        types.int(self.begin)?;
        types.int(self.size)?;
        let begin = types.ints(self.begin);
        let size = types.dims(self.size);
        for (at, n) in
            [(self.begin, begin.as_ref().map(Vec::len)), (self.size, size.as_ref().map(Vec::len))]
        {
            if let Some(found) = n.filter(|&n| n != x.rank()) {
                return Err(TypeError::Rank { at, found, expected: "one number per axis" });
            }
        }
        let mut shape = Vec::new();
        for (i, d) in x.shape.iter().enumerate() {
            let b = begin.as_ref().map(|b| b[i]);
            let outside = |n: u64| TypeError::Extent {
                at: self.x,
                axis: i,
                found: d.clone(),
                expected: Dim::Fixed(n),
            };
            shape.push(match (size.as_ref().map(|s| &s[i]), d, b) {
                (Some(&REST), Dim::Fixed(n), Some(b)) => {
                    let b = u64::try_from(b).map_err(|_| TypeError::param("a negative begin"))?;
                    Dim::Fixed(n.checked_sub(b).ok_or_else(|| outside(b))?)
                }
                (Some(&REST), d, Some(0)) => d.clone(),
                (Some(Dim::Fixed(s)), Dim::Fixed(n), Some(b)) if *s != REST.fixed().unwrap() => {
                    let end = u64::try_from(b).ok().and_then(|b| b.checked_add(*s));
                    let end = end.ok_or_else(|| TypeError::param("a negative begin"))?;
                    if end > *n {
                        return Err(outside(end));
                    }
                    Dim::Fixed(*s)
                }
                (Some(s), ..) if *s != REST => s.clone(),
                _ => {
                    let name = format!("{}.size.{i}", types.name(self.size));
                    named(&name)
                }
            });
        }
        // Shape arithmetic: a run of known elements is known too.
        let known = types.known_ints(self.x).filter(|_| x.rank() == 1).and_then(|dims| {
            let first = usize::try_from(*begin.as_ref()?.first()?).ok()?;
            let n = usize::try_from(shape[0].fixed()?).ok()?;
            dims.get(first..first.checked_add(n)?).map(<[Dim]>::to_vec)
        });
        Ok(Outputs::dims(TensorType { dtype: x.dtype, shape }, known))
    }
}

op! {
    /// Slices of `x` along `axis`, at `indices` (negative from the back).
    "gather" since Ios15 => Gather {
        x: Value;
        indices: Value;
        axis: i32 = 0;
        batch_dims: i32 = 0, since Ios16;
        validate_indices: bool = false, since Ios17;
    }
}

impl OpDef for Gather {
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError> {
        let x = types.any_number(self.x)?;
        let indices = types.int(self.indices)?;
        let axis = types.axis(self.x, self.axis)?;
        let batch = usize::try_from(self.batch_dims).ok();
        let batch = batch.filter(|&b| b <= axis && b <= indices.rank());
        let Some(batch) = batch else {
            return Err(TypeError::param(format!("batch_dims {}", self.batch_dims)));
        };
        let mut shape = x.shape[..axis].to_vec();
        shape.extend_from_slice(&indices.shape[batch..]);
        shape.extend_from_slice(&x.shape[axis + 1..]);
        // Shape arithmetic: an element of known dims is known too.
        let known = types.dims(self.x).filter(|_| x.rank() == 1).and_then(|dims| {
            let at = |i: i64| dims.get(if i < 0 { i + dims.len() as i64 } else { i } as usize);
            types.ints(self.indices)?.into_iter().map(|i| at(i).cloned()).collect()
        });
        Ok(Outputs::dims(TensorType { dtype: x.dtype, shape }, known))
    }
}
