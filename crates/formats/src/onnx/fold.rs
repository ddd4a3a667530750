//! Evaluation of small constants while a model is read: what exporters make shapes with.
//!
//! Exact in int64, so that "to the end" (2^63 - 1) and products of extents survive until they are
//! used. An op that is not here, or constants that are not small, stay ops for the passes to fold.

use super::elem::Elem;
use super::lit::{Data, Lit, N_MAX, broadcast, places, rounded, wrapped};
use super::node::Attributes;

/// The result of `op` on constants; `None` when it is to become ops.
pub fn fold(op: &str, attrs: &Attributes<'_>, x: &[Option<Lit>], version: i64) -> Option<Lit> {
    let at = |i: usize| x.get(i).and_then(Option::as_ref);
    let a = at(0)?;
    match op {
        "Identity" => Some(a.clone()),
        "Cast" => a.cast(Elem::from_code(i32::try_from(attrs.int("to")?).ok()?).ok()?),
        "CastLike" => a.cast(at(1)?.elem),
        "Add" | "Sub" | "Mul" | "Div" | "Mod" | "Pow" | "BitwiseAnd" => {
            arithmetic(op, attrs, a, at(1)?)
        }
        "Min" | "Max" | "Sum" => {
            x.iter().skip(1).try_fold(a.clone(), |a, b| arithmetic(op, attrs, &a, b.as_ref()?))
        }
        "Equal" | "Greater" | "Less" | "GreaterOrEqual" | "LessOrEqual" | "And" | "Or" | "Xor" => {
            comparison(op, a, at(1)?)
        }
        "Neg" | "Abs" | "Floor" | "Ceil" | "Sqrt" | "Round" | "Reciprocal" | "Not" | "Sign"
        | "Relu" => unary(op, a),
        "Where" => chosen(a, at(1)?, at(2)?),
        "Reshape" => {
            let shape = at(1)?.as_ints()?;
            reshaped(a, shape, attrs.int("allowzero").unwrap_or(0) != 0)
        }
        "Flatten" => None,
        "Unsqueeze" => {
            let axes = axes(attrs, at(1), version)?;
            let rank = a.shape.len() + axes.len();
            let axes = resolved(&axes, rank)?;
            let mut rest = a.shape.iter().copied();
            let shape: Vec<usize> = (0..rank)
                .map(|i| if axes.contains(&i) { Some(1) } else { rest.next() })
                .collect::<Option<_>>()?;
            with_shape(a, shape)
        }
        "Squeeze" => {
            let axes = match axes(attrs, at(1), version) {
                Some(axes) => resolved(&axes, a.shape.len())?,
                None => (0..a.shape.len()).filter(|&i| a.shape[i] == 1).collect(),
            };
            if axes.iter().any(|&i| a.shape[i] != 1) {
                return None;
            }
            let kept = a.shape.iter().enumerate().filter(|(i, _)| !axes.contains(i));
            with_shape(a, kept.map(|(_, &d)| d).collect())
        }
        "Concat" => concat(attrs.int("axis").unwrap_or(0), x),
        "Gather" => gather(attrs.int("axis").unwrap_or(0), a, at(1)?),
        "Slice" => slice(attrs, x, version),
        "Range" => range(a, at(1)?, at(2)?),
        "Expand" => {
            let shape: Option<Vec<usize>> =
                at(1)?.as_ints()?.iter().map(|&d| usize::try_from(d).ok()).collect();
            let shape = broadcast(&a.shape, &shape?)?;
            let data = a.data.pick(&places(&a.shape, &shape)?)?;
            Some(Lit { elem: a.elem, shape, data })
        }
        "Transpose" => {
            let rank = a.shape.len();
            let perm = match attrs.ints("perm") {
                Some(p) => resolved(p, rank)?,
                None => (0..rank).rev().collect(),
            };
            transposed(a, &perm)
        }
        "ReduceProd" | "ReduceSum" | "ReduceMax" | "ReduceMin" => {
            let axes = axes(attrs, at(1), if op == "ReduceSum" { version } else { version - 5 });
            reduced(op, a, axes, attrs.int("keepdims").unwrap_or(1) != 0)
        }
        _ => None,
    }
}

