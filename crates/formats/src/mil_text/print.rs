//! A program as Apple prints it.

use russet_ir::Opset;

use super::literal::print_value;
use super::types::print_type;
use super::{BLOCKS_MAX, OPSET, Syntax};
use crate::mlpackage::{proto, value};

/// The text of a program, as Apple's compiler would lay it out: functions, attributes and
/// arguments by name, one operation a line. Weights in files are shown as where they are.
///
/// Apple prints no text for blocks within operations where it could be looked at; they are
/// printed indented, each with its inputs before and its outputs behind.
///
/// # Errors
/// `Err` says in words what a text cannot say, and where: a value without a type, say.
pub fn print(program: &proto::Program, syntax: Syntax) -> Result<String, String> {
    let mut out = format!("program(1.{})\n", syntax.minor);
    let mut printer = Printer { syntax, out: &mut out };
    if !program.attributes.is_empty() {
        printer.attributes(&program.attributes).map_err(|e| format!("the program: {e}"))?;
        printer.out.push('\n');
    }
    printer.out.push_str("{\n");
    for (name, function) in program.functions.sorted() {
        printer.function(name, function).map_err(|e| format!("function {name}: {e}"))?;
    }
    out.push('}');
    Ok(out)
}

struct Printer<'a> {
    syntax: Syntax,
    out: &'a mut String,
}

impl Printer<'_> {
    fn function(&mut self, name: &str, function: &proto::Function) -> Result<(), String> {
        let opset = match function.opset.parse::<Opset>() {
            Ok(opset) => opset.name(),
            Err(()) => &function.opset,
        };
        let Some(block) = function.block_specializations.get(&function.opset) else {
            return Err(format!("it has no block for its opset {:?}", function.opset));
        };
        self.out.push_str(&format!("    func {name}<{opset}>"));
        self.named(&function.inputs)?;
        if !function.attributes.is_empty() {
            self.out.push(' ');
            self.attributes(&function.attributes)?;
        }
        self.out.push(' ');
        self.block(block, 2, 0)?;
        self.out.push_str(";\n");
        Ok(())
    }

    /// `(type name, …)`.
    fn named(&mut self, inputs: &[proto::NamedValueType]) -> Result<(), String> {
        self.out.push('(');
        self.named_list(inputs)?;
        self.out.push(')');
        Ok(())
    }

    fn named_list(&mut self, all: &[proto::NamedValueType]) -> Result<(), String> {
        for (i, one) in all.iter().enumerate() {
            self.out.push_str(if i > 0 { ", " } else { "" });
            let printed = print_type(one.r#type.as_ref(), self.syntax, 0, self.out);
            printed.map_err(|e| format!("{}: {e}", one.name))?;
            self.out.push(' ');
            self.out.push_str(&one.name);
        }
        Ok(())
    }

    fn attributes(&mut self, attributes: &proto::Map<proto::Value>) -> Result<(), String> {
        self.out.push('[');
        let shown = attributes.sorted().into_iter().filter(|a| a.0 != OPSET);
        for (i, (name, value)) in shown.enumerate() {
            self.out.push_str(if i > 0 { ", " } else { "" });
            self.out.push_str(name);
            self.out.push_str(" = ");
            print_value(value, self.syntax, self.out).map_err(|e| format!("{name}: {e}"))?;
        }
        self.out.push(']');
        Ok(())
    }

    /// A block whose end stands at `indent` steps, its operations one step further in.
    fn block(&mut self, block: &proto::Block, indent: usize, depth: usize) -> Result<(), String> {
        if depth > BLOCKS_MAX {
            return Err("blocks are nested too deeply".into());
        }
        if !block.attributes.is_empty() {
            self.attributes(&block.attributes)?;
            self.out.push(' ');
        }
        self.out.push_str("{\n");
        for op in &block.operations {
            let name = op.outputs.first().map_or(&op.r#type, |o| &o.name);
            self.operation(op, indent + 1, depth).map_err(|e| format!("{name}: {e}"))?;
        }
        self.indent(indent);
        self.out.push_str(&format!("}} -> ({})", block.outputs.join(", ")));
        Ok(())
    }

    fn indent(&mut self, steps: usize) {
        (0..steps).for_each(|_| self.out.push_str("    "));
    }

    fn operation(
        &mut self,
        op: &proto::Operation,
        indent: usize,
        depth: usize,
    ) -> Result<(), String> {
        self.indent(indent);
        self.named_list(&op.outputs)?;
        if !op.outputs.is_empty() {
            self.out.push_str(" = ");
        }
        self.out.push_str(&op.r#type);
        if let Some(opset) = op.attributes.get(OPSET) {
            let opset = value::scalar(opset)?;
            self.out.push_str(&format!("<{}>", opset.as_strings().unwrap_or_default().concat()));
        }
        self.out.push('(');
        for (i, (param, argument)) in op.inputs.sorted().into_iter().enumerate() {
            self.out.push_str(if i > 0 { ", " } else { "" });
            self.out.push_str(param);
            self.out.push_str(" = ");
            self.argument(argument).map_err(|e| format!("{param}: {e}"))?;
        }
        self.out.push(')');
        if op.attributes.keys().any(|k| k != OPSET) {
            self.attributes(&op.attributes)?;
        }
        for block in &op.blocks {
            self.out.push('\n');
            self.indent(indent + 1);
            self.named(&block.inputs)?;
            self.out.push(' ');
            self.block(block, indent + 1, depth + 1)?;
        }
        self.out.push_str(";\n");
        Ok(())
    }

    fn argument(&mut self, argument: &proto::Argument) -> Result<(), String> {
        let many = argument.arguments.len() != 1;
        self.out.push_str(if many { "(" } else { "" });
        for (i, binding) in argument.arguments.iter().enumerate() {
            self.out.push_str(if i > 0 { ", " } else { "" });
            match &binding.bound {
                Some(proto::Bound::Name(name)) => self.out.push_str(name),
                Some(proto::Bound::Value(v)) => print_value(v, self.syntax, self.out)?,
                None => return Err("it is bound to nothing".into()),
            }
        }
        self.out.push_str(if many { ")" } else { "" });
        Ok(())
    }
}
