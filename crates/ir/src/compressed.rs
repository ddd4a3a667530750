//! Compressed weights: how the elements of a `constexpr_` op are computed, any range of them.
//!
//! A model's weights stay as small in memory as they are on disk: a kernel decodes the rows it is
//! about to multiply by. Ranges are decoded a row of the last axis at a time, since along it blocks
//! and groups are runs.

use std::sync::Arc;

use bytes::Bytes;

use crate::ops::index_bits;
use crate::{DType, Def, Graph, Op, Tensor, Value};

/// What the elements are computed from. Floats of any width are computed in f32 and rounded to
/// the result's type once.
pub(crate) enum Compressed {
    /// `(data - offset) * scale`, of blocks.
    Blocks { data: Tensor, blocks: Blocks },
    /// `lut[indices]`, of groups.
    Lut { indices: Tensor, lut: Lut },
    /// `nonzero` where the mask is set, else 0.
    Sparse { nonzero: Tensor, mask: Mask },
    /// As `Blocks`, of the elements where the mask is set only.
    MaskedBlocks { nonzero: Tensor, mask: Mask, shape: Vec<u64>, blocks: Blocks },
    /// As `Lut`, of the indices where the mask is set only.
    MaskedLut { nonzero: Tensor, mask: Mask, shape: Vec<u64>, lut: Lut },
}

/// A number for each block of a tensor.
pub(crate) struct Blocks {
    scale: Tensor,
    offset: Option<Tensor>,
    /// Elements of a block along each axis.
    size: Vec<u64>,
}

/// Tables of vectors, one for each group of indices.
pub(crate) struct Lut {
    /// `[groups.., entries, vector]` in a row.
    table: Vec<f32>,
    groups: Vec<u64>,
    /// Indices of a group along each axis.
    size: Vec<u64>,
    entries: u64,
    vector: u64,
    vector_axis: usize,
}

/// Bits in a row, with a count kept now and then so that any of them can be found.
pub(crate) struct Mask {
    bits: Bytes,
    n: u64,
    /// Set bits before each stretch of [`STRETCH`].
    before: Vec<u64>,
}

/// Bits between kept counts.
const STRETCH: u64 = 1 << 12;

/// Nesting of compressed weights beyond which none is decoded; real ones nest twice.
const DEPTH_MAX: usize = 8;

impl Graph {
    /// The constant `v` is, or will be when the model is loaded; nothing is decoded yet.
    ///
    /// `None` for what is no weight, and for one that cannot be decoded, as when a mask has not as
    /// many bits set as there are numbers.
    pub fn weight(&self, v: Value) -> Option<Tensor> {
        weight(self, v, 0)
    }
}

