//! Where a program speaks of files of weights.

use super::proto::{self, Bound, Contents, Immediate};

/// A value whose elements are in a file.
#[derive(Debug, Clone, Copy)]
pub struct Reference<'a> {
    /// The first output of the operation it is in.
    pub at: &'a str,
    pub value: &'a proto::Value,
    pub blob: &'a proto::BlobFileValue,
}

/// Every reference of a program, in the order of its functions and operations.
pub fn of_program(program: &proto::Program) -> Vec<Reference<'_>> {
    let mut out = Vec::new();
    for (_, function) in program.functions.sorted() {
        function.block_specializations.values().for_each(|b| of_block(b, &mut out));
    }
    out
}

fn of_block<'a>(block: &'a proto::Block, out: &mut Vec<Reference<'a>>) {
    block.operations.iter().for_each(|op| of_operation(op, out));
}

/// Every reference of an operation and of the blocks within it.
pub fn of_operation<'a>(op: &'a proto::Operation, out: &mut Vec<Reference<'a>>) {
    let at = op.outputs.first().map_or(&op.r#type, |o| &o.name);
    for value in values(op) {
        of_value(value, at, out);
    }
    op.blocks.iter().for_each(|b| of_block(b, out));
}

/// Values of attributes and of arguments that are no names.
fn values(op: &proto::Operation) -> impl Iterator<Item = &proto::Value> {
    let bound = op.inputs.values().flat_map(|a| &a.arguments).filter_map(|b| match &b.bound {
        Some(Bound::Value(v)) => Some(&**v),
        _ => None,
    });
    op.attributes.values().chain(bound)
}

fn of_value<'a>(value: &'a proto::Value, at: &'a str, out: &mut Vec<Reference<'a>>) {
    match &value.contents {
        Some(Contents::BlobFile(blob)) => out.push(Reference { at, value, blob }),
        Some(Contents::Immediate(i)) => match &i.kind {
            Some(Immediate::List(l) | Immediate::Tuple(l)) => {
                l.values.iter().for_each(|v| of_value(v, at, out));
            }
            Some(Immediate::Dictionary(d)) => {
                let both = d.values.iter().flat_map(|p| [&p.key, &p.value]).flatten();
                both.for_each(|v| of_value(v, at, out));
            }
            _ => {}
        },
        None => {}
    }
}

/// Changes every reference of an operation and of the blocks within it.
pub fn change(op: &mut proto::Operation, f: &mut dyn FnMut(&mut proto::BlobFileValue)) {
    let bound = op.inputs.values_mut().flat_map(|a| &mut a.arguments);
    let bound = bound.filter_map(|b| match &mut b.bound {
        Some(Bound::Value(v)) => Some(&mut **v),
        _ => None,
    });
    op.attributes.values_mut().chain(bound).for_each(|v| change_value(v, f));
    for block in &mut op.blocks {
        block.operations.iter_mut().for_each(|op| change(op, f));
    }
}

fn change_value(value: &mut proto::Value, f: &mut dyn FnMut(&mut proto::BlobFileValue)) {
    match &mut value.contents {
        Some(Contents::BlobFile(blob)) => f(blob),
        Some(Contents::Immediate(i)) => match &mut i.kind {
            Some(Immediate::List(l) | Immediate::Tuple(l)) => {
                l.values.iter_mut().for_each(|v| change_value(v, f));
            }
            Some(Immediate::Dictionary(d)) => {
                let both = d.values.iter_mut().flat_map(|p| [&mut p.key, &mut p.value]).flatten();
                both.for_each(|v| change_value(v, f));
            }
            _ => {}
        },
        None => {}
    }
}
