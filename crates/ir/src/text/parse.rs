//! Text as a program: the inverse of printing, and a little more.
//!
//! A literal may stand where a value is expected (`shape=int32[2] [1, -1]`): it becomes a constant
//! of its own. Comments run from `//` to the end of the line.

use std::collections::HashMap;
use std::fmt;

use half::{bf16, f16};

use super::Store;
use crate::graph::BlockId;
use crate::ops::Opaque;
use crate::{
    Arg, Args, Attr, Binding, DType, Dim, Graph, Op, Opset, Origin, Program, Symbol, Tensor,
    TensorType, Type, Value,
};

/// Where the text is no program, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseError {
    /// Counted from 1.
    pub line: usize,
    pub message: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

impl std::error::Error for ParseError {}

/// Nesting beyond which text is refused: no model comes near it, hostile text does.
const DEPTH_MAX: usize = 32;

/// Elements that all `splat`s of a text may make together: a short text must not fill the memory.
const SPLAT_MAX: u64 = 1 << 24;

/// Parses a program that stands alone. Without a `program` line the opset is the newest.
pub fn parse(text: &str) -> Result<Program, ParseError> {
    parse_with(text, &Store::default())
}

/// Parses a program whose `#hash` constants are in `store`.
pub fn parse_with(text: &str, store: &Store) -> Result<Program, ParseError> {
    let mut parser = Parser { text, at: 0, store, opset: Opset::Ios26, n_splat: 0 };
    parser.program()
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
    store: &'t Store,
    opset: Opset,
    /// Elements made by `splat` so far.
    n_splat: u64,
}

/// Names in scope.
#[derive(Default)]
struct Scope {
    values: HashMap<String, Value>,
    /// In the order in which they were defined: those of an inner block end with it.
    names: Vec<String>,
}

impl Scope {
    fn end(&mut self, n_outer: usize) {
        self.names.drain(n_outer..).for_each(|name| {
            self.values.remove(&name);
        });
    }
}

type Parsed<T> = Result<T, ParseError>;

impl<'t> Parser<'t> {
    fn program(&mut self) -> Parsed<Program> {
        if self.word("program") {
            let name = self.identifier()?;
            self.opset = name.parse().map_err(|()| self.error(format!("no opset `{name}`")))?;
        }
        let mut program = Program::new(self.opset, Vec::new());
        while self.word("meta") {
            let key = self.string()?;
            self.expect("=")?;
            program.metadata.insert(key, self.string()?);
        }
        while self.word("func") {
            let graph = self.function()?;
            program.functions.push(graph);
        }
        if !self.rest().is_empty() {
            return Err(self.error("`func` is expected"));
        }
        Ok(program)
    }

    fn function(&mut self) -> Parsed<Graph> {
        let mut graph = Graph::new(&self.identifier()?);
        let mut scope = Scope::default();
        self.expect("(")?;
        self.parameters(&mut graph, BlockId::BODY, &mut scope, ")")?;
        if self.word("where") {
            self.symbols(&mut graph)?;
        }
        self.block(&mut graph, BlockId::BODY, &mut scope, 0)?;
        Ok(graph)
    }

    fn parameters(
        &mut self,
        graph: &mut Graph,
        block: BlockId,
        scope: &mut Scope,
        close: &str,
    ) -> Parsed<()> {
        while !self.eat(close) {
            let name = self.value_name()?;
            self.expect(":")?;
            let ty = self.ty(0)?;
            let v = graph.add_block_input(block, &name, ty);
            self.define(scope, name, v)?;
            if !self.eat(",") {
                self.expect(close)?;
                break;
            }
        }
        Ok(())
    }

    fn define(&self, scope: &mut Scope, name: String, v: Value) -> Parsed<()> {
        if scope.values.insert(name.clone(), v).is_some() {
            return Err(self.error(format!("`%{name}` is defined twice")));
        }
        scope.names.push(name);
        Ok(())
    }

    fn symbols(&mut self, graph: &mut Graph) -> Parsed<()> {
        loop {
            let names = match self.eat("(") {
                true => self.list(")", |p| p.identifier_like())?,
                false => vec![self.identifier_like()?],
            };
            self.expect_word("in")?;
            if self.eat("[") {
                let rows = self.list("]", |p| match p.eat("(") {
                    true => p.list(")", |p| p.unsigned()),
                    false => Ok(vec![p.unsigned()?]),
                })?;
                for row in rows {
                    if row.len() != names.len() {
                        return Err(self.error("a number for each symbol is expected"));
                    }
                    let binding: Binding = names.iter().map(|n| Symbol::new(n)).zip(row).collect();
                    graph.symbols.enumerated.push(binding);
                }
            } else {
                let low = self.unsigned()?;
                self.expect("..")?;
                let high = if self.eat("=") { Some(self.unsigned()?) } else { None };
                let [name] = names.as_slice() else {
                    return Err(self.error("a range is of one symbol"));
                };
                graph.symbols.ranges.insert(Symbol::new(name), (low, high));
            }
            if !self.eat(",") {
                return Ok(());
            }
        }
    }