fn weight(g: &Graph, v: Value, depth: usize) -> Option<Tensor> {
    if let Some(t) = g.constant(v) {
        return Some(t.clone());
    }
    let Def::Node(id, output) = g.value(v).def else { return None };
    let ty = g.ty(v).tensor()?;
    let (dtype, shape) = (ty.dtype, ty.fixed_shape()?);
    let of = |v: Value| weight(g, v, depth + 1);
    if depth > DEPTH_MAX {
        return None;
    }
    let data = match &g.node(id).op {
        Op::ConstexprAffineDequantize(op) => {
            let axis = crate::resolve_axis(op.axis, shape.len())?;
            let per_axis = |t: Tensor| {
                let mut blocks = vec![1; shape.len()];
                blocks[axis] = t.n_elements();
                t.reshaped(blocks)
            };
            let blocks =
                Blocks::new(per_axis(of(op.scale)?), Some(per_axis(of(op.zero_point)?)), &shape)?;
            Compressed::Blocks { data: of(op.quantized_data)?, blocks }
        }
        Op::ConstexprBlockwiseShiftScale(op) => {
            let offset = op.offset.map(|v| of(v).ok_or(())).transpose().ok()?;
            let blocks = Blocks::new(of(op.scale)?, offset, &shape)?;
            Compressed::Blocks { data: of(op.data)?, blocks }
        }
        Op::ConstexprPackedLutToDense(op) => {
            let lut = of(op.lut)?;
            let bits = index_bits(lut.n_elements())?;
            let packed = of(op.indices)?.to_bytes();
            let indices = Tensor::new(unsigned(bits)?, shape.clone(), packed).ok()?;
            let mut table = vec![1; shape.len()];
            table.extend([lut.n_elements(), 1]);
            Compressed::Lut { indices, lut: Lut::new(lut.reshaped(table), &shape, None)? }
        }
        Op::ConstexprLutToDense(op) => {
            let indices = of(op.indices)?;
            let lut = Lut::new(of(op.lut)?, &indices.shape, op.vector_axis)?;
            Compressed::Lut { indices, lut }
        }
        Op::ConstexprPackedSparseToDense(op) => {
            let mask = Mask::new(of(op.mask)?.to_bytes(), shape.iter().product());
            Compressed::Sparse { nonzero: mask.nonzero(of(op.nonzero_data)?)?, mask }
        }
        Op::ConstexprSparseToDense(op) => {
            let mask = Mask::new(of(op.mask)?.to_bytes(), shape.iter().product());
            Compressed::Sparse { nonzero: mask.nonzero(of(op.nonzero_data)?)?, mask }
        }
        Op::ConstexprSparseBlockwiseShiftScale(op) => {
            let mask = of(op.data_mask)?;
            if output == 0 {
                return Some(mask);
            }
            let offset = op.offset.map(|v| of(v).ok_or(())).transpose().ok()?;
            let blocks = Blocks::new(of(op.scale)?, offset, &mask.shape)?;
            let (shape, n) = (mask.shape.clone(), mask.n_elements());
            let mask = Mask::new(mask.to_bytes(), n);
            let nonzero = mask.nonzero(of(op.nonzero_data)?)?;
            Compressed::MaskedBlocks { nonzero, mask, shape, blocks }
        }
        Op::ConstexprLutToSparse(op) => {
            let mask = of(op.indices_mask)?;
            let lut = Lut::new(of(op.lut)?, &mask.shape, op.vector_axis)?;
            if output == 0 {
                return lut.mask(&mask, shape);
            }
            let (indices, n) = (mask.shape.clone(), mask.n_elements());
            let mask = Mask::new(mask.to_bytes(), n);
            let nonzero = mask.nonzero(of(op.indices_nonzero_data)?)?;
            if lut.vector != 1 {
                return lut.vectors(&nonzero, &mask, &indices, dtype);
            }
            Compressed::MaskedLut { nonzero, mask, shape: indices, lut }
        }
        Op::ConstexprCast(op) => {
            let source = of(op.source_val)?;
            return (source.dtype.is_float() && matches!(dtype, DType::F16 | DType::F32))
                .then(|| source.cast(dtype));
        }
        _ => return None,
    };
    Some(Tensor::compressed(dtype, shape, Arc::new(data)))
}

/// The integer of so many bits.
fn unsigned(bits: u64) -> Option<DType> {
    [DType::U1, DType::U2, DType::U3, DType::U4, DType::U6, DType::U8]
        .into_iter()
        .find(|d| d.bits() == bits)
}

impl Compressed {
    /// Appends elements `start..start + n` of a tensor of `shape`, not rounded yet.
    pub fn floats(&self, shape: &[u64], start: u64, n: u64, out: &mut Vec<f32>) {
        match self {
            Compressed::Blocks { data, blocks } => {
                data.floats(start, n, out);
                let first = out.len() - n as usize;
                let mut rest = &mut out[first..];
                for_each_run(shape, start, n, |at, from, len| {
                    let (run, after) = std::mem::take(&mut rest).split_at_mut(len as usize);
                    blocks.apply(at, from, run);
                    rest = after;
                });
            }
            Compressed::Lut { indices, lut } => for_each_run(shape, start, n, |at, from, len| {
                lut.look_up(indices, at, from, len, out);
            }),
            Compressed::Sparse { nonzero, mask } => mask.spread(nonzero, start, n, out),
            Compressed::MaskedBlocks { nonzero, mask, shape, blocks } => {
                nonzero.floats(start, n, out);
                let first = out.len() - n as usize;
                let numbers = out[first..].iter_mut();
                mask.places(start).zip(numbers).for_each(|(place, x)| {
                    let at = coordinates(shape, place);
                    let (last, outer) = at.split_last().expect("a rank");
                    blocks.apply(outer, *last, std::slice::from_mut(x));
                });
            }
            Compressed::MaskedLut { nonzero, mask, shape, lut } => {
                nonzero.floats(start, n, out);
                let first = out.len() - n as usize;
                let numbers = out[first..].iter_mut();
                mask.places(start).zip(numbers).for_each(|(place, x)| {
                    *x = lut.entry(&coordinates(shape, place), *x as u64, 0);
                });
            }
        }
    }
}

/// Where element `flat` of a tensor is.
fn coordinates(shape: &[u64], mut flat: u64) -> Vec<u64> {
    let mut at = vec![0; shape.len()];
    for (x, &n) in at.iter_mut().zip(shape).rev() {
        (*x, flat) = (flat % n.max(1), flat / n.max(1));
    }
    at
}

