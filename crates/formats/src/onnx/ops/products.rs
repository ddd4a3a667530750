//! Matrix products.

use std::collections::BTreeMap;

use russet_ir::ops::*;
use russet_ir::{DType, Tensor, Value};

use super::super::cx::{Cx, Import, Outs, Part, small};
use super::super::importer::Why;

pub fn find(op: &str) -> Option<Import> {
    Some(match op {
        "MatMul" => matmul,
        "Gemm" => gemm,
        "Einsum" => einsum,
        "Det" => det,
        _ => return None,
    })
}

fn matmul(cx: &mut Cx<'_, '_>) -> Outs {
    let (x, y) = (cx.x(0)?, cx.x(1)?);
    let z = product(cx, x, y)?;
    cx.same(z)
}

/// numpy's `matmul`: a vector is a row on the left, a column on the right.
pub fn product(cx: &mut Cx<'_, '_>, x: Value, y: Value) -> Result<Value, Why> {
    let (row, column) = (cx.rank(x) == 1, cx.rank(y) == 1);
    let x = if row { cx.expand_dims(x, &[0])? } else { x };
    let y = if column { cx.expand_dims(y, &[1])? } else { y };
    let z = cx.matmul(x, y)?;
    let rank = cx.rank(z);
    let mut extra = Vec::new();
    if row {
        extra.push(rank - 2);
    }
    if column {
        extra.push(rank - 1);
    }
    cx.squeeze(z, &extra)
}

/// `alpha A B + beta C`.
fn gemm(cx: &mut Cx<'_, '_>) -> Outs {
    let (x, y) = (cx.x(0)?, cx.x(1)?);
    let (transpose_x, transpose_y) = (cx.flag("transA", false), cx.flag("transB", false));
    let (alpha, beta) = (cx.float_attr("alpha", 1.0), cx.float_attr("beta", 1.0));
    let c = cx.opt(2)?;
    // A linear layer with its weights as they are.
    let vector = match c {
        None => true,
        Some(c) => {
            cx.tensor(2).is_some() && beta == 1.0 && {
                let shape = cx.shape(c);
                shape.len() == 1 && shape.first() == cx.shape(y).first()
            }
        }
    };
    if !transpose_x
        && transpose_y
        && alpha == 1.0
        && vector
        && cx.tensor(1).is_some()
        && cx.is_float(x)
    {
        let z = cx.push(Linear { x, weight: y, bias: c })?;
        return cx.same(z);
    }
    let mut z = cx.push(Matmul { x, y, transpose_x, transpose_y })?;
    let scaled = |cx: &mut Cx<'_, '_>, v: Value, by: f32| match by == 1.0 {
        true => Ok(v),
        false => cx.scale(v, by.into()),
    };
    z = scaled(cx, z, alpha)?;
    if let Some(c) = c.filter(|_| beta != 0.0) {
        let c = scaled(cx, c, beta)?;
        z = cx.add(z, c)?;
    }
    cx.same(z)
}

/// The terms of an equation: a letter for each axis.
type Term = Vec<char>;

fn einsum(cx: &mut Cx<'_, '_>) -> Outs {
    let equation: String =
        cx.text_attr("equation", "").chars().filter(|c| !c.is_whitespace()).collect();
    let n = cx.n_inputs();
    let values: Vec<Value> = (0..n).map(|i| cx.x(i)).collect::<Result<_, _>>()?;
    let (left, right) = match equation.split_once("->") {
        Some((l, r)) => (l, Some(r)),
        None => (equation.as_str(), None),
    };
    let written: Vec<&str> = left.split(',').collect();
    if written.len() != n {
        return Err(Why(format!("{equation:?} on {n} operands")));
    }
    let mut widest = 0;
    let mut terms: Vec<Term> = Vec::new();
    for (text, &v) in written.iter().zip(&values) {
        let term = spelled(text, cx.rank(v))?;
        widest = widest.max(term.iter().filter(|c| !c.is_alphabetic()).count());
        terms.push(term);
    }
    let output: Term = match right {
        Some(r) => {
            let letters = r.replace("...", "").chars().count();
            spelled(r, letters + if r.contains("...") { widest } else { 0 })?
        }
        None => {
            // Letters that occur once, in order, after the axes of an ellipsis.
            let mut count: BTreeMap<char, usize> = BTreeMap::new();
            terms.iter().flatten().for_each(|&c| *count.entry(c).or_default() += 1);
            let once = |c: &char| !c.is_alphabetic() || count[c] == 1;
            count.keys().copied().filter(|c| once(c)).collect()
        }
    };
    let mut operands = values.into_iter().zip(terms);
    let (mut x, mut term) = operands.next().ok_or("no operand")?;
    let rest: Vec<(Value, Term)> = operands.collect();
    (x, term) = diagonal(cx, x, term)?;
    for (i, (y, other)) in rest.iter().enumerate() {
        let (y, other) = diagonal(cx, *y, other.clone())?;
        let later = rest[i + 1..].iter().flat_map(|r| r.1.iter()).chain(&output);
        let later: Vec<char> = later.copied().collect();
        (x, term) = contracted(cx, (x, term), (y, other), &later)?;
    }
    (x, term) = summed(cx, x, term, &output)?;
    let perm: Option<Vec<usize>> =
        output.iter().map(|c| term.iter().position(|t| t == c)).collect();
    let perm = perm.filter(|p| p.len() == term.len());
    let perm = perm.ok_or_else(|| Why(format!("{equation:?} names an axis nothing has")))?;
    let y = cx.transpose(x, &perm)?;
    cx.same(y)
}

