//! Inputs and outputs of the function: their names, types and extents.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use russet_ir::ops::{Cast, Identity, NotEqual};
use russet_ir::{
    Binding, DType, Def, Dim, Opset, Origin, Symbol, Symbols, Tensor, TensorType, Value,
};

use super::Options;
use super::elem::Elem;
use super::importer::{Importer, Scope, Why};
use super::lit::{Data, Lit};
use super::names::word;
use super::proto::{DimensionValue, GraphProto, ValueInfoProto};
use crate::Error;

/// Declares the inputs of `graph` that are not initializers.
pub fn inputs<'m>(
    im: &mut Importer<'m>,
    graph: &'m GraphProto,
    scope: &mut Scope<'_, 'm>,
    path: &Path,
    options: &Options,
) -> Result<(), Error> {
    // Files of before IR version 4 list initializers among the inputs.
    let given: HashSet<&str> = graph.initializer.iter().map(|t| t.name.as_str()).collect();
    let inputs: Vec<&ValueInfoProto> =
        graph.input.iter().filter(|i| !given.contains(i.name.as_str())).collect();
    let mut bound = Bound::default();
    for (name, shapes) in &options.shapes {
        let info = inputs.iter().find(|i| i.name == *name || word(&i.name) == *name);
        let Some(info) = info else {
            let known: Vec<&str> = inputs.iter().map(|i| i.name.as_str()).collect();
            return choice(
                path,
                name,
                format!("there is no such input; there are {}", known.join(", ")),
            );
        };
        bound.add(path, info, shapes)?;
    }
    for info in inputs {
        if let Some((value, elem)) = known(info, options) {
            let v = im.constant(&info.name, elem, value);
            scope.insert(&info.name, v);
            continue;
        }
        match input(im, info, &bound) {
            Ok(v) => scope.insert(&info.name, v),
            Err(why) => {
                im.report(format!("input `{}`", info.name), why);
                let failed = im.failed(&info.name);
                scope.insert(&info.name, failed);
            }
        }
    }
    im.graph.symbols = bound.symbols(im);
    Ok(())
}

fn choice<T>(path: &Path, found: &str, why: String) -> Result<T, Error> {
    let found = found.to_owned();
    Err(Error::Choice { file: path.to_owned(), option: "shapes", found, why })
}

/// Numbers for symbols, as the user gave them.
#[derive(Default)]
struct Bound {
    /// For each symbol, one number for each alternative.
    numbers: BTreeMap<Symbol, Vec<u64>>,
    /// Shapes of inputs whose rank the file does not say.
    whole: BTreeMap<String, Vec<u64>>,
    n_alternatives: usize,
}

impl Bound {
    fn add(
        &mut self,
        path: &Path,
        info: &ValueInfoProto,
        shapes: &[Vec<u64>],
    ) -> Result<(), Error> {
        let name = &info.name;
        let Some(first) = shapes.first() else { return Ok(()) };
        if self.n_alternatives > 1 && shapes.len() > 1 && shapes.len() != self.n_alternatives {
            let why =
                format!("{} shapes beside {} of another input", shapes.len(), self.n_alternatives);
            return choice(path, name, why);
        }
        self.n_alternatives = self.n_alternatives.max(shapes.len());
        let Some(dims) = dims(info) else {
            self.whole.insert(name.clone(), first.clone());
            return Ok(());
        };
        for shape in shapes {
            if shape.len() != dims.len() {
                let why = format!("{} extents for an input of {}", shape.len(), dims.len());
                return choice(path, name, why);
            }
        }
        for (i, dim) in dims.iter().enumerate() {
            let numbers: Vec<u64> = shapes.iter().map(|s| s[i]).collect();
            match dim {
                Dim::Fixed(n) => {
                    if let Some(other) = numbers.iter().find(|m| *m != n) {
                        return choice(path, name, format!("axis {i} is {n}, not {other}"));
                    }
                }
                Dim::Symbol(s) => {
                    let before = self.numbers.insert(s.clone(), numbers.clone());
                    if let Some(before) = before.filter(|b| *b != numbers) {
                        let why =
                            format!("axis {i}, `{s}`, is {before:?} elsewhere, {numbers:?} here");
                        return choice(path, name, why);
                    }
                }
            }
        }
        Ok(())
    }

