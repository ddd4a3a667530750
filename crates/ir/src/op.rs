//! How an op is declared: its MIL name, its operands and parameters, and what each may hold.
//!
//! [`op!`](crate::op) turns one declaration into a struct and everything mechanical about it: the
//! operand walk, the text form and the package form. What is left per op is [`OpDef`]: its type
//! rule and the work it is.

use std::fmt;

use crate::infer::{Outputs, TypeError, Types};
use crate::{DType, Opset, Tensor, Value};

/// What an operand or parameter of an op holds.
#[derive(Debug, Clone, PartialEq)]
pub enum Arg {
    Value(Value),
    /// A variadic operand such as `values` of `concat`.
    Values(Vec<Value>),
    /// A parameter fixed when the program is written; a `const` op in a package.
    Attr(Attr),
}

/// A parameter. Floats take the element type of the op's first operand in a package.
#[derive(Debug, Clone, PartialEq)]
pub enum Attr {
    Int(i32),
    Ints(Vec<i32>),
    Bool(bool),
    Bools(Vec<bool>),
    Float(f32),
    Str(String),
    Tensor(Tensor),
}

/// Arguments by name, as read from text or a package, waiting to become an op.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Args(pub Vec<(String, Arg)>);

impl Args {
    /// Takes the argument `name` out.
    pub fn take(&mut self, name: &str) -> Option<Arg> {
        let i = self.0.iter().position(|(n, _)| n == name)?;
        Some(self.0.remove(i).1)
    }
}

/// Arguments that do not fit the op's declaration.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ArgError {
    #[error("`{op}` needs `{param}`")]
    Missing { op: &'static str, param: &'static str },
    #[error("`{param}` of `{op}` cannot be {found}, {expected} is expected")]
    Kind { op: &'static str, param: &'static str, expected: &'static str, found: String },
    #[error("`{op}` has no parameter `{param}`")]
    Unknown { op: &'static str, param: String },
    #[error("`{param}` of `{op}` exists from {since} on, the program is {opset}")]
    TooNew { op: &'static str, param: &'static str, since: Opset, opset: Opset },
    #[error("`{param}` of `{op}` is no more from {until} on, the program is {opset}")]
    TooOld { op: &'static str, param: &'static str, until: Opset, opset: Opset },
}

/// A type a field of an op can have.
pub trait Param: Sized {
    /// In words, for errors: "a value", "an integer".
    const EXPECTED: &'static str;
    /// `None` when the (optional) parameter is absent.
    fn to_arg(&self) -> Option<Arg>;
    fn from_arg(arg: &Arg) -> Option<Self>;
    /// What an absent parameter reads as, for types that allow it.
    fn absent() -> Option<Self> {
        None
    }
    fn map_values(&mut self, _f: &mut dyn FnMut(Value) -> Value) {}
}

impl Param for Value {
    const EXPECTED: &'static str = "a value";
    fn to_arg(&self) -> Option<Arg> {
        Some(Arg::Value(*self))
    }
    fn from_arg(arg: &Arg) -> Option<Self> {
        match arg {
            Arg::Value(v) => Some(*v),
            _ => None,
        }
    }
    fn map_values(&mut self, f: &mut dyn FnMut(Value) -> Value) {
        *self = f(*self);
    }
}

impl Param for Vec<Value> {
    const EXPECTED: &'static str = "a list of values";
    fn to_arg(&self) -> Option<Arg> {
        Some(Arg::Values(self.clone()))
    }
    fn from_arg(arg: &Arg) -> Option<Self> {
        match arg {
            Arg::Values(v) => Some(v.clone()),
            Arg::Value(v) => Some(vec![*v]),
            Arg::Attr(_) => None,
        }
    }
    fn map_values(&mut self, f: &mut dyn FnMut(Value) -> Value) {
        self.iter_mut().for_each(|v| *v = f(*v));
    }
}

impl<P: Param> Param for Option<P> {
    const EXPECTED: &'static str = P::EXPECTED;
    fn to_arg(&self) -> Option<Arg> {
        self.as_ref().and_then(P::to_arg)
    }
    fn from_arg(arg: &Arg) -> Option<Self> {
        P::from_arg(arg).map(Some)
    }
    fn absent() -> Option<Self> {
        Some(None)
    }
    fn map_values(&mut self, f: &mut dyn FnMut(Value) -> Value) {
        if let Some(p) = self {
            p.map_values(f);
        }
    }
}

macro_rules! attr_param {
    ($($type:ty, $expected:literal, $x:ident => $attr:expr, $pattern:pat => $value:expr;)*) => {$(
        impl Param for $type {
            const EXPECTED: &'static str = $expected;
            fn to_arg(&self) -> Option<Arg> {
                let $x = self.clone();
                Some(Arg::Attr($attr))
            }
            fn from_arg(arg: &Arg) -> Option<Self> {
                match arg {
                    Arg::Attr($pattern) => $value,
                    _ => None,
                }
            }
        }
    )*};
}

attr_param! {
    i32, "an integer", x => Attr::Int(x), Attr::Int(i) => Some(*i);
    bool, "true or false", x => Attr::Bool(x), Attr::Bool(b) => Some(*b);
    f32, "a number", x => Attr::Float(x), Attr::Float(f) => Some(*f);
    Vec<i32>, "a list of integers", x => Attr::Ints(x), Attr::Ints(v) => Some(v.clone());
    Vec<bool>, "a list of true and false", x => Attr::Bools(x), Attr::Bools(v) => Some(v.clone());
    String, "a string", x => Attr::Str(x), Attr::Str(s) => Some(s.clone());
    DType, "a dtype", x => Attr::Str(x.name().into()), Attr::Str(s) => s.parse().ok();
    Tensor, "a tensor", x => Attr::Tensor(x), Attr::Tensor(t) => Some(t.clone());
}

/// A parameter of the element type of the op's first operand, which may be of floats or integers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    Int(i32),
    Float(f32),
}