/// A term with a letter for each axis; those of an ellipsis get digits, counted from the last.
fn spelled(text: &str, rank: usize) -> Result<Term, Why> {
    let letters = text.replace("...", "").chars().count();
    let dots = rank.checked_sub(letters).filter(|&d| d == 0 || text.contains("..."));
    let dots = dots.ok_or_else(|| Why(format!("the term {text:?} on {rank} axes")))?;
    if dots > 9 || text.replace("...", "").contains('.') {
        return Err(Why(format!("the term {text:?}")));
    }
    let digits: String = (0..dots).map(|i| char::from(b'9' - (dots - 1 - i) as u8)).collect();
    Ok(text.replacen("...", &digits, 1).chars().collect())
}

/// An axis named twice: only elements where both places are the same.
fn diagonal(cx: &mut Cx<'_, '_>, x: Value, term: Term) -> Result<(Value, Term), Why> {
    let (mut x, mut term) = (x, term);
    while let Some((i, j)) =
        (0..term.len()).find_map(|j| term[..j].iter().position(|c| *c == term[j]).map(|i| (i, j)))
    {
        let n = cx.need_extent(x, i, "a diagonal")?;
        if n > 1 << 12 {
            return Err(Why(format!("a diagonal of {n}")));
        }
        let mask: Vec<u8> = (0..n).flat_map(|a| (0..n).map(move |b| u8::from(a == b))).collect();
        let mut shape = vec![1; term.len()];
        (shape[i], shape[j]) = (n, n);
        let mask = Tensor::new(DType::Bool, shape, mask.into()).map_err(|e| Why(e.to_string()))?;
        let mask = cx.constant(mask)?;
        let zero = cx.number(0.0, x)?;
        let kept = cx.select(mask, x, zero)?;
        x = cx.push(ReduceSum { x: kept, axes: Some(small(&[j])), keep_dims: false })?;
        term.remove(j);
    }
    Ok((x, term))
}

/// Sums over the axes nobody names any more.
fn summed(cx: &mut Cx<'_, '_>, x: Value, term: Term, kept: &[char]) -> Result<(Value, Term), Why> {
    let gone: Vec<usize> = (0..term.len()).filter(|&i| !kept.contains(&term[i])).collect();
    if gone.is_empty() {
        return Ok((x, term));
    }
    let x = cx.push(ReduceSum { x, axes: Some(small(&gone)), keep_dims: false })?;
    Ok((x, term.into_iter().filter(|c| kept.contains(c)).collect()))
}