/// Elements `start..start + n` as runs along the last axis: where they are on the axes before, the
/// first of them on the last axis, how many.
fn for_each_run(shape: &[u64], start: u64, n: u64, mut f: impl FnMut(&[u64], u64, u64)) {
    let Some((&row, outer)) = shape.split_last() else { return };
    let (mut at, end) = (start, start + n);
    while at < end && row > 0 {
        let from = at % row;
        let len = (row - from).min(end - at);
        f(&coordinates(outer, at / row), from, len);
        at += len;
    }
}

impl Blocks {
    /// `None` when the numbers do not divide `shape` into blocks.
    fn new(scale: Tensor, offset: Option<Tensor>, shape: &[u64]) -> Option<Blocks> {
        let same = offset.as_ref().is_none_or(|o| o.shape == scale.shape);
        let size = block_sizes(shape, &scale.shape)?;
        same.then_some(Blocks { scale, offset, size })
    }

    /// Shifts and scales a run that begins at `from` on the last axis.
    fn apply(&self, outer: &[u64], from: u64, run: &mut [f32]) {
        let Some((&size, sizes)) = self.size.split_last() else { return };
        let mut base = 0;
        for ((&x, &size), &n) in outer.iter().zip(sizes).zip(&self.scale.shape) {
            base = base * n + x / size;
        }
        base *= self.scale.shape[self.scale.shape.len() - 1];
        let (first, last) = (from / size, (from + run.len() as u64 - 1) / size);
        let (mut scales, mut offsets) = (Vec::new(), Vec::new());
        self.scale.floats(base + first, last - first + 1, &mut scales);
        if let Some(offset) = &self.offset {
            offset.floats(base + first, last - first + 1, &mut offsets);
        }
        let mut begin = 0;
        for (i, scale) in scales.into_iter().enumerate() {
            let block = first + i as u64;
            let end = (((block + 1) * size - from) as usize).min(run.len());
            let offset = offsets.get(i).copied().unwrap_or(0.0);
            run[begin..end].iter_mut().for_each(|x| *x = (*x - offset) * scale);
            begin = end;
        }
    }
}

/// How many elements of `shape` each of `parts` stands for.
fn block_sizes(shape: &[u64], parts: &[u64]) -> Option<Vec<u64>> {
    let size = |(&n, &p): (&u64, &u64)| (p > 0 && n.is_multiple_of(p)).then(|| (n / p).max(1));
    (shape.len() == parts.len()).then(|| shape.iter().zip(parts).map(size).collect())?
}

impl Lut {
    /// `None` when the tables do not divide indices of this shape.
    fn new(table: Tensor, indices: &[u64], vector_axis: Option<i32>) -> Option<Lut> {
        let (groups, &[entries, vector]) = table.shape.split_last_chunk::<2>()?;
        let vector_axis = match vector_axis {
            Some(axis) => crate::resolve_axis(axis, indices.len())?,
            None => 0,
        };
        let size = block_sizes(indices, groups)?;
        let groups = groups.to_vec();
        Some(Lut { table: table.to_f32(), groups, size, entries, vector, vector_axis })
    }

    /// Where the table of the group of these indices begins, all axes but the last given.
    fn group(&self, at: impl Iterator<Item = u64>) -> u64 {
        let each = at.zip(&self.size).zip(&self.groups);
        each.fold(0, |base, ((x, size), n)| base * n + x / size)
    }

    /// Number `component` of the vector that `index` at `at` stands for.
    fn entry(&self, at: &[u64], index: u64, component: u64) -> f32 {
        let group = self.group(at.iter().copied());
        self.table[((group * self.entries + index) * self.vector + component) as usize]
    }

    /// Appends a run of the result that begins at `from` on the last axis.
    fn look_up(&self, indices: &Tensor, outer: &[u64], from: u64, len: u64, out: &mut Vec<f32>) {
        let last = outer.len();
        let row = indices.shape[last];
        // Where the result's vectors lie along the last axis, several of it share an index.
        let per_index = if self.vector_axis == last { self.vector } else { 1 };
        let component = match outer.get(self.vector_axis) {
            Some(x) => x % self.vector,
            None => 0,
        };
        let along =
            |(i, &x): (usize, &u64)| if i == self.vector_axis { x / self.vector } else { x };
        let place: Vec<u64> = outer.iter().enumerate().map(along).collect();
        let base = place.iter().zip(&indices.shape).fold(0, |flat, (x, n)| flat * n + x);
        let (first, end) = (from / per_index, (from + len).div_ceil(per_index));
        let mut found = Vec::new();
        indices.floats(base * row + first, end - first, &mut found);
        let group = self.group(place.into_iter()) * self.groups[last];
        for x in from..from + len {
            let i = x / per_index;
            let table = (group + i / self.size[last]) * self.entries;
            let index = found[(i - first) as usize] as u64;
            let component = if per_index > 1 { x % per_index } else { component };
            out.push(self.table[((table + index) * self.vector + component) as usize]);
        }
    }