/// `axes` as an attribute before opset 13, as an operand since.
fn axes(attrs: &Attributes<'_>, operand: Option<&Lit>, version: i64) -> Option<Vec<i64>> {
    match version < 13 {
        true => attrs.ints("axes").map(<[i64]>::to_vec),
        false => operand?.as_ints().map(<[i64]>::to_vec),
    }
}

fn resolved(axes: &[i64], rank: usize) -> Option<Vec<usize>> {
    let rank = rank as i64;
    let axis = |&a: &i64| {
        let a = if a < 0 { a.checked_add(rank)? } else { a };
        (0..rank).contains(&a).then_some(a as usize)
    };
    axes.iter().map(axis).collect()
}

fn with_shape(a: &Lit, shape: Vec<usize>) -> Option<Lit> {
    let n = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d))?;
    (n == a.data.len()).then(|| Lit { elem: a.elem, shape, data: a.data.clone() })
}

/// Both broadcast, as f64 or as i64.
fn paired(a: &Lit, b: &Lit) -> Option<(Vec<usize>, Data, Data)> {
    let shape = broadcast(&a.shape, &b.shape)?;
    let x = a.data.pick(&places(&a.shape, &shape)?)?;
    let y = b.data.pick(&places(&b.shape, &shape)?)?;
    Some((shape, x, y))
}

fn arithmetic(op: &str, attrs: &Attributes<'_>, a: &Lit, b: &Lit) -> Option<Lit> {
    let (shape, x, y) = paired(a, b)?;
    let fmod = attrs.int("fmod").unwrap_or(0) != 0;
    let data = match (x, y) {
        (Data::Ints(x), Data::Ints(y)) => {
            let one = |(&x, &y): (&i64, &i64)| {
                let exact = match op {
                    "Add" | "Sum" => x.checked_add(y)?,
                    "Sub" => x.checked_sub(y)?,
                    "Mul" => x.checked_mul(y)?,
                    "Div" => x.checked_div(y)?,
                    "Mod" if fmod => x.checked_rem(y)?,
                    "Mod" => {
                        let rest = x.checked_rem(y)?;
                        if rest != 0 && (rest < 0) != (y < 0) { rest + y } else { rest }
                    }
                    "Pow" => x.checked_pow(u32::try_from(y).ok()?)?,
                    "Min" => x.min(y),
                    "Max" => x.max(y),
                    "BitwiseAnd" => x & y,
                    _ => return None,
                };
                Some(wrapped(exact, a.elem))
            };
            Data::Ints(x.iter().zip(&y).map(one).collect::<Option<_>>()?)
        }
        (Data::Floats(x), Data::Floats(y)) => {
            let one = |(&x, &y): (&f64, &f64)| {
                let exact = match op {
                    "Add" | "Sum" => x + y,
                    "Sub" => x - y,
                    "Mul" => x * y,
                    "Div" => x / y,
                    "Pow" => x.powf(y),
                    // A NaN stays one.
                    "Min" if !x.is_nan() && !y.is_nan() => x.min(y),
                    "Max" if !x.is_nan() && !y.is_nan() => x.max(y),
                    _ => return None,
                };
                Some(rounded(exact, a.elem))
            };
            Data::Floats(x.iter().zip(&y).map(one).collect::<Option<_>>()?)
        }
        _ => return None,
    };
    Some(Lit { elem: a.elem, shape, data })
}

fn comparison(op: &str, a: &Lit, b: &Lit) -> Option<Lit> {
    let (shape, x, y) = paired(a, b)?;
    let order = |x: f64, y: f64| match op {
        "Equal" => x == y,
        "Greater" => x > y,
        "Less" => x < y,
        "GreaterOrEqual" => x >= y,
        _ => x <= y,
    };
    let result: Vec<i64> = match (op, x, y) {
        ("And" | "Or" | "Xor", Data::Ints(x), Data::Ints(y)) => {
            let one = |(&x, &y): (&i64, &i64)| match op {
                "And" => x & y,
                "Or" => x | y,
                _ => x ^ y,
            };
            x.iter().zip(&y).map(one).collect()
        }
        ("And" | "Or" | "Xor", ..) => return None,
        (_, Data::Floats(x), Data::Floats(y)) => {
            x.iter().zip(&y).map(|(&x, &y)| order(x, y).into()).collect()
        }
        (_, Data::Ints(x), Data::Ints(y)) => {
            // As the sign of the comparison, which f64 holds where i64 might not fit.
            let one = |(x, y): (&i64, &i64)| order(x.cmp(y) as i8 as f64, 0.0).into();
            x.iter().zip(&y).map(one).collect()
        }
        _ => return None,
    };
    Some(Lit::ints(Elem::Bool, shape, result))
}