/// The product of two terms, summed over what neither the other terms nor the output name.
fn contracted(
    cx: &mut Cx<'_, '_>,
    (x, a): (Value, Term),
    (y, b): (Value, Term),
    later: &[char],
) -> Result<(Value, Term), Why> {
    let kept_of = |other: &[char]| -> Vec<char> { later.iter().chain(other).copied().collect() };
    let (x, a) = summed(cx, x, a.clone(), &kept_of(&b))?;
    let (y, b) = summed(cx, y, b.clone(), &kept_of(&a))?;
    let both = |c: &char| b.contains(c);
    let batch: Term = a.iter().copied().filter(|c| both(c) && later.contains(c)).collect();
    let inner: Term = a.iter().copied().filter(|c| both(c) && !later.contains(c)).collect();
    let rows: Term = a.iter().copied().filter(|c| !both(c)).collect();
    let columns: Term = b.iter().copied().filter(|c| !a.contains(c)).collect();
    let part = |v: Value, term: &[char], c: char| {
        Part::Of(v, term.iter().position(|t| *t == c).unwrap_or(0))
    };
    let order = |term: &[char], groups: [&Term; 3]| -> Vec<usize> {
        let all = groups.into_iter().flatten();
        all.filter_map(|c| term.iter().position(|t| t == c)).collect()
    };
    let xt = cx.transpose(x, &order(&a, [&batch, &rows, &inner]))?;
    let yt = cx.transpose(y, &order(&b, [&batch, &inner, &columns]))?;
    // One axis for the rows, one for what is summed, one for the columns.
    let mut flat = |v: Value, first: usize, second: usize| -> Result<Value, Why> {
        let n = batch.len();
        let mut parts: Vec<Part> = (0..n).map(|i| Part::Of(v, i)).collect();
        for (begin, len) in [(n, first), (n + first, second)] {
            parts.push(match len {
                0 => Part::N(1),
                1 => Part::Of(v, begin),
                _ => {
                    let shape = cx.shape(v)[begin..begin + len].to_vec();
                    let n: Option<Vec<u64>> = shape.iter().map(russet_ir::Dim::fixed).collect();
                    n.map_or(Part::Rest, |n| Part::N(n.iter().product()))
                }
            });
        }
        match (first, second) {
            (1, 1) => Ok(v),
            _ => cx.reshape(v, &parts),
        }
    };
    let left = flat(xt, rows.len(), inner.len())?;
    let right = flat(yt, inner.len(), columns.len())?;
    let z = cx.matmul(left, right)?;
    let mut parts: Vec<Part> = (0..batch.len()).map(|i| Part::Of(z, i)).collect();
    parts.extend(rows.iter().map(|&c| part(x, &a, c)));
    parts.extend(columns.iter().map(|&c| part(y, &b, c)));
    let z = match (rows.len(), columns.len()) {
        (1, 1) => z,
        _ => cx.reshape(z, &parts)?,
    };
    Ok((z, batch.into_iter().chain(rows).chain(columns).collect()))
}

/// Determinants of matrices of at most three rows, written out.
fn det(cx: &mut Cx<'_, '_>) -> Outs {
    let x = cx.x(0)?;
    let rank = cx.rank(x);
    let n = cx.need_extent(x, rank.saturating_sub(1), "a determinant")?;
    if !(1..=3).contains(&n) || rank < 2 {
        return Err(Why(format!("a determinant of {n} rows has no op in MIL")));
    }
    let mut at = |i: u64, j: u64| -> Result<Value, Why> {
        let (i, j) = ((i % n) as i64, (j % n) as i64);
        let row = cx.slice(x, rank - 2, i, Some(i + 1))?;
        let one = cx.slice(row, rank - 1, j, Some(j + 1))?;
        cx.squeeze(one, &[rank - 2, rank - 1])
    };
    if n == 1 {
        let y = at(0, 0)?;
        return cx.same(y);
    }
    // Products along the diagonals down, less those along the diagonals up.
    let turns = if n == 2 { 1 } else { 3 };
    let mut factors = Vec::new();
    for turn in 0..turns {
        let down = (0..n).map(|i| at(i, turn + i)).collect::<Result<Vec<_>, _>>()?;
        let up =
            (0..n).map(|i| at(i, turn + n - 1 + (n - 1) * i)).collect::<Result<Vec<_>, _>>()?;
        factors.push((down, up));
    }
    let mut total: Option<Value> = None;
    for (down, up) in factors {
        let mut product = |factors: Vec<Value>| -> Result<Value, Why> {
            let mut all = factors[0];
            for &f in &factors[1..] {
                all = cx.mul(all, f)?;
            }
            Ok(all)
        };
        let (down, up) = (product(down)?, product(up)?);
        let one = cx.sub(down, up)?;
        total = Some(match total {
            Some(t) => cx.add(t, one)?,
            None => one,
        });
    }
    let y = total.ok_or("a determinant of nothing")?;
    cx.same(y)
}