    /// The extent, when it is the same in every alternative.
    fn dim(&self, d: Dim) -> Dim {
        let Dim::Symbol(s) = &d else { return d };
        match self.numbers.get(s).map(Vec::as_slice) {
            Some([first, rest @ ..]) if rest.iter().all(|n| n == first) => Dim::Fixed(*first),
            _ => d,
        }
    }

    /// What the symbols that are left may stand for.
    fn symbols(&self, im: &Importer<'_>) -> Symbols {
        let mut symbols = Symbols::default();
        let dims = im.graph.inputs().iter().flat_map(|&v| im.graph.shape(v));
        let left: HashSet<Symbol> = dims
            .filter_map(|d| match d {
                Dim::Symbol(s) => Some(s.clone()),
                Dim::Fixed(_) => None,
            })
            .collect();
        let (bound, free): (Vec<&Symbol>, Vec<&Symbol>) =
            left.iter().partition(|s| self.numbers.contains_key(s));
        if !bound.is_empty() {
            let row = |i: usize| -> Binding {
                bound
                    .iter()
                    .map(|&s| (s.clone(), self.numbers[s][i.min(self.numbers[s].len() - 1)]))
                    .collect()
            };
            symbols.enumerated = (0..self.n_alternatives).map(row).collect();
        }
        for s in free {
            symbols.ranges.insert(s.clone(), (1, None));
        }
        symbols
    }
}

/// The constant an input is, when the user says what it is.
fn known(info: &ValueInfoProto, options: &Options) -> Option<(Tensor, Elem)> {
    let elem = stated(info)?;
    if let Some(value) = options.values.get(&info.name) {
        return Some((value.clone(), elem));
    }
    let numbers =
        options.numbers.get(&info.name).or_else(|| options.numbers.get(&word(&info.name)))?;
    let scalar = numbers.len() == 1 && dims(info).is_some_and(|d| d.is_empty());
    let shape = if scalar { vec![] } else { vec![numbers.len()] };
    let data = match elem.is_float() {
        true => Data::Floats(numbers.clone()),
        false => Data::Ints(numbers.iter().map(|&x| x as i64).collect()),
    };
    Some((Lit { elem, shape, data }.tensor()?, elem))
}

/// The element type an input states.
fn stated(info: &ValueInfoProto) -> Option<Elem> {
    let ty = info.r#type.as_ref()?.tensor_type.as_ref()?;
    Elem::from_code(ty.elem_type).ok()
}

/// The extents an input states; None when not even their number is known.
fn dims(info: &ValueInfoProto) -> Option<Vec<Dim>> {
    let shape = info.r#type.as_ref()?.tensor_type.as_ref()?.shape.as_ref()?;
    let dim = |(i, d): (usize, &super::proto::DimensionProto)| match &d.value {
        Some(DimensionValue::Value(n)) if *n >= 0 => Dim::Fixed(*n as u64),
        // Some exporters name all of them `?`.
        Some(DimensionValue::Param(name)) if name.contains(char::is_alphanumeric) => {
            Dim::Symbol(Symbol::new(&word(name)))
        }
        _ => Dim::Symbol(Symbol::new(&format!("{}_{i}", word(&info.name)))),
    };
    Some(shape.dim.iter().enumerate().map(dim).collect())
}

