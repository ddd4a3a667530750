//! Which op of the ir an operation of a package is.

use std::collections::HashSet;

use russet_ir::{Arg, ArgError, Args, Attr, DType, Op, Opset, Tensor, Value};

/// What a binding of an op's parameter is.
pub struct Operand {
    /// `None` for a constant without a node.
    pub value: Option<Value>,
    pub constant: Option<Tensor>,
}

/// How an operation becomes an op of the ir.
pub enum Fit {
    /// As declared; these parameters are attributes.
    Declared(Op, HashSet<String>),
    Undeclared,
    /// The ir has a value where the package has a constant inline: it needs a node.
    NeedsNode(String),
    /// The ir declares it, but not with these arguments.
    Misfit(String),
}

/// Tries every parameter as a value first, and as an attribute where the declaration says so.
pub fn fit(name: &str, arguments: &[(String, Vec<Operand>)], opset: Opset) -> Fit {
    if !Op::DECLARED.iter().any(|d| d.name == name && d.is_in(opset)) {
        return Fit::Undeclared;
    }
    let attribute = |operands: &[Operand]| match operands {
        [Operand { constant: Some(t), .. }] => attr(t),
        _ => None,
    };
    let nodeless = |operands: &[Operand]| operands.iter().any(|o| o.value.is_none());
    let mut attrs: HashSet<String> =
        arguments.iter().filter(|(_, o)| nodeless(o)).map(|(param, _)| param.clone()).collect();
    loop {
        let mut args = Args::default();
        for (param, operands) in arguments {
            let values: Vec<Value> = operands.iter().filter_map(|o| o.value).collect();
            let arg = match (attrs.contains(param), values.as_slice()) {
                (true, _) => match attribute(operands) {
                    Some(attr) => Arg::Attr(attr),
                    None if nodeless(operands) => return Fit::NeedsNode(param.clone()),
                    None => return Fit::Misfit(format!("`{param}` is not understood")),
                },
                (false, [one]) => Arg::Value(*one),
                (false, _) => Arg::Values(values),
            };
            args.0.push((param.clone(), arg));
        }
        match Op::from_args(name, args, opset) {
            None => return Fit::Undeclared,
            Some(Ok(op)) => return Fit::Declared(op, attrs),
            Some(Err(ArgError::Kind { param, .. }))
                if !attrs.contains(param)
                    && arguments.iter().any(|(p, o)| p == param && attribute(o).is_some()) =>
            {
                attrs.insert(param.to_owned());
            }
            Some(Err(ArgError::Kind { param, .. }))
                if arguments.iter().any(|(p, o)| p == param && nodeless(o)) =>
            {
                return Fit::NeedsNode(param.to_owned());
            }
            Some(Err(e)) => return Fit::Misfit(e.to_string()),
        }
    }
}

/// A constant as an attribute.
fn attr(t: &Tensor) -> Option<Attr> {
    if let Some(strings) = t.as_strings() {
        return match strings {
            [one] => Some(Attr::Str(one.clone())),
            _ => None,
        };
    }
    let ints =
        || -> Option<Vec<i32>> { t.to_i64()?.into_iter().map(|i| i32::try_from(i).ok()).collect() };
    Some(match (t.dtype, t.shape.len()) {
        (DType::Bool, 0) => Attr::Bool(ints()?[0] != 0),
        (DType::Bool, 1) => Attr::Bools(ints()?.into_iter().map(|b| b != 0).collect()),
        (d, 0) if d.is_int() => Attr::Int(ints()?[0]),
        (d, 1) if d.is_int() => Attr::Ints(ints()?),
        (d, 0) if d.is_float() => Attr::Float(t.item_f32()?),
        _ => Attr::Tensor(t.clone()),
    })
}
