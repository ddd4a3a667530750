//! Which unknown dimensions of a function's inputs are the same, and what they may be.

use std::collections::BTreeMap;

use russet_ir::{Binding, Dim, Graph, Opset, Symbol, Symbols, Type};

use super::features::{self, Feature, ImageSizes, Kind, Shapes, Span};
use super::hints::Hint;

/// What is known of one unknown dimension. Two about which the same is known are one symbol.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Extent {
    /// In each of the allowed combinations.
    Column(Vec<u64>),
    /// The axis keeps height and width of an image apart.
    Range(usize, Span),
}

/// Puts symbols into the unknown dimensions of `inputs` and says what they may stand for.
///
/// A note by our own writer is believed when it says what the description says. Otherwise
/// dimensions that have the same extents in all combinations, or the same axis and range, are
/// taken to be one: that is how models with an id and a mask of one length look.
pub fn resolve(
    inputs: &mut [(String, Type)],
    features: &[Feature],
    hint: Option<&Hint>,
    opset: Opset,
) -> Symbols {
    if let Some(symbols) = hint.and_then(|h| by_hint(inputs, features, h, opset)) {
        return symbols;
    }
    let mut names: BTreeMap<Extent, Symbol> = BTreeMap::new();
    let mut rows: Option<Vec<Binding>> = None;
    let mut symbols = Symbols::default();
    for (name, ty) in inputs.iter_mut() {
        let Type::Tensor(t) = ty else { continue };
        let Some(feature) = features.iter().find(|f| f.name == *name) else { continue };
        let rank = t.shape.len();
        let unknown = t.shape.iter_mut().enumerate().filter(|(_, d)| d.fixed().is_none());
        for (axis, dim) in unknown {
            let extent = match extent(&feature.kind, axis, rank) {
                Some(Extent::Column(c)) if c.iter().all(|n| Some(n) == c.first()) => {
                    *dim = Dim::Fixed(c[0]);
                    continue;
                }
                // Combinations of different number do not belong together: only ends are known.
                Some(Extent::Column(c)) if rows.as_ref().is_some_and(|r| r.len() != c.len()) => {
                    let (low, high) = (c.iter().min(), c.iter().max());
                    Extent::Range(axis, (low.copied().unwrap_or(1), high.copied()))
                }
                Some(extent) => extent,
                None => continue,
            };
            let fresh = Symbol::new(&format!("s{}", names.len()));
            let symbol = names.entry(extent.clone()).or_insert(fresh).clone();
            match extent {
                Extent::Column(column) => {
                    let rows = rows.get_or_insert_with(|| vec![Binding::new(); column.len()]);
                    for (row, n) in rows.iter_mut().zip(column) {
                        row.insert(symbol.clone(), n);
                    }
                }
                Extent::Range(_, span) => {
                    symbols.ranges.insert(symbol.clone(), span);
                }
            }
            *dim = Dim::Symbol(symbol);
        }
    }
    symbols.enumerated = rows.unwrap_or_default();
    symbols
}

/// What the description says about one axis of an input of this rank.
fn extent(kind: &Kind, axis: usize, rank: usize) -> Option<Extent> {
    // The default combination first: whoever picks one picks that.
    let default_first = |mut column: Vec<u64>, at: Option<usize>| {
        if let Some(at) = at {
            column[..=at].rotate_right(1);
        }
        (!column.is_empty()).then_some(Extent::Column(column))
    };
    match kind {
        Kind::Array(a) => match &a.flexible {
            Shapes::Fixed => a.shape.get(axis).map(|&n| Extent::Column(vec![n])),
            Shapes::Enumerated(shapes) => {
                let column: Option<Vec<u64>> =
                    shapes.iter().map(|s| s.get(axis).copied()).collect();
                default_first(column?, shapes.iter().position(|s| *s == a.shape))
            }
            Shapes::Ranges(spans) => spans.get(axis).map(|&s| Extent::Range(axis, s)),
        },
        Kind::Image(i) => {
            let is_width = axis + 1 == rank;
            if !is_width && axis + 2 != rank {
                return None;
            }
            let of = |&(w, h): &(u64, u64)| if is_width { w } else { h };
            match &i.sizes {
                ImageSizes::Fixed => Some(Extent::Column(vec![of(&(i.width, i.height))])),
                ImageSizes::Enumerated(sizes) => {
                    let at = sizes.iter().position(|&s| s == (i.width, i.height));
                    default_first(sizes.iter().map(of).collect(), at)
                }
                ImageSizes::Ranges { width, height } => {
                    Some(Extent::Range(axis, if is_width { *width } else { *height }))
                }
            }
        }
        _ => None,
    }
}

/// The symbols of the hint, if they make of the inputs exactly what is described.
fn by_hint(
    inputs: &mut [(String, Type)],
    features: &[Feature],
    hint: &Hint,
    opset: Opset,
) -> Option<Symbols> {
    let mut graph = Graph::new("");
    graph.symbols = hint.symbols();
    let mut hinted = Vec::new();
    for (name, ty) in inputs.iter() {
        let Type::Tensor(t) = ty else {
            hinted.push(ty.clone());
            continue;
        };
        let mut t = t.clone();
        if t.fixed_shape().is_none() {
            let shape = hint.shape(name, t.rank())?;
            let same = t.shape.iter().zip(&shape).all(|(a, b)| a.fixed() == b.fixed());
            t.shape = same.then_some(shape)?;
            let feature = features.iter().find(|f| f.name == *name)?;
            let Kind::Array(described) = &feature.kind else { return None };
            let ours = features::array_of(&graph, &t.clone().into(), opset, true).ok()?;
            let is_range = matches!(ours.flexible, Shapes::Ranges(_));
            let same =
                (is_range || ours.shape == described.shape) && ours.flexible == described.flexible;
            same.then_some(())?;
        }
        hinted.push(Type::Tensor(t));
    }
    inputs.iter_mut().zip(hinted).for_each(|(input, ty)| input.1 = ty);
    Some(graph.symbols)
}