    fn block(
        &mut self,
        graph: &mut Graph,
        block: BlockId,
        scope: &mut Scope,
        depth: usize,
    ) -> Parsed<()> {
        if depth > DEPTH_MAX {
            return Err(self.error("blocks are nested too deeply"));
        }
        self.expect("{")?;
        if self.eat("|") {
            self.parameters(graph, block, scope, "|")?;
        }
        while !self.eat("}") {
            self.node(graph, block, scope, depth)?;
            self.eat(";");
        }
        self.expect("->")?;
        let names = match self.eat("(") {
            true => self.list(")", |p| p.value_name())?,
            false => vec![self.value_name()?],
        };
        let outputs = names.iter().map(|n| self.resolve(scope, n)).collect::<Parsed<_>>()?;
        graph.set_block_outputs(block, outputs);
        Ok(())
    }

    fn resolve(&self, scope: &Scope, name: &str) -> Parsed<Value> {
        scope
            .values
            .get(name)
            .copied()
            .ok_or_else(|| self.error(format!("`%{name}` is not defined")))
    }

    fn node(
        &mut self,
        graph: &mut Graph,
        block: BlockId,
        scope: &mut Scope,
        depth: usize,
    ) -> Parsed<()> {
        let mut names = Vec::new();
        // An op without outputs begins with its own name.
        if self.rest().starts_with('%') {
            names.push(self.value_name()?);
            while self.eat(",") {
                names.push(self.value_name()?);
            }
            self.expect("=")?;
        }
        let op_name = self.identifier()?;
        let start = self.at;
        self.expect("(")?;
        let mut args = Args::default();
        while !self.eat(")") {
            let param = self.identifier()?;
            self.expect("=")?;
            let literal_name = format!("{}_{param}", names.first().unwrap_or(&op_name));
            let arg = self.arg(graph, block, scope, &op_name, &literal_name)?;
            args.0.push((param, arg));
            if !self.eat(",") {
                self.expect(")")?;
                break;
            }
        }
        let op = if self.eat(":") {
            let mut types = Vec::new();
            if self.eat("(") {
                self.expect(")")?;
            } else {
                types.push(self.ty(0)?);
                while self.eat(",") {
                    types.push(self.ty(0)?);
                }
            }
            Op::Opaque(self.opaque(&op_name, args, types)?)
        } else {
            match Op::from_args(&op_name, args, self.opset) {
                Some(op) => op.map_err(|e| self.error_at(start, e.to_string()))?,
                None => {
                    let opset = self.opset;
                    let message =
                        format!("no op `{op_name}` in {opset} (state its type: `: fp16[2]`)");
                    return Err(self.error_at(start, message));
                }
            }
        };
        let origin = self.origin()?;
        let mut blocks = Vec::new();
        while self.rest().starts_with('{') {
            let inner = graph.add_block();
            let n_outer = scope.names.len();
            self.block(graph, inner, scope, depth + 1)?;
            scope.end(n_outer);
            blocks.push(inner);
        }
        let outputs = graph.push_node(block, op, &names, blocks, origin);
        let outputs = outputs.map_err(|e| self.error_at(start, e.to_string()))?;
        if outputs.len() != names.len() {
            let n = outputs.len();
            return Err(
                self.error_at(start, format!("`{op_name}` has {n} outputs, {} names", names.len()))
            );
        }
        names.into_iter().zip(outputs).try_for_each(|(name, v)| self.define(scope, name, v))
    }

    fn opaque(&self, name: &str, args: Args, types: Vec<Type>) -> Parsed<Opaque> {
        let operand = |(param, arg): (String, Arg)| match arg {
            Arg::Value(v) => Ok((param, vec![v])),
            Arg::Values(vs) => Ok((param, vs)),
            Arg::Attr(_) => Err(self.error(format!("`{param}` of an unknown op must be a value"))),
        };
        let operands = args.0.into_iter().map(operand).collect::<Parsed<_>>()?;
        Ok(Opaque { name: name.to_owned(), operands, types })
    }