    /// The mask with every bit as often along the vector axis as a vector has numbers.
    fn mask(&self, mask: &Tensor, shape: Vec<u64>) -> Option<Tensor> {
        if self.vector == 1 {
            return Some(mask.clone());
        }
        let (n, inner): (u64, u64) =
            (shape.iter().product(), shape[self.vector_axis + 1..].iter().product());
        let bits = Mask::new(mask.to_bytes(), mask.n_elements());
        let mut bytes = vec![0u8; n.div_ceil(8) as usize];
        let stride = inner * self.vector;
        for i in 0..n {
            let from = i / stride * inner + i % inner;
            if bits.is_set(from) {
                bytes[(i / 8) as usize] |= 1 << (i % 8);
            }
        }
        Tensor::new(DType::U1, shape, bytes.into()).ok()
    }

    /// The nonzero numbers of a result whose vectors have more than one: they are not in the order
    /// of their indices, so all are made at once.
    fn vectors(
        &self,
        nonzero: &Tensor,
        mask: &Mask,
        shape: &[u64],
        dtype: DType,
    ) -> Option<Tensor> {
        let indices = nonzero.to_f32();
        let inner: u64 = shape[self.vector_axis + 1..].iter().product();
        let mut placed: Vec<(u64, f32)> = Vec::new();
        for (place, index) in mask.places(0).zip(indices) {
            let at = coordinates(shape, place);
            for component in 0..self.vector {
                let row = place / inner * self.vector + component;
                let value = self.entry(&at, index as u64, component);
                placed.push((row * inner + place % inner, value));
            }
        }
        placed.sort_by_key(|p| p.0);
        let values: Vec<f32> = placed.into_iter().map(|p| p.1).collect();
        let t = Tensor::f32(vec![values.len() as u64], &values);
        t.can_be_cast(dtype).then(|| t.cast(dtype))
    }
}

impl Mask {
    fn new(bits: Bytes, n: u64) -> Mask {
        let mut mask = Mask { bits, n, before: vec![0] };
        let stretches = mask.bits.chunks((STRETCH / 8) as usize);
        let mut total = 0;
        for stretch in stretches {
            total += stretch.iter().map(|b| u64::from(b.count_ones())).sum::<u64>();
            mask.before.push(total);
        }
        mask
    }

    fn is_set(&self, i: u64) -> bool {
        self.bits.get((i / 8) as usize).is_some_and(|b| b >> (i % 8) & 1 == 1)
    }

    /// `data`, if it has a number for each bit that is set.
    fn nonzero(&self, data: Tensor) -> Option<Tensor> {
        // Bits past the end do not count.
        let spare = (self.n..self.bits.len() as u64 * 8).filter(|&i| self.is_set(i)).count();
        let set = self.before[self.before.len() - 1] - spare as u64;
        (data.n_elements() == set).then_some(data)
    }

    /// Bits set before bit `i`.
    fn rank(&self, i: u64) -> u64 {
        let stretch = i / STRETCH;
        let within = (stretch * STRETCH..i).filter(|&i| self.is_set(i)).count() as u64;
        self.before[stretch as usize] + within
    }

    /// Places of set bits, from the `k`-th on.
    fn places(&self, k: u64) -> impl Iterator<Item = u64> {
        let stretch = self.before.partition_point(|&n| n <= k).saturating_sub(1);
        let skipped = (k - self.before[stretch]) as usize;
        let first = stretch as u64 * STRETCH;
        (first..self.n).filter(|&i| self.is_set(i)).skip(skipped)
    }

    /// Appends elements `start..start + n`: the next nonzero number where a bit is set, else 0.
    fn spread(&self, nonzero: &Tensor, start: u64, n: u64, out: &mut Vec<f32>) {
        let (first, end) = (self.rank(start), self.rank(start + n));
        let mut numbers = Vec::new();
        nonzero.floats(first, end - first, &mut numbers);
        let mut numbers = numbers.into_iter();
        out.extend((start..start + n).map(|i| match self.is_set(i) {
            true => numbers.next().unwrap_or(0.0),
            false => 0.0,
        }));
    }
}