fn unary(op: &str, a: &Lit) -> Option<Lit> {
    let data = match &a.data {
        Data::Ints(v) => {
            let one = |&x: &i64| match op {
                "Neg" => x.checked_neg().map(|x| wrapped(x, a.elem)),
                "Abs" => x.checked_abs(),
                "Not" if a.elem == Elem::Bool => Some(1 - x),
                "Sign" => Some(x.signum()),
                "Relu" => Some(x.max(0)),
                _ => None,
            };
            Data::Ints(v.iter().map(one).collect::<Option<_>>()?)
        }
        Data::Floats(v) => {
            let one = |&x: &f64| {
                let exact = match op {
                    "Neg" => -x,
                    "Abs" => x.abs(),
                    "Floor" => x.floor(),
                    "Ceil" => x.ceil(),
                    "Sqrt" => x.sqrt(),
                    "Round" => x.round_ties_even(),
                    "Reciprocal" => 1.0 / x,
                    "Relu" if !x.is_nan() => x.max(0.0),
                    _ => return None,
                };
                Some(rounded(exact, a.elem))
            };
            Data::Floats(v.iter().map(one).collect::<Option<_>>()?)
        }
    };
    Some(Lit { elem: a.elem, shape: a.shape.clone(), data })
}

fn chosen(cond: &Lit, a: &Lit, b: &Lit) -> Option<Lit> {
    let shape = broadcast(&cond.shape, &broadcast(&a.shape, &b.shape)?)?;
    let yes = cond.data.pick(&places(&cond.shape, &shape)?)?;
    let x = a.data.pick(&places(&a.shape, &shape)?)?;
    let y = b.data.pick(&places(&b.shape, &shape)?)?;
    let Data::Ints(yes) = yes else { return None };
    let data = match (x, y) {
        (Data::Ints(x), Data::Ints(y)) => {
            Data::Ints((0..yes.len()).map(|i| if yes[i] != 0 { x[i] } else { y[i] }).collect())
        }
        (Data::Floats(x), Data::Floats(y)) => {
            Data::Floats((0..yes.len()).map(|i| if yes[i] != 0 { x[i] } else { y[i] }).collect())
        }
        _ => return None,
    };
    Some(Lit { elem: a.elem, shape, data })
}

fn reshaped(a: &Lit, shape: &[i64], allow_zero: bool) -> Option<Lit> {
    let copied = |(i, &d): (usize, &i64)| match d {
        0 if !allow_zero => a.shape.get(i).map(|&d| d as i64),
        d => Some(d),
    };
    let shape: Vec<i64> = shape.iter().enumerate().map(copied).collect::<Option<_>>()?;
    let known = shape.iter().filter(|&&d| d != -1).try_fold(1i64, |n, &d| n.checked_mul(d))?;
    let n = a.data.len() as i64;
    let rest = if known == 0 { 0 } else { n.checked_div(known)? };
    let extent = |&d: &i64| usize::try_from(if d == -1 { rest } else { d }).ok();
    with_shape(a, shape.iter().map(extent).collect::<Option<_>>()?)
}

fn concat(axis: i64, x: &[Option<Lit>]) -> Option<Lit> {
    let all: Vec<&Lit> = x.iter().map(Option::as_ref).collect::<Option<_>>()?;
    let first = *all.first()?;
    let axis = *resolved(&[axis], first.shape.len())?.first()?;
    let outer: usize = first.shape[..axis].iter().product();
    let same = |l: &&Lit| {
        l.shape.len() == first.shape.len()
            && (0..first.shape.len()).all(|i| i == axis || l.shape[i] == first.shape[i])
    };
    let n: usize = all.iter().map(|l| l.data.len()).sum();
    if !all.iter().all(same) || n > N_MAX {
        return None;
    }
    let mut shape = first.shape.clone();
    shape[axis] = all.iter().map(|l| l.shape[axis]).sum();
    let mut data = first.data.pick(&[])?;
    for row in 0..outer {
        for l in &all {
            let width = l.data.len() / outer;
            match (&mut data, &l.data) {
                (Data::Ints(to), Data::Ints(v)) => to.extend(&v[row * width..][..width]),
                (Data::Floats(to), Data::Floats(v)) => to.extend(&v[row * width..][..width]),
                _ => return None,
            }
        }
    }
    Some(Lit { elem: first.elem, shape, data })
}

