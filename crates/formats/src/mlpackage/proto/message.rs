//! How messages are declared: [`message!`] makes a struct that keeps what it does not know.
//!
//! `prost` derives messages too, but drops unknown fields and the order of maps; here a package
//! that is read and written again must not lose a field that a newer Core ML added.

use bytes::{Buf, BufMut, Bytes};
use prost::DecodeError;
use prost::encoding::{
    self, DecodeContext, WireType, check_wire_type, encode_key, encode_varint, encoded_len_varint,
    key_len, merge_loop,
};

use super::map::Map;

/// A message declared by [`message!`].
pub trait Declared: prost::Message + Default {}

impl<M: Declared> Declared for Box<M> {}

/// What a field of a message can be: how it is written and read follows from its type.
pub trait Field {
    fn put(&self, tag: u32, buf: &mut impl BufMut);
    fn len(&self, tag: u32) -> usize;
    fn read(
        &mut self,
        wire: WireType,
        buf: &mut impl Buf,
        ctx: DecodeContext,
    ) -> Result<(), DecodeError>;
}

/// Scalars, absent when they are zero.
macro_rules! scalar {
    ($($ty:ty => $module:ident, $absent:expr;)*) => {$(
        impl Field for $ty {
            fn put(&self, tag: u32, buf: &mut impl BufMut) {
                let absent: fn(&$ty) -> bool = $absent;
                if !absent(self) {
                    encoding::$module::encode(tag, self, buf);
                }
            }
            fn len(&self, tag: u32) -> usize {
                let absent: fn(&$ty) -> bool = $absent;
                if absent(self) { 0 } else { encoding::$module::encoded_len(tag, self) }
            }
            fn read(
                &mut self,
                wire: WireType,
                buf: &mut impl Buf,
                ctx: DecodeContext,
            ) -> Result<(), DecodeError> {
                encoding::$module::merge(wire, self, buf, ctx)
            }
        }
    )*};
}

scalar! {
    bool => bool, |x| !x;
    i32 => int32, |x| *x == 0;
    i64 => int64, |x| *x == 0;
    u64 => uint64, |x| *x == 0;
    f32 => float, |x| x.to_bits() == 0;
    String => string, |x| x.is_empty();
    Bytes => bytes, |x| x.is_empty();
}

/// Repeated numbers, packed; and repeated strings.
macro_rules! repeated {
    ($($ty:ty => $module:ident, $encode:ident, $len:ident, $merge:ident;)*) => {$(
        impl Field for Vec<$ty> {
            fn put(&self, tag: u32, buf: &mut impl BufMut) {
                encoding::$module::$encode(tag, self, buf);
            }
            fn len(&self, tag: u32) -> usize {
                encoding::$module::$len(tag, self)
            }
            fn read(
                &mut self,
                wire: WireType,
                buf: &mut impl Buf,
                ctx: DecodeContext,
            ) -> Result<(), DecodeError> {
                encoding::$module::$merge(wire, self, buf, ctx)
            }
        }
    )*};
}

repeated! {
    bool => bool, encode_packed, encoded_len_packed, merge_repeated;
    i32 => int32, encode_packed, encoded_len_packed, merge_repeated;
    i64 => int64, encode_packed, encoded_len_packed, merge_repeated;
    u64 => uint64, encode_packed, encoded_len_packed, merge_repeated;
    f32 => float, encode_packed, encoded_len_packed, merge_repeated;
    f64 => double, encode_packed, encoded_len_packed, merge_repeated;
    String => string, encode_repeated, encoded_len_repeated, merge_repeated;
    Bytes => bytes, encode_repeated, encoded_len_repeated, merge_repeated;
}

impl<M: Declared> Field for Option<M> {
    fn put(&self, tag: u32, buf: &mut impl BufMut) {
        if let Some(m) = self {
            encoding::message::encode(tag, m, buf);
        }
    }
    fn len(&self, tag: u32) -> usize {
        self.as_ref().map_or(0, |m| encoding::message::encoded_len(tag, m))
    }
    fn read(
        &mut self,
        wire: WireType,
        buf: &mut impl Buf,
        ctx: DecodeContext,
    ) -> Result<(), DecodeError> {
        encoding::message::merge(wire, self.get_or_insert_default(), buf, ctx)
    }
}

impl<M: Declared> Field for Vec<M> {
    fn put(&self, tag: u32, buf: &mut impl BufMut) {
        self.iter().for_each(|m| encoding::message::encode(tag, m, buf));
    }
    fn len(&self, tag: u32) -> usize {
        encoding::message::encoded_len_repeated(tag, self)
    }
    fn read(
        &mut self,
        wire: WireType,
        buf: &mut impl Buf,
        ctx: DecodeContext,
    ) -> Result<(), DecodeError> {
        encoding::message::merge_repeated(wire, self, buf, ctx)
    }
}

/// A value of a map: always written, even when it is the default.
pub trait MapValue: Default {
    fn put(&self, buf: &mut impl BufMut);
    fn len(&self) -> usize;
    fn read(
        &mut self,
        wire: WireType,
        buf: &mut impl Buf,
        ctx: DecodeContext,
    ) -> Result<(), DecodeError>;
}