    fn origin(&mut self) -> Parsed<Origin> {
        let mut origin = Origin::default();
        if self.word("from") {
            origin.source = Some(self.string()?.into());
        }
        if self.word("by") {
            origin.passes.push(self.pass_name()?.into());
            while self.eat(",") {
                origin.passes.push(self.pass_name()?.into());
            }
        }
        Ok(origin)
    }

    /// A value, values, or a parameter. A typed literal is a constant of its own.
    fn arg(
        &mut self,
        graph: &mut Graph,
        block: BlockId,
        scope: &Scope,
        op: &str,
        literal_name: &str,
    ) -> Parsed<Arg> {
        let rest = self.rest();
        let first = rest.chars().next().unwrap_or(' ');
        Ok(match first {
            '%' => {
                let name = self.value_name()?;
                Arg::Value(self.resolve(scope, &name)?)
            }
            '(' => {
                self.expect("(")?;
                let names = self.list(")", |p| p.value_name())?;
                let values = names.iter().map(|n| self.resolve(scope, n));
                Arg::Values(values.collect::<Parsed<_>>()?)
            }
            '"' => Arg::Attr(Attr::Str(self.string()?)),
            '[' => {
                self.expect("[")?;
                let words = self.list("]", |p| p.number_word())?;
                Arg::Attr(self.list_attr(&words)?)
            }
            _ => {
                let start = self.at;
                let word = self.number_word()?;
                if word.parse::<DType>().is_ok() {
                    self.at = start;
                    let t = self.tensor()?;
                    if op == "const" {
                        return Ok(Arg::Attr(Attr::Tensor(t)));
                    }
                    let names = [graph.unique_name(literal_name)];
                    let constant = crate::ops::Const { val: t };
                    let made =
                        graph.push_node(block, constant.into(), &names, vec![], Origin::default());
                    return made.map(|v| Arg::Value(v[0])).map_err(|e| self.error(e.to_string()));
                }
                Arg::Attr(self.scalar_attr(&word)?)
            }
        })
    }

    fn scalar_attr(&self, word: &str) -> Parsed<Attr> {
        if let Ok(b) = word.parse::<bool>() {
            return Ok(Attr::Bool(b));
        }
        if let Ok(i) = word.parse::<i32>() {
            return Ok(Attr::Int(i));
        }
        let float = word.parse::<f32>().map(Attr::Float);
        float.map_err(|_| self.error(format!("`{word}` is no value, number or type")))
    }

    fn list_attr(&self, words: &[String]) -> Parsed<Attr> {
        let bools: Result<Vec<bool>, _> = words.iter().map(|w| w.parse()).collect();
        if let (Ok(b), false) = (bools, words.is_empty()) {
            return Ok(Attr::Bools(b));
        }
        let ints: Result<Vec<i32>, _> = words.iter().map(|w| w.parse()).collect();
        ints.map(Attr::Ints).map_err(|_| self.error("integers or booleans are expected"))
    }

    /// `dtype[shape]` and its elements: `[1, 2]`, `hex"…"`, `#name` or `splat(0.5)`.
    fn tensor(&mut self) -> Parsed<Tensor> {
        let Type::Tensor(ty) = self.ty(0)? else { return Err(self.error("a tensor is expected")) };
        let shape = ty.fixed_shape().ok_or_else(|| self.error("a constant has a fixed shape"))?;
        if self.eat("#") {
            let name = self.identifier_like()?;
            let t = self.store.get(&name).filter(|t| t.ty() == ty).cloned();
            return t.ok_or_else(|| self.error(format!("no {ty} is called #{name}")));
        }
        if self.word("splat") {
            self.expect("(")?;
            let word = self.number_word()?;
            self.expect(")")?;
            let n = ty.n_elements().filter(|&n| n <= SPLAT_MAX - self.n_splat);
            let n = n.ok_or_else(|| self.error("splats this large together"))?;
            self.n_splat += n;
            return self.elements(ty.dtype, shape, std::iter::repeat_n(word.as_str(), n as usize));
        }
        if self.rest().starts_with("hex\"") {
            self.at += 3;
            let hex = self.string()?;
            let bytes = self.hex(&hex)?;
            return self.sized(Tensor::new(ty.dtype, shape, bytes.into()));
        }
        self.expect("[")?;
        if ty.dtype == DType::String {
            let strings = self.list("]", |p| p.string())?;
            return self.sized(Tensor::strings(shape, strings));
        }
        let words = self.list("]", |p| p.number_word())?;
        self.elements(ty.dtype, shape, words.iter().map(String::as_str))
    }