impl Number {
    /// The number, rounded when it is a large integer.
    pub fn to_f32(self) -> f32 {
        match self {
            Number::Int(i) => i as f32,
            Number::Float(x) => x,
        }
    }
}

impl Param for Number {
    const EXPECTED: &'static str = "a number";
    fn to_arg(&self) -> Option<Arg> {
        Some(Arg::Attr(match *self {
            Number::Int(i) => Attr::Int(i),
            Number::Float(x) => Attr::Float(x),
        }))
    }
    fn from_arg(arg: &Arg) -> Option<Self> {
        match arg {
            Arg::Attr(Attr::Int(i)) => Some(Number::Int(*i)),
            Arg::Attr(Attr::Float(x)) => Some(Number::Float(*x)),
            _ => None,
        }
    }
}

/// An enum of strings that MIL uses as a parameter.
#[macro_export]
macro_rules! string_param {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $string:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name { $($variant),* }

        impl $crate::Param for $name {
            const EXPECTED: &'static str = concat!("one of", $(" \"", $string, "\""),*);
            fn to_arg(&self) -> Option<$crate::Arg> {
                let s = match self { $($name::$variant => $string),* };
                Some($crate::Arg::Attr($crate::Attr::Str(s.into())))
            }
            fn from_arg(arg: &$crate::Arg) -> Option<Self> {
                let $crate::Arg::Attr($crate::Attr::Str(s)) = arg else { return None };
                // Converters write them in capitals and in small letters.
                $(if s.eq_ignore_ascii_case($string) { return Some($name::$variant) })*
                None
            }
        }
    };
}

/// What an op costs, before any hardware is known. Counts, not times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Work {
    /// Multiply-accumulates of a matrix product or convolution.
    pub macs: u64,
    /// Other arithmetic: one per element and step.
    pub flops: u64,
    /// Exponentials, roots, divisions: what hardware takes from a table.
    pub exps: u64,
}

/// The two questions each op answers.
pub trait OpDef: Fields {
    /// The types of its outputs, from the types of its operands.
    fn infer(&self, types: &Types<'_>) -> Result<Outputs, TypeError>;

    /// The work it is on operands of these (fixed) types; zero for what only moves data.
    fn work(&self, _types: &Types<'_>) -> Work {
        Work::default()
    }
}

/// What [`op!`](crate::op) derives from a declaration.
pub trait Fields: Sized {
    /// MIL's name.
    const NAME: &'static str;
    /// The opset it appeared in.
    const SINCE: Opset;
    /// The first opset in which this version is no more, another of the same name having come.
    const UNTIL: Option<Opset>;

