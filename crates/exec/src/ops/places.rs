//! Where the elements of a result come from: places in a tensor, counted in memory order.

use super::{Operands, checked_len};
use crate::kernels::strided::{self, Axis};
use crate::{Array, ExecError, Numbers};

/// Calls `f` with the index of every element of a shape, in order.
pub(super) fn each_index(shape: &[usize], mut f: impl FnMut(&[usize])) {
    if shape.contains(&0) {
        return;
    }
    let mut index = vec![0; shape.len()];
    loop {
        f(&index);
        let Some(axis) = (0..shape.len()).rev().find(|&i| index[i] + 1 < shape[i]) else { return };
        index[axis] += 1;
        index[axis + 1..].fill(0);
    }
}

/// The place of an index.
pub(super) fn place(index: &[usize], strides: &[usize]) -> usize {
    index.iter().zip(strides).map(|(i, s)| i * s).sum()
}

/// Places in a tensor of shape `from` when each axis is chosen from alone: `chosen` has, for every
/// place of the result's axis, one of the source's, or none for an element that is not there.
pub(super) fn separable(from: &[usize], chosen: &[Vec<Option<usize>>]) -> Vec<Option<usize>> {
    let strides = strided::strides(from);
    let mut places = vec![Some(0)];
    for (axis, stride) in chosen.iter().zip(strides) {
        let next = places.iter().flat_map(|&p| axis.iter().map(move |&i| Some(p? + i? * stride)));
        places = next.collect();
    }
    places
}

impl Numbers {
    /// The elements at these places, and one of another's where there is none.
    pub(super) fn pick_or(&self, places: &[Option<usize>], absent: &Numbers) -> Option<Numbers> {
        fn pick<T: Copy>(x: &[T], places: &[Option<usize>], absent: T) -> Vec<T> {
            places.iter().map(|p| p.map_or(absent, |p| x[p])).collect()
        }
        Some(match (self, absent) {
            (Numbers::F32(x), Numbers::F32(y)) => Numbers::F32(pick(x, places, *y.first()?)),
            (Numbers::I32(x), Numbers::I32(y)) => Numbers::I32(pick(x, places, *y.first()?)),
            (Numbers::Bool(x), Numbers::Bool(y)) => Numbers::Bool(pick(x, places, *y.first()?)),
            _ => return None,
        })
    }

    /// A zero, or false, of the same kind.
    pub(super) fn zero(&self) -> Numbers {
        match self {
            Numbers::F32(_) => Numbers::F32(vec![0.0]),
            Numbers::I32(_) => Numbers::I32(vec![0]),
            Numbers::Bool(_) => Numbers::Bool(vec![false]),
        }
    }
}

/// The elements of `a` along other axes of its memory.
pub(super) fn viewed(a: &Array, axes: Vec<Axis>, shape: Vec<usize>) -> Result<Array, ExecError> {
    let n = checked_len(&shape)?;
    let data = super::moved(&a.data, n, |from, to| {
        strided::copy(from, 0, axes, to);
        Ok(())
    })?;
    Ok(Array { shape, data })
}

/// `a` seen with the axes `split`, those in the order `perm`, and the result under `shape`.
pub(super) fn rearranged(
    x: &Operands<'_>,
    a: &Array,
    split: &[usize],
    perm: &[usize],
    shape: Vec<usize>,
) -> Result<Array, ExecError> {
    if checked_len(split)? != a.n_elements() || checked_len(&shape)? != a.n_elements() {
        return Err(x.fail(format!("{:?} is not made of such blocks", a.shape)));
    }
    let axes = strided::axes(split);
    viewed(a, perm.iter().map(|&p| axes[p]).collect(), shape)
}

impl Operands<'_> {
    /// An index into an axis of `n`, negative from the back.
    pub(super) fn index(&self, i: i64, n: usize) -> Result<usize, ExecError> {
        let at = if i < 0 { i + n as i64 } else { i };
        let at = usize::try_from(at).ok().filter(|&at| at < n);
        at.ok_or_else(|| self.fail(format!("index {i} is outside of an axis of {n}")))
    }

    /// The only integer of an operand.
    pub(super) fn one_int(&self, v: russet_ir::Value) -> Result<i64, ExecError> {
        match self.ints(v)?[..] {
            [one] => Ok(one),
            ref other => Err(self.fail(format!("{} integers, one is expected", other.len()))),
        }
    }

    /// The extents an operand is.
    pub(super) fn extents(&self, v: russet_ir::Value) -> Result<Vec<usize>, ExecError> {
        let ints = self.ints(v)?;
        let extents = ints.iter().map(|&i| usize::try_from(i).ok()).collect::<Option<_>>();
        extents.ok_or_else(|| self.fail(format!("a shape of {ints:?}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_come_in_memory_order() {
        let mut seen = Vec::new();
        each_index(&[2, 1, 3], |i| seen.push(place(i, &strided::strides(&[2, 1, 3]))));
        assert_eq!(seen, [0, 1, 2, 3, 4, 5]);
        each_index(&[2, 0], |_| panic!("an empty shape has no index"));
        let mut n = 0;
        each_index(&[], |_| n += 1);
        assert_eq!(n, 1);
    }
}