    fn sized(&self, t: Result<Tensor, crate::SizeError>) -> Parsed<Tensor> {
        t.map_err(|e| self.error(e.to_string()))
    }

    fn hex(&self, text: &str) -> Parsed<Vec<u8>> {
        let digit = |c: u8| (c as char).to_digit(16).map(|d| d as u8);
        let byte = |pair: &[u8]| Some(digit(pair[0])? << 4 | digit(*pair.get(1)?)?);
        let bytes: Option<Vec<u8>> = text.as_bytes().chunks(2).map(byte).collect();
        bytes.ok_or_else(|| self.error("hex digits are expected, two per byte"))
    }

    /// Packs elements written in decimal.
    fn elements<'w>(
        &self,
        dtype: DType,
        shape: Vec<u64>,
        words: impl Iterator<Item = &'w str>,
    ) -> Parsed<Tensor> {
        let mut bytes = Vec::new();
        let mut stream = BitStream::default();
        for w in words {
            let bad = |_| self.error(format!("`{w}` is no {dtype}"));
            let float = || w.parse::<f32>().map_err(|_| bad(()));
            match dtype {
                DType::F16 => bytes.extend(f16::from_f32(float()?).to_le_bytes()),
                DType::BF16 => bytes.extend(bf16::from_f32(float()?).to_le_bytes()),
                DType::F32 => bytes.extend(float()?.to_le_bytes()),
                DType::F64 => {
                    bytes.extend(w.parse::<f64>().map_err(|_| bad(()))?.to_le_bytes());
                }
                DType::Bool => bytes.push(w.parse::<bool>().map_err(|_| bad(()))?.into()),
                d if d.is_int() => {
                    let i: i128 = w.parse().map_err(|_| bad(()))?;
                    let signed = d.name().starts_with('i');
                    let (low, high) = match signed {
                        true => (-(1i128 << (d.bits() - 1)), (1i128 << (d.bits() - 1)) - 1),
                        false => (0, (1i128 << d.bits()) - 1),
                    };
                    if !(low..=high).contains(&i) {
                        return Err(bad(()));
                    }
                    stream.push(i as u64, d.bits());
                }
                _ => return Err(self.error(format!("{dtype} elements are written as hex"))),
            }
        }
        bytes.extend(stream.finish());
        self.sized(Tensor::new(dtype, shape, bytes.into()))
    }

    fn ty(&mut self, depth: usize) -> Parsed<Type> {
        if depth > DEPTH_MAX {
            return Err(self.error("a type is nested too deeply"));
        }
        let name = self.identifier()?;
        match name.as_str() {
            "list" => {
                self.expect("<")?;
                let inner = Box::new(self.ty(depth + 1)?);
                let n = if self.eat(",") { Some(self.unsigned()?) } else { None };
                self.expect(">")?;
                Ok(Type::List(inner, n))
            }
            "state" => {
                self.expect("<")?;
                let Type::Tensor(inner) = self.ty(depth + 1)? else {
                    return Err(self.error("a state is a tensor"));
                };
                self.expect(">")?;
                Ok(Type::State(inner))
            }
            "dict" => {
                self.expect("<")?;
                let key = Box::new(self.ty(depth + 1)?);
                self.expect(",")?;
                let value = Box::new(self.ty(depth + 1)?);
                self.expect(">")?;
                Ok(Type::Dict(key, value))
            }
            _ => {
                let dtype = name.parse().map_err(|()| self.error(format!("no type `{name}`")))?;
                // No space before a shape: `fp16 [1.0]` is a scalar and its element.
                let shape = match self.text[self.at..].starts_with('[') {
                    true => {
                        self.expect("[")?;
                        self.list("]", |p| p.dim())?
                    }
                    false => Vec::new(),
                };
                Ok(TensorType { dtype, shape }.into())
            }
        }
    }

    fn dim(&mut self) -> Parsed<Dim> {
        if self.rest().starts_with(|c: char| c.is_ascii_digit()) {
            return Ok(Dim::Fixed(self.unsigned()?));
        }
        Ok(Dim::Symbol(Symbol::new(&self.identifier_like()?)))
    }

    fn list<T>(
        &mut self,
        close: &str,
        mut item: impl FnMut(&mut Self) -> Parsed<T>,
    ) -> Parsed<Vec<T>> {
        let mut all = Vec::new();
        while !self.eat(close) {
            all.push(item(self)?);
            if !self.eat(",") {
                self.expect(close)?;
                break;
            }
        }
        Ok(all)
    }

    // Tokens.

    fn rest(&mut self) -> &'t str {
        loop {
            let rest = self.text[self.at..].trim_start();
            self.at = self.text.len() - rest.len();
            let Some(comment) = rest.strip_prefix("//") else { return rest };
            let end = comment.find('\n').unwrap_or(comment.len());
            self.at = self.text.len() - comment.len() + end;
        }
    }

    fn eat(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn expect(&mut self, token: &str) -> Parsed<()> {
        if self.eat(token) {
            return Ok(());
        }
        let found: String = self.rest().chars().take(12).collect();
        let found = found.lines().next().unwrap_or_default();
        Err(self.error(format!("`{token}` is expected, not `{found}`")))
    }

    fn word(&mut self, word: &str) -> bool {
        let after = self.rest().strip_prefix(word);
        let found = after.is_some_and(|r| !r.starts_with(|c: char| is_word(c)));
        if found {
            self.at += word.len();
        }
        found
    }

    fn expect_word(&mut self, word: &str) -> Parsed<()> {
        if self.word(word) { Ok(()) } else { Err(self.error(format!("`{word}` is expected"))) }
    }

    fn take_while(&mut self, what: &str, ok: impl Fn(char) -> bool) -> Parsed<String> {
        let rest = self.rest();
        let end = rest.find(|c| !ok(c)).unwrap_or(rest.len());
        if end == 0 {
            return Err(self.error(format!("{what} is expected")));
        }
        self.at += end;
        Ok(rest[..end].to_owned())
    }

    fn identifier(&mut self) -> Parsed<String> {
        self.take_while("a name", is_word)
    }

    /// Hashes and the names of derived symbols.
    fn identifier_like(&mut self) -> Parsed<String> {
        self.take_while("a name", |c| is_word(c) || c == '.')
    }

    fn pass_name(&mut self) -> Parsed<String> {
        self.take_while("a pass", |c| c.is_ascii_alphanumeric() || c == '-')
    }

    fn value_name(&mut self) -> Parsed<String> {
        self.expect("%")?;
        self.identifier()
    }

    fn number_word(&mut self) -> Parsed<String> {
        let number = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
        self.take_while("a number", number)
    }

    fn unsigned(&mut self) -> Parsed<u64> {
        let digits = self.take_while("a number", |c| c.is_ascii_digit())?;
        digits.parse().map_err(|_| self.error(format!("`{digits}` is too large")))
    }

    /// A string with Rust's escapes, as `{:?}` prints it.
    fn string(&mut self) -> Parsed<String> {
        self.expect("\"")?;
        let mut out = String::new();
        let text: &'t str = self.text;
        let mut chars = text[self.at..].char_indices();
        while let Some((i, c)) = chars.next() {
            match c {
                '"' => {
                    self.at += i + 1;
                    return Ok(out);
                }
                '\\' => match chars.next().map(|(_, c)| c) {
                    Some('n') => out.push('\n'),
                    Some('t') => out.push('\t'),
                    Some('r') => out.push('\r'),
                    Some('0') => out.push('\0'),
                    Some('u') => {
                        let code: String =
                            chars.by_ref().map(|(_, c)| c).take_while(|&c| c != '}').collect();
                        let code = u32::from_str_radix(code.trim_start_matches('{'), 16).ok();
                        let c = code.and_then(char::from_u32);
                        out.push(c.ok_or_else(|| self.error("no such character"))?);
                    }
                    Some(c) => out.push(c),
                    None => break,
                },
                c => out.push(c),
            }
        }
        Err(self.error("a string does not end"))
    }

    fn error(&self, message: impl Into<String>) -> ParseError {
        self.error_at(self.at, message)
    }

    fn error_at(&self, at: usize, message: impl Into<String>) -> ParseError {
        let line = self.text[..at].matches('\n').count() + 1;
        ParseError { line, message: message.into() }
    }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '@'
}

/// Packs integers of any width, least significant bit first.
#[derive(Default)]
struct BitStream {
    bytes: Vec<u8>,
    pending: u128,
    n_pending: u64,
}

impl BitStream {
    fn push(&mut self, value: u64, bits: u64) {
        let value = u128::from(value << (64 - bits) >> (64 - bits));
        self.pending |= value << self.n_pending;
        self.n_pending += bits;
        while self.n_pending >= 8 {
            self.bytes.push(self.pending as u8);
            self.pending >>= 8;
            self.n_pending -= 8;
        }
    }

    fn finish(mut self) -> Vec<u8> {
        if self.n_pending > 0 {
            self.bytes.push(self.pending as u8);
        }
        self.bytes
    }
}