fn input(
    im: &mut Importer<'_>,
    info: &ValueInfoProto,
    bound: &Bound,
) -> Result<super::importer::Val, Why> {
    let ty = info.r#type.as_ref().and_then(|t| t.tensor_type.as_ref());
    let ty = ty.ok_or("it is no tensor, and a program takes nothing else")?;
    let elem = Elem::from_code(ty.elem_type)?;
    if elem == Elem::Str {
        return Err(Why::from("MIL computes nothing with strings"));
    }
    let shape = match (dims(info), bound.whole.get(&info.name)) {
        (Some(dims), _) => dims.into_iter().map(|d| bound.dim(d)).collect(),
        (None, Some(shape)) => shape.iter().map(|&n| Dim::Fixed(n)).collect(),
        (None, None) => {
            let name = &info.name;
            return Err(Why(format!("its rank is not known: state it, `--shapes {name}=1x…`")));
        }
    };
    let shape: Vec<Dim> = shape;
    if let Some(n) = shape.iter().filter_map(Dim::fixed).find(|&n| n > i32::MAX as u64) {
        return Err(Why(format!("an extent of {n}")));
    }
    let outer = outer_dtype(elem, im.opset);
    let name = im.graph.unique_name(&word(&info.name));
    let v = im.graph.add_input(&name, TensorType { dtype: outer, shape });
    let origin = || Origin::source(&info.name);
    let v = match (elem.computed(), outer) {
        (DType::Bool, _) => {
            let zero =
                im.push_number(Tensor::i32(vec![], &[0]), &format!("{name}_zero"), origin())?;
            im.push(NotEqual { x: v, y: zero }.into(), &format!("{name}_bool"), origin())?[0]
        }
        (inner, outer) if inner != outer => {
            im.push(Cast { x: v, dtype: inner }.into(), &format!("{name}_cast"), origin())?[0]
        }
        _ => v,
    };
    Ok(im.computed(&info.name, elem, v))
}

/// The type outside of the function, where there is no `bool`, and no fp16 before iOS 16.
fn outer_dtype(elem: Elem, opset: Opset) -> DType {
    match elem.computed() {
        DType::Bool => DType::I32,
        DType::F16 if opset < Opset::Ios16 => DType::F32,
        other => other,
    }
}

/// Makes the outputs of `graph` those of the function.
pub fn outputs(im: &mut Importer<'_>, graph: &GraphProto, scope: &Scope<'_, '_>) {
    let mut outputs: Vec<Value> = Vec::new();
    for info in &graph.output {
        let made = match scope.get(&info.name) {
            Some(v) if im.has_failed(v) => continue,
            Some(v) => output(im, v, &info.name, &outputs),
            None => Err(Why::from("nothing makes it")),
        };
        match made {
            Ok(v) => outputs.push(v),
            Err(why) => im.report(format!("output `{}`", info.name), why),
        }
    }
    im.graph.set_outputs(outputs);
}

fn output(
    im: &mut Importer<'_>,
    v: super::importer::Val,
    name: &str,
    before: &[Value],
) -> Result<Value, Why> {
    let elem = im.elem(v);
    let mut value = im.value(v)?;
    let outer = outer_dtype(elem, im.opset);
    let origin = Origin::source(name);
    let wanted = word(name);
    if im.graph.ty(value).tensor().is_some_and(|t| t.dtype != outer) {
        let op = Cast { x: value, dtype: outer };
        value = im.push(op.into(), &format!("{wanted}_out"), origin.clone())?[0];
    }
    // An output has a name of its own.
    let taken = matches!(im.graph.value(value).def, Def::Input(..))
        || before.contains(&value)
        || im.graph.op(value).is_some_and(russet_ir::Op::is_const);
    if taken {
        value = im.push(Identity { x: value }.into(), &format!("{wanted}_out"), origin)?[0];
    }
    if im.graph.value(value).name != wanted {
        let other = im.graph.values().find(|(_, d)| d.name == wanted).map(|(o, _)| o);
        match other {
            // Another value got the name first; inputs and outputs before this keep theirs.
            Some(o) if before.contains(&o) || im.graph.inputs().contains(&o) => return Ok(value),
            Some(o) => {
                let free = im.graph.unique_name(&format!("{wanted}_inner"));
                im.graph.rename(o, &free);
            }
            None => {}
        }
        im.graph.rename(value, &wanted);
    }
    Ok(value)
}
