//! Fields a message has and we do not know, kept as they are.

use bytes::{Buf, BufMut, Bytes};
use prost::DecodeError;
use prost::encoding::{
    WireType, check_wire_type, decode_varint, encode_key, encode_varint, encoded_len_varint,
    key_len,
};

/// Fields of a message that its declaration here does not have, in the order they came.
///
/// They are written again after all known fields, where `protobuf` writes them too. Contents are
/// slices of the message they came in, so keeping even a large one copies nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Unknown(Vec<Raw>);

#[derive(Debug, Clone, PartialEq)]
struct Raw {
    tag: u32,
    contents: Contents,
}

#[derive(Debug, Clone, PartialEq)]
enum Contents {
    Varint(u64),
    Four([u8; 4]),
    Eight([u8; 8]),
    Bytes(Bytes),
}

impl Unknown {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Numbers of the fields, as often as they occur.
    pub fn tags(&self) -> impl Iterator<Item = u32> {
        self.0.iter().map(|r| r.tag)
    }

    /// The message or string in field `tag`; of several the last, as `protobuf` has it.
    pub fn bytes(&self, tag: u32) -> Option<&Bytes> {
        self.0.iter().rev().find_map(|r| match &r.contents {
            Contents::Bytes(b) if r.tag == tag => Some(b),
            _ => None,
        })
    }

    /// All messages or strings in field `tag`.
    pub fn all_bytes(&self, tag: u32) -> impl Iterator<Item = &Bytes> {
        self.0.iter().filter_map(move |r| match &r.contents {
            Contents::Bytes(b) if r.tag == tag => Some(b),
            _ => None,
        })
    }

    /// The whole numbers in field `tag`, packed or one by one; up to the first that is damaged.
    pub fn numbers(&self, tag: u32) -> Vec<u64> {
        let mut numbers = Vec::new();
        for raw in self.0.iter().filter(|r| r.tag == tag) {
            match &raw.contents {
                Contents::Varint(n) => numbers.push(*n),
                Contents::Bytes(packed) => {
                    let mut rest = packed.clone();
                    while rest.has_remaining() {
                        let Ok(n) = decode_varint(&mut rest) else { return numbers };
                        numbers.push(n);
                    }
                }
                _ => {}
            }
        }
        numbers
    }

    /// Takes one field out of `buf`. Groups, which no Core ML message has, are refused.
    pub(crate) fn merge(
        &mut self,
        tag: u32,
        wire: WireType,
        buf: &mut impl Buf,
    ) -> Result<(), DecodeError> {
        // What is too short is read as a string longer than the message, which says so.
        let fits = |buf: &mut _, n| if Buf::remaining(buf) < n { underflow() } else { Ok(()) };
        let contents = match wire {
            WireType::Varint => Contents::Varint(decode_varint(buf)?),
            WireType::ThirtyTwoBit => {
                fits(buf, 4)?;
                Contents::Four(buf.get_u32_le().to_le_bytes())
            }
            WireType::SixtyFourBit => {
                fits(buf, 8)?;
                Contents::Eight(buf.get_u64_le().to_le_bytes())
            }
            WireType::LengthDelimited => {
                let n = usize::try_from(decode_varint(buf)?).unwrap_or(usize::MAX);
                fits(buf, n)?;
                Contents::Bytes(buf.copy_to_bytes(n))
            }
            WireType::StartGroup | WireType::EndGroup => {
                return check_wire_type(WireType::LengthDelimited, wire);
            }
        };
        self.0.push(Raw { tag, contents });
        Ok(())
    }

    pub(crate) fn encode(&self, buf: &mut impl BufMut) {
        for Raw { tag, contents } in &self.0 {
            match contents {
                Contents::Varint(n) => {
                    encode_key(*tag, WireType::Varint, buf);
                    encode_varint(*n, buf);
                }
                Contents::Four(b) => {
                    encode_key(*tag, WireType::ThirtyTwoBit, buf);
                    buf.put_slice(b);
                }
                Contents::Eight(b) => {
                    encode_key(*tag, WireType::SixtyFourBit, buf);
                    buf.put_slice(b);
                }
                Contents::Bytes(b) => {
                    encode_key(*tag, WireType::LengthDelimited, buf);
                    encode_varint(b.len() as u64, buf);
                    buf.put_slice(b);
                }
            }
        }
    }

    pub(crate) fn encoded_len(&self) -> usize {
        let len = |r: &Raw| {
            key_len(r.tag)
                + match &r.contents {
                    Contents::Varint(n) => encoded_len_varint(*n),
                    Contents::Four(_) => 4,
                    Contents::Eight(_) => 8,
                    Contents::Bytes(b) => encoded_len_varint(b.len() as u64) + b.len(),
                }
        };
        self.0.iter().map(len).sum()
    }
}

/// The error of a message that ends too early, which `prost` lets nobody else make.
fn underflow() -> Result<(), DecodeError> {
    let mut empty: &[u8] = &[];
    decode_varint(&mut empty).map(|_| ())
}