fn gather(axis: i64, a: &Lit, indices: &Lit) -> Option<Lit> {
    let axis = *resolved(&[axis], a.shape.len())?.first()?;
    let at = resolved(indices.as_ints()?, a.shape[axis])?;
    let outer: usize = a.shape[..axis].iter().product();
    let inner: usize = a.shape[axis + 1..].iter().product();
    if outer.checked_mul(at.len())?.checked_mul(inner)? > N_MAX {
        return None;
    }
    let mut picked = Vec::new();
    for o in 0..outer {
        for &i in &at {
            picked.extend((0..inner).map(|k| (o * a.shape[axis] + i) * inner + k));
        }
    }
    let mut shape = a.shape[..axis].to_vec();
    shape.extend(&indices.shape);
    shape.extend(&a.shape[axis + 1..]);
    Some(Lit { elem: a.elem, shape, data: a.data.pick(&picked)? })
}

/// Where a slice of an axis of extent `n` begins, and how many it takes. Steps are not zero.
pub fn slice_axis(n: i64, start: i64, end: i64, step: i64) -> (i64, i64) {
    let from_front = |i: i64| if i < 0 { i.saturating_add(n) } else { i };
    let (low, high) = if step > 0 { (0, n) } else { (-1, n - 1) };
    let start = from_front(start).clamp(if step > 0 { 0 } else { -1 }, high);
    let end = from_front(end).clamp(low, high);
    let span = if step > 0 { end - start } else { start - end };
    let step = i64::try_from(step.unsigned_abs()).unwrap_or(i64::MAX);
    (start, if span <= 0 { 0 } else { (span - 1) / step + 1 })
}

fn slice(attrs: &Attributes<'_>, x: &[Option<Lit>], version: i64) -> Option<Lit> {
    let a = x.first()?.as_ref()?;
    let of = |name: &str, i: usize| -> Option<Vec<i64>> {
        match version < 10 {
            true => attrs.ints(name).map(<[i64]>::to_vec),
            false => x.get(i)?.as_ref()?.as_ints().map(<[i64]>::to_vec),
        }
    };
    let (starts, ends) = (of("starts", 1)?, of("ends", 2)?);
    let rank = a.shape.len();
    let axes = match of("axes", 3) {
        Some(axes) => resolved(&axes, rank)?,
        None => (0..starts.len()).collect(),
    };
    let steps = of("steps", 4).unwrap_or(vec![1; starts.len()]);
    let mut taken = a.clone();
    for (k, &axis) in axes.iter().enumerate() {
        let step = *steps.get(k)?;
        let n = *taken.shape.get(axis)? as i64;
        if step == 0 {
            return None;
        }
        let (start, count) = slice_axis(n, *starts.get(k)?, *ends.get(k)?, step);
        let at: Vec<i64> = (0..count).map(|i| start + i * step).collect();
        let indices = Lit::ints(Elem::I64, vec![at.len()], at);
        taken = gather(axis as i64, &taken, &indices)?;
    }
    Some(taken)
}

fn range(start: &Lit, end: &Lit, step: &Lit) -> Option<Lit> {
    let one = |l: &Lit| l.as_f64().first().copied();
    let n = ((one(end)? - one(start)?) / one(step)?).ceil();
    let n = (n <= N_MAX as f64).then_some(n.max(0.0) as usize)?;
    let data = match (&start.data, &step.data) {
        (Data::Ints(s), Data::Ints(d)) => {
            Data::Ints((0..n as i64).map(|i| s[0] + i * d[0]).collect())
        }
        (Data::Floats(s), Data::Floats(d)) => {
            Data::Floats((0..n).map(|i| rounded(s[0] + i as f64 * d[0], start.elem)).collect())
        }
        _ => return None,
    };
    Some(Lit { elem: start.elem, shape: vec![n], data })
}

