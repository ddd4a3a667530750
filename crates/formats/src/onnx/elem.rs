//! Element types of ONNX, and what they become.

use russet_ir::DType;

use super::Why;

/// An element type, by its number in `onnx.proto`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Elem {
    F32,
    U8,
    I8,
    U16,
    I16,
    I32,
    I64,
    Str,
    Bool,
    F16,
    F64,
    U32,
    U64,
    BF16,
    F8E4M3,
    F8E5M2,
    U4,
    I4,
    U2,
}

use Elem::*;

/// Number in `onnx.proto`, name there, element type of a tensor that holds it as it is stored.
const ALL: &[(i32, Elem, &str, DType)] = &[
    (1, F32, "float", DType::F32),
    (2, U8, "uint8", DType::U8),
    (3, I8, "int8", DType::I8),
    (4, U16, "uint16", DType::U16),
    (5, I16, "int16", DType::I16),
    (6, I32, "int32", DType::I32),
    (7, I64, "int64", DType::I64),
    (8, Str, "string", DType::String),
    (9, Bool, "bool", DType::Bool),
    (10, F16, "float16", DType::F16),
    (11, F64, "double", DType::F64),
    (12, U32, "uint32", DType::U32),
    (13, U64, "uint64", DType::U64),
    (16, BF16, "bfloat16", DType::BF16),
    (17, F8E4M3, "float8e4m3fn", DType::F8E4M3),
    (19, F8E5M2, "float8e5m2", DType::F8E5M2),
    (21, U4, "uint4", DType::U4),
    (22, I4, "int4", DType::I4),
    (25, U2, "uint2", DType::U2),
];

impl Elem {
    pub fn from_code(code: i32) -> Result<Elem, Why> {
        let found = ALL.iter().find(|e| e.0 == code).map(|e| e.1);
        found.ok_or_else(|| {
            let name = match code {
                0 => "no type",
                14 | 15 => "complex numbers",
                18 | 20 => "float8 without a negative zero (fnuz)",
                23 => "float4e2m1",
                24 => "float8e8m0",
                _ => "an unknown type",
            };
            Why(format!("elements of type {code}, {name}, have no place in MIL"))
        })
    }

    fn row(self) -> &'static (i32, Elem, &'static str, DType) {
        ALL.iter().find(|e| e.1 == self).unwrap_or(&ALL[0])
    }

    pub fn name(self) -> &'static str {
        self.row().2
    }

    /// As it is stored.
    pub fn stored(self) -> DType {
        self.row().3
    }

    /// The type it is computed with: floats of other widths as fp32, integers as int32.
    pub fn computed(self) -> DType {
        match self {
            F16 => DType::F16,
            F32 | F64 | BF16 | F8E4M3 | F8E5M2 => DType::F32,
            Bool => DType::Bool,
            Str => DType::String,
            _ => DType::I32,
        }
    }

    pub fn is_float(self) -> bool {
        self.stored().is_float()
    }

    pub fn is_int(self) -> bool {
        self.stored().is_int()
    }

    /// Smallest and largest of an integer type, within i64.
    pub fn range(self) -> (i64, i64) {
        match self {
            U2 => (0, 3),
            U4 => (0, 15),
            I4 => (-8, 7),
            U8 => (0, 255),
            I8 => (-128, 127),
            U16 => (0, 65535),
            I16 => (-32768, 32767),
            I32 => (i32::MIN.into(), i32::MAX.into()),
            U32 => (0, u32::MAX.into()),
            U64 => (0, i64::MAX),
            Bool => (0, 1),
            _ => (i64::MIN, i64::MAX),
        }
    }

    /// The MIL type of 8 or 16 bits that an op can make of it.
    pub fn narrow(self) -> Option<DType> {
        match self {
            U8 => Some(DType::U8),
            I8 => Some(DType::I8),
            U16 => Some(DType::U16),
            I16 => Some(DType::I16),
            _ => None,
        }
    }
}