    /// Every present operand and parameter that exists in `opset`, in declaration order.
    fn args(&self, opset: Opset) -> Vec<(&'static str, Arg)>;
    /// The same whatever the opset.
    fn all_args(&self) -> Vec<(&'static str, Arg)>;
    fn from_args(args: Args, opset: Opset) -> Result<Self, ArgError>;
    fn map_values(&mut self, f: &mut dyn FnMut(Value) -> Value);
}

/// Declares one op. `= default` makes a parameter optional; `since OPSET` hides it before, `until
/// OPSET` from there on. Versions of an op that share no more than a name are ops of their own,
/// the older one `until` the newer.
#[macro_export]
macro_rules! op {
    ($(#[$doc:meta])* $name:literal since $since:ident $(until $until:ident)? => $ty:ident {
        $($field:ident : $fty:ty $(= $default:expr)? $(, since $fsince:ident)? $(, until $funtil:ident)?);* $(;)?
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $ty { $(pub $field: $fty),* }

        impl $crate::Fields for $ty {
            const NAME: &'static str = $name;
            const SINCE: $crate::Opset = $crate::Opset::$since;
            #[allow(unused_variables)]
            const UNTIL: Option<$crate::Opset> = {
                let until: Option<$crate::Opset> = None;
                $(let until = Some($crate::Opset::$until);)?
                until
            };

            #[allow(unused_mut, unused_variables)]
            fn args(&self, opset: $crate::Opset) -> Vec<(&'static str, $crate::Arg)> {
                let mut args = Vec::new();
                $({
                    let shown = true $(&& opset >= $crate::Opset::$fsince)?
                        $(&& opset < $crate::Opset::$funtil)?;
                    if let (true, Some(arg)) = (shown, $crate::Param::to_arg(&self.$field)) {
                        args.push((stringify!($field), arg));
                    }
                })*
                args
            }

            fn all_args(&self) -> Vec<(&'static str, $crate::Arg)> {
                let args: [(&'static str, Option<$crate::Arg>); _] =
                    [$((stringify!($field), $crate::Param::to_arg(&self.$field))),*];
                args.into_iter().filter_map(|(param, arg)| Some((param, arg?))).collect()
            }

            #[allow(unused_mut, unused_variables)]
            fn from_args(
                mut args: $crate::Args,
                opset: $crate::Opset,
            ) -> Result<Self, $crate::ArgError> {
                let op = $ty { $($field: {
                    let param = stringify!($field);
                    match args.take(param) {
                        Some(arg) => {
                            $(if opset < $crate::Opset::$fsince {
                                let since = $crate::Opset::$fsince;
                                return Err($crate::ArgError::TooNew { op: $name, param, since, opset });
                            })?
                            $(if opset >= $crate::Opset::$funtil {
                                let until = $crate::Opset::$funtil;
                                return Err($crate::ArgError::TooOld { op: $name, param, until, opset });
                            })?
                            <$fty as $crate::Param>::from_arg(&arg).ok_or_else(|| {
                                $crate::ArgError::Kind {
                                    op: $name,
                                    param,
                                    expected: <$fty as $crate::Param>::EXPECTED,
                                    found: arg.to_string(),
                                }
                            })?
                        }
                        None => {
                            let default: Option<$fty> = None;
                            $(let default = Some($default);)?
                            default
                                .or_else(<$fty as $crate::Param>::absent)
                                .ok_or($crate::ArgError::Missing { op: $name, param })?
                        }
                    }
                }),* };
                match args.0.into_iter().next() {
                    Some((param, _)) => Err($crate::ArgError::Unknown { op: $name, param }),
                    None => Ok(op),
                }
            }

            #[allow(unused_variables)]
            fn map_values(&mut self, f: &mut dyn FnMut($crate::Value) -> $crate::Value) {
                $($crate::Param::map_values(&mut self.$field, f);)*
            }
        }
    };
}

/// A version of an op: its MIL name and the opsets that have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Declared {
    pub name: &'static str,
    pub since: Opset,
    /// The first opset that has it no more.
    pub until: Option<Opset>,
}

impl Declared {
    pub fn is_in(&self, opset: Opset) -> bool {
        self.since <= opset && self.until.is_none_or(|until| opset < until)
    }
}

/// Makes the closed enum of all declared ops and forwards to each.
#[macro_export]
macro_rules! op_enum {
    ($($op:ident),* $(,)?) => {
        /// One operation of MIL.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Op {
            $($op($op),)*
            /// An op this version does not know, kept whole.
            Opaque($crate::ops::Opaque),
        }

        $(impl From<$op> for Op {
            fn from(op: $op) -> Op {
                Op::$op(op)
            }
        })*

        impl Op {
            /// Every declared op.
            pub const DECLARED: &'static [$crate::Declared] = &[$($crate::Declared {
                name: <$op as $crate::Fields>::NAME,
                since: <$op as $crate::Fields>::SINCE,
                until: <$op as $crate::Fields>::UNTIL,
            }),*];

            /// MIL's name.
            pub fn name(&self) -> &str {
                match self {
                    $(Op::$op(_) => <$op as $crate::Fields>::NAME,)*
                    Op::Opaque(op) => &op.name,
                }
            }

            /// Name and opsets; `None` when the op is not known.
            pub fn declared(&self) -> Option<$crate::Declared> {
                match self {
                    $(Op::$op(_) => Some($crate::Declared {
                        name: <$op as $crate::Fields>::NAME,
                        since: <$op as $crate::Fields>::SINCE,
                        until: <$op as $crate::Fields>::UNTIL,
                    }),)*
                    Op::Opaque(_) => None,
                }
            }

            /// Present operands and parameters as `opset` has them.
            pub fn args(&self, opset: $crate::Opset) -> Vec<(&str, $crate::Arg)> {
                match self {
                    $(Op::$op(op) => $crate::Fields::args(op, opset),)*
                    Op::Opaque(op) => op.args(),
                }
            }

            /// The same whatever the opset.
            pub fn all_args(&self) -> Vec<(&str, $crate::Arg)> {
                match self {
                    $(Op::$op(op) => $crate::Fields::all_args(op),)*
                    Op::Opaque(op) => op.args(),
                }
            }

            /// The op called `name`; `None` when it is not declared in `opset`.
            pub fn from_args(
                name: &str,
                args: $crate::Args,
                opset: $crate::Opset,
            ) -> Option<Result<Op, $crate::ArgError>> {
                $(if name == <$op as $crate::Fields>::NAME
                    && <$op as $crate::Fields>::SINCE <= opset
                    && <$op as $crate::Fields>::UNTIL.is_none_or(|until| opset < until)
                {
                    return Some(<$op as $crate::Fields>::from_args(args, opset).map(Op::$op));
                })*
                None
            }

            /// Replaces every operand.
            pub fn map_values(&mut self, f: &mut dyn FnMut($crate::Value) -> $crate::Value) {
                match self {
                    $(Op::$op(op) => $crate::Fields::map_values(op, f),)*
                    Op::Opaque(op) => op.map_values(f),
                }
            }

            /// Types (and known contents) of the outputs.
            pub fn infer(&self, types: &$crate::Types<'_>) -> Result<$crate::Outputs, $crate::TypeError> {
                let outputs = match self {
                    $(Op::$op(op) => $crate::OpDef::infer(op, types)?,)*
                    Op::Opaque(op) => op.outputs(),
                };
                outputs.within_rank()
            }

            /// Arithmetic counts on fixed shapes; of an unknown op, none.
            pub fn work(&self, types: &$crate::Types<'_>) -> $crate::Work {
                match self {
                    $(Op::$op(op) => $crate::OpDef::work(op, types),)*
                    Op::Opaque(_) => $crate::Work::default(),
                }
            }
        }
    };
}

impl fmt::Display for Arg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Arg::Value(_) => f.write_str("a value"),
            Arg::Values(v) => write!(f, "{} values", v.len()),
            Arg::Attr(Attr::Tensor(t)) => write!(f, "a constant {}", t.ty()),
            Arg::Attr(a) => a.fmt(f),
        }
    }
}

/// As the text form shows it: floats shortest and exact, always recognisable as floats.
impl fmt::Display for Attr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Attr::Int(i) => i.fmt(f),
            Attr::Bool(b) => b.fmt(f),
            Attr::Float(x) => f.write_str(&crate::text::float(f64::from(*x), |s| {
                s.parse::<f32>().is_ok_and(|y| y.to_bits() == x.to_bits())
            })),
            Attr::Ints(v) => write!(f, "{v:?}"),
            Attr::Bools(v) => write!(f, "{v:?}"),
            Attr::Str(s) => write!(f, "{s:?}"),
            Attr::Tensor(t) => t.ty().fmt(f),
        }
    }
}
