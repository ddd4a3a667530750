//! The structure of a text: functions, blocks, operations.

use russet_ir::{Opset, Tensor};

use super::lex::{self, Kind, Parsed, Token, Wrong};
use super::types::begins_type;
use super::{BLOCKS_MAX, MilText, OPSET, Syntax};
use crate::mlpackage::{proto, value};

/// A text being read: one token is looked at before it is taken.
pub struct Parser<'a> {
    text: &'a str,
    /// The next token and where the one after it may begin.
    next: Parsed<(Token<'a>, usize)>,
}

impl<'a> Parser<'a> {
    pub fn new(text: &'a str) -> Parser<'a> {
        Parser { text, next: lex::next(text, 0) }
    }

    pub(super) fn peek(&self) -> Parsed<Token<'a>> {
        self.next.clone().map(|n| n.0)
    }

    /// The token after the next one.
    fn second(&self) -> Parsed<Token<'a>> {
        let (_, end) = self.next.clone()?;
        lex::next(self.text, end).map(|n| n.0)
    }

    pub(super) fn take(&mut self) -> Parsed<Token<'a>> {
        let (token, end) = self.next.clone()?;
        self.next = lex::next(self.text, end);
        Ok(token)
    }

    /// Where the next token is.
    pub(super) fn place(&self) -> usize {
        match &self.next {
            Ok((token, _)) => token.at,
            Err(wrong) => wrong.at,
        }
    }

    pub(super) fn wrong(&self, at: usize, why: impl Into<String>) -> Wrong {
        Wrong { at, why: why.into() }
    }

    /// The error that the next token is not what is `expected`.
    pub(super) fn unexpected(&self, expected: &str) -> Wrong {
        let found = match self.peek() {
            Ok(Token { kind: Kind::End, .. }) => "the end of the text".to_owned(),
            Ok(token) => {
                let shown: String = token.text.chars().take(40).collect();
                format!("`{}`", shown.escape_debug())
            }
            Err(wrong) => return wrong,
        };
        self.wrong(self.place(), format!("{found} is found, {expected} is expected"))
    }

    /// Is the next token this mark? Then it is taken.
    pub(super) fn takes(&mut self, mark: &str) -> Parsed<bool> {
        let token = self.peek()?;
        let found = token.kind == Kind::Mark && token.text == mark;
        if found {
            self.take()?;
        }
        Ok(found)
    }

    pub(super) fn is_mark(&self, mark: &str) -> Parsed<bool> {
        let token = self.peek()?;
        Ok(token.kind == Kind::Mark && token.text == mark)
    }

    pub(super) fn mark(&mut self, mark: &str) -> Parsed<()> {
        match self.takes(mark)? {
            true => Ok(()),
            false => Err(self.unexpected(&format!("`{mark}`"))),
        }
    }

    pub(super) fn name(&mut self, expected: &str) -> Parsed<&'a str> {
        match self.peek()?.kind {
            Kind::Name => Ok(self.take()?.text),
            _ => Err(self.unexpected(expected)),
        }
    }

    fn word(&mut self, word: &str) -> Parsed<()> {
        match self.peek()? {
            Token { kind: Kind::Name, text, .. } if text == word => self.take().map(|_| ()),
            _ => Err(self.unexpected(&format!("`{word}`"))),
        }
    }

    pub(super) fn integer<T: std::str::FromStr>(&mut self, expected: &str) -> Parsed<T> {
        let number = match self.peek()? {
            Token { kind: Kind::Number, text, .. } => text.parse().ok(),
            _ => None,
        };
        let number = number.ok_or_else(|| self.unexpected(expected))?;
        self.take()?;
        Ok(number)
    }

    pub fn program(mut self) -> Parsed<MilText> {
        self.word("program")?;
        self.mark("(")?;
        let at = self.place();
        let version = match self.peek()? {
            Token { kind: Kind::Number, text, .. } => text.strip_prefix("1."),
            _ => return Err(self.unexpected("a version")),
        };
        let minor = version.and_then(|minor| minor.parse().ok());
        let Some(minor) = minor else {
            return Err(self.wrong(at, "the version of the text is not 1 point something"));
        };
        self.take()?;
        self.mark(")")?;
        let attributes = self.attributes()?;
        self.mark("{")?;
        let mut functions = proto::Map::default();
        while !self.takes("}")? {
            let at = self.place();
            let (name, function) = self.function()?;
            if functions.contains_key(&name) {
                return Err(self.wrong(at, format!("there are two functions `{name}`")));
            }
            functions.insert(name, function);
        }
        if self.peek()?.kind != Kind::End {
            return Err(self.unexpected("the end of the text"));
        }
        let program = proto::Program { version: 1, functions, attributes, ..Default::default() };
        Ok(MilText { program, syntax: Syntax { minor } })
    }

    fn function(&mut self) -> Parsed<(String, proto::Function)> {
        self.word("func")?;
        let name = self.name("the name of a function")?.to_owned();
        self.mark("<")?;
        let opset = self.opset()?;
        self.mark(">")?;
        let inputs = self.inputs()?;
        let attributes = self.attributes()?;
        let block = self.block(0)?;
        self.mark(";")?;
        let block_specializations = proto::Map::from_iter([(opset.clone(), block)]);
        let function = proto::Function {
            inputs,
            opset,
            block_specializations,
            attributes,
            ..Default::default()
        };
        Ok((name, function))
    }

    /// As messages name it: `ios17` is `CoreML7`. What is not known stays.
    fn opset(&mut self) -> Parsed<String> {
        let word = self.name("an opset")?;
        Ok(match word.parse::<Opset>() {
            Ok(opset) => opset.coreml_name().to_owned(),
            Err(()) => word.to_owned(),
        })
    }

    /// `(type name, type name)`.
    fn inputs(&mut self) -> Parsed<Vec<proto::NamedValueType>> {
        self.mark("(")?;
        let mut inputs = Vec::new();
        while !self.takes(")")? {
            if !inputs.is_empty() {
                self.mark(",")?;
            }
            inputs.push(self.named_type()?);
        }
        Ok(inputs)
    }

    fn named_type(&mut self) -> Parsed<proto::NamedValueType> {
        let r#type = Some(self.value_type(0)?);
        let name = self.name("a name")?.to_owned();
        Ok(proto::NamedValueType { name, r#type, ..Default::default() })
    }

    /// `[name = value, …]`, or nothing.
    fn attributes(&mut self) -> Parsed<proto::Map<proto::Value>> {
        let mut attributes = proto::Map::default();
        if !self.takes("[")? {
            return Ok(attributes);
        }
        while !self.takes("]")? {
            if !attributes.is_empty() {
                self.mark(",")?;
            }
            let at = self.place();
            let name = self.name("the name of an attribute")?;
            self.mark("=")?;
            if attributes.contains_key(name) {
                return Err(self.wrong(at, format!("there are two attributes `{name}`")));
            }
            attributes.insert(name.to_owned(), self.value()?);
        }
        Ok(attributes)
    }

    /// `{ … } -> (outputs)`, its own attributes before it.
    fn block(&mut self, depth: usize) -> Parsed<proto::Block> {
        if depth > BLOCKS_MAX {
            return Err(self.wrong(self.place(), "blocks are nested too deeply"));
        }
        let attributes = self.attributes()?;
        self.mark("{")?;
        let mut operations = Vec::new();
        while !self.takes("}")? {
            operations.push(self.operation(depth)?);
        }
        self.mark("->")?;
        self.mark("(")?;
        let mut outputs = Vec::new();
        while !self.takes(")")? {
            if !outputs.is_empty() {
                self.mark(",")?;
            }
            outputs.push(self.name("the name of an output")?.to_owned());
        }
        Ok(proto::Block { outputs, operations, attributes, ..Default::default() })
    }

    fn operation(&mut self, depth: usize) -> Parsed<proto::Operation> {
        let mut outputs = Vec::new();
        if self.begins_output()? {
            outputs.push(self.named_type()?);
            while self.takes(",")? {
                outputs.push(self.named_type()?);
            }
            self.mark("=")?;
        }
        let r#type = self.name("an op")?.to_owned();
        let opset = match self.takes("<")? {
            true => {
                let opset = self.name("an opset")?.to_owned();
                self.mark(">")?;
                Some(opset)
            }
            false => None,
        };
        let inputs = self.arguments()?;
        let mut attributes = self.attributes()?;
        if let Some(opset) = opset {
            attributes.insert(OPSET.into(), value::encode_immediate(&Tensor::string(&opset)));
        }
        let mut blocks = Vec::new();
        while !self.takes(";")? {
            let at = self.place();
            if self.peek()?.kind == Kind::Name {
                self.take()?;
            }
            let inputs = if self.is_mark("(")? { self.inputs()? } else { Vec::new() };
            if !self.is_mark("{")? && !self.is_mark("[")? {
                return Err(match at == self.place() {
                    true => self.unexpected("`;` or a block"),
                    false => self.unexpected("`{`"),
                });
            }
            blocks.push(proto::Block { inputs, ..self.block(depth + 1)? });
        }
        Ok(proto::Operation { r#type, inputs, outputs, blocks, attributes, ..Default::default() })
    }

    /// Does the type of an output come next, rather than an op without outputs?
    fn begins_output(&self) -> Parsed<bool> {
        let token = self.peek()?;
        let second = self.second()?;
        let calls = second.kind == Kind::Mark && second.text == "(";
        Ok(token.kind == Kind::Name && begins_type(token.text) && !calls)
    }

    /// `(param = argument, …)`.
    fn arguments(&mut self) -> Parsed<proto::Map<proto::Argument>> {
        self.mark("(")?;
        let mut inputs = proto::Map::default();
        while !self.takes(")")? {
            if !inputs.is_empty() {
                self.mark(",")?;
            }
            let at = self.place();
            let param = self.name("the name of a parameter")?;
            self.mark("=")?;
            if inputs.contains_key(param) {
                return Err(self.wrong(at, format!("`{param}` is given twice")));
            }
            let mut arguments = Vec::new();
            if self.takes("(")? {
                while !self.takes(")")? {
                    if !arguments.is_empty() {
                        self.mark(",")?;
                    }
                    arguments.push(self.binding()?);
                }
            } else {
                arguments.push(self.binding()?);
            }
            let argument = proto::Argument { arguments, ..Default::default() };
            inputs.insert(param.to_owned(), argument);
        }
        Ok(inputs)
    }

    /// A name, or a value with its type.
    fn binding(&mut self) -> Parsed<proto::Binding> {
        let token = self.peek()?;
        let second = self.second()?;
        let is_value = second.kind == Kind::Mark && matches!(second.text, "(" | "<");
        let bound = match token.kind {
            Kind::Name if is_value => proto::Bound::Value(Box::new(self.value()?)),
            Kind::Name => proto::Bound::Name(self.take()?.text.to_owned()),
            _ => return Err(self.unexpected("a name or a value")),
        };
        Ok(proto::Binding { bound: Some(bound), ..Default::default() })
    }
}