impl MapValue for String {
    fn put(&self, buf: &mut impl BufMut) {
        encoding::string::encode(2, self, buf);
    }
    fn len(&self) -> usize {
        encoding::string::encoded_len(2, self)
    }
    fn read(
        &mut self,
        wire: WireType,
        buf: &mut impl Buf,
        ctx: DecodeContext,
    ) -> Result<(), DecodeError> {
        encoding::string::merge(wire, self, buf, ctx)
    }
}

impl<M: Declared> MapValue for M {
    fn put(&self, buf: &mut impl BufMut) {
        encoding::message::encode(2, self, buf);
    }
    fn len(&self) -> usize {
        encoding::message::encoded_len(2, self)
    }
    fn read(
        &mut self,
        wire: WireType,
        buf: &mut impl Buf,
        ctx: DecodeContext,
    ) -> Result<(), DecodeError> {
        encoding::message::merge(wire, self, buf, ctx)
    }
}

impl<V: MapValue> Field for Map<V> {
    fn put(&self, tag: u32, buf: &mut impl BufMut) {
        for (key, value) in self.iter() {
            encode_key(tag, WireType::LengthDelimited, buf);
            encode_varint((encoding::string::encoded_len(1, key) + value.len()) as u64, buf);
            encoding::string::encode(1, key, buf);
            value.put(buf);
        }
    }
    fn len(&self, tag: u32) -> usize {
        let entry = |(key, value): (&String, &V)| {
            let n = encoding::string::encoded_len(1, key) + value.len();
            key_len(tag) + encoded_len_varint(n as u64) + n
        };
        self.iter().map(entry).sum()
    }
    fn read(
        &mut self,
        wire: WireType,
        buf: &mut impl Buf,
        ctx: DecodeContext,
    ) -> Result<(), DecodeError> {
        check_wire_type(WireType::LengthDelimited, wire)?;
        let mut entry = (String::new(), V::default());
        merge_loop(&mut entry, buf, ctx, |(key, value), buf, ctx| {
            let (tag, wire) = encoding::decode_key(buf)?;
            match tag {
                1 => encoding::string::merge(wire, key, buf, ctx),
                2 => value.read(wire, buf, ctx),
                _ => encoding::skip_field(wire, tag, buf, ctx),
            }
        })?;
        self.insert(entry.0, entry.1);
        Ok(())
    }
}

/// Declares messages: fields by number, in ascending order; a `oneof` stands for all its numbers.
///
/// Every message has a field `unknown` beside those declared.
macro_rules! message {
    ($(
        $(#[$doc:meta])*
        $name:ident {
            $($(#[$fdoc:meta])* $tag:literal $(| $more:literal)* => $field:ident : $kind:tt $(($ty:ty))?;)*
        }
    )*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq)]
        pub struct $name {
            $($(#[$fdoc])* pub $field: message!(@type $kind $(($ty))?),)*
            /// Fields this declaration does not have.
            pub unknown: $crate::mlpackage::proto::Unknown,
        }

        impl $crate::mlpackage::proto::message::Declared for $name {}

        impl prost::Message for $name {
            #[allow(unused_variables)]
            fn encode_raw(&self, buf: &mut impl bytes::BufMut) {
                $(message!(@put $kind, self.$field, $tag, buf);)*
                self.unknown.encode(buf);
            }

            #[allow(unused_variables, clippy::manual_range_patterns)]
            fn merge_field(
                &mut self,
                tag: u32,
                wire: prost::encoding::WireType,
                buf: &mut impl bytes::Buf,
                ctx: prost::encoding::DecodeContext,
            ) -> Result<(), prost::DecodeError> {
                match tag {
                    $($tag $(| $more)* => message!(@read $kind $(($ty))?, self.$field, tag, wire, buf, ctx),)*
                    _ => self.unknown.merge(tag, wire, buf),
                }
            }

            fn encoded_len(&self) -> usize {
                0 $(+ message!(@len $kind, self.$field, $tag))* + self.unknown.encoded_len()
            }

            fn clear(&mut self) {
                *self = $name::default();
            }
        }
    )*};
    (@type is ($ty:ty)) => { $ty };
    (@type oneof ($ty:ty)) => { Option<$ty> };
    (@put is, $field:expr, $tag:literal, $buf:expr) => {
        $crate::mlpackage::proto::message::Field::put(&$field, $tag, $buf)
    };
    (@put oneof, $field:expr, $tag:literal, $buf:expr) => {
        if let Some(one) = &$field { one.encode($buf) }
    };
    (@read is ($ty:ty), $field:expr, $n:expr, $wire:expr, $buf:expr, $ctx:expr) => {
        $crate::mlpackage::proto::message::Field::read(&mut $field, $wire, $buf, $ctx)
    };
    (@read oneof ($ty:ty), $field:expr, $n:expr, $wire:expr, $buf:expr, $ctx:expr) => {
        <$ty>::merge(&mut $field, $n, $wire, $buf, $ctx)
    };
    (@len is, $field:expr, $tag:literal) => {
        $crate::mlpackage::proto::message::Field::len(&$field, $tag)
    };
    (@len oneof, $field:expr, $tag:literal) => {
        $field.as_ref().map_or(0, |one| one.encoded_len())
    };
}
pub(crate) use message;