fn transposed(a: &Lit, perm: &[usize]) -> Option<Lit> {
    let mut sorted = perm.to_vec();
    sorted.sort_unstable();
    if !sorted.into_iter().eq(0..a.shape.len()) {
        return None;
    }
    let mut strides = vec![1; a.shape.len()];
    for i in (1..a.shape.len()).rev() {
        strides[i - 1] = strides[i] * a.shape[i];
    }
    let shape: Vec<usize> = perm.iter().map(|&p| a.shape[p]).collect();
    let place = |mut at: usize| {
        let mut place = 0;
        for (i, &p) in perm.iter().enumerate().rev() {
            place += at % shape[i] * strides[p];
            at /= shape[i];
        }
        place
    };
    let picked: Vec<usize> = (0..a.data.len()).map(place).collect();
    let data = a.data.pick(&picked)?;
    Some(Lit { elem: a.elem, shape, data })
}

/// Over all axes, or those of a vector: more is not met in shapes.
fn reduced(op: &str, a: &Lit, axes: Option<Vec<i64>>, keep: bool) -> Option<Lit> {
    let rank = a.shape.len();
    let all = match axes {
        None => true,
        Some(axes) => resolved(&axes, rank)?.len() == rank,
    };
    let v = a.as_ints().filter(|v| all && !v.is_empty())?;
    let one = |x: i64, &y: &i64| match op {
        "ReduceProd" => x.checked_mul(y),
        "ReduceSum" => x.checked_add(y),
        "ReduceMax" => Some(x.max(y)),
        _ => Some(x.min(y)),
    };
    let result = v[1..].iter().try_fold(v[0], one)?;
    let shape = if keep { vec![1; rank] } else { vec![] };
    Some(Lit::ints(a.elem, shape, vec![wrapped(result, a.elem)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ints(v: &[i64]) -> Option<Lit> {
        Some(Lit::ints(Elem::I64, vec![v.len()], v.to_vec()))
    }

    #[test]
    fn shapes_are_calculated() {
        let none = Attributes::none();
        let product = fold("ReduceProd", &none, &[ints(&[2, 3, 4])], 17).unwrap();
        assert_eq!((product.shape.as_slice(), product.as_ints().unwrap()), (&[1][..], &[24][..]));
        let big = ints(&[i64::MAX]);
        let x = [ints(&[5, 6, 7]), ints(&[1]), big];
        assert_eq!(fold("Slice", &none, &x, 13).unwrap().as_ints().unwrap(), [6, 7]);
        let x = [ints(&[5, 6, 7]), ints(&[-1]), ints(&[i64::MIN]), ints(&[0]), ints(&[-2])];
        assert_eq!(fold("Slice", &none, &x, 13).unwrap().as_ints().unwrap(), [7, 5]);
        assert_eq!(
            fold("Div", &none, &[ints(&[-7]), ints(&[2])], 17).unwrap().as_ints(),
            Some(&[-3][..])
        );
        assert_eq!(
            fold("Mod", &none, &[ints(&[-7]), ints(&[2])], 17).unwrap().as_ints(),
            Some(&[1][..])
        );
        assert!(fold("Div", &none, &[ints(&[1]), ints(&[0])], 17).is_none());
        let both = [ints(&[1, 2]), ints(&[3])];
        assert_eq!(fold("Concat", &none, &both, 17).unwrap().shape, [3]);
        assert!(fold("Reshape", &none, &[ints(&[1, 2]), ints(&[3, -1])], 17).is_none());
    }

    #[test]
    fn slices_step_both_ways() {
        assert_eq!(slice_axis(5, 0, i64::MAX, 2), (0, 3));
        assert_eq!(slice_axis(5, -1, i64::MIN, -1), (4, 5));
        assert_eq!(slice_axis(5, 7, 9, 1), (5, 0));
        assert_eq!(slice_axis(5, 20, 0, -4), (4, 1));
        assert_eq!(slice_axis(0, 0, 5, 1), (0, 0));
        assert_eq!(slice_axis(5, 0, 3, i64::MIN), (0, 0));
    }
}
