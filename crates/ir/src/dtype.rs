//! Element types and opsets: the two closed vocabularies of MIL.

use std::fmt;
use std::str::FromStr;

macro_rules! dtypes {
    ($($variant:ident $name:literal $bits:literal),* $(,)?) => {
        /// The type of one element. Names are MIL's (`fp16`, `int32`), as in its text form.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum DType { $($variant),* }

        impl DType {
            /// Every element type there is, in declaration order.
            pub const ALL: &'static [DType] = &[$(DType::$variant),*];

            /// MIL's name.
            pub const fn name(self) -> &'static str {
                match self { $(DType::$variant => $name),* }
            }

            /// Width of one element in bits; 0 for strings, which have none.
            pub const fn bits(self) -> u64 {
                match self { $(DType::$variant => $bits),* }
            }
        }
    };
}

dtypes! {
    Bool "bool" 8, String "string" 0,
    F16 "fp16" 16, F32 "fp32" 32, F64 "fp64" 64, BF16 "bf16" 16,
    F8E4M3 "fp8e4m3fn" 8, F8E5M2 "fp8e5m2" 8,
    I4 "int4" 4, I8 "int8" 8, I16 "int16" 16, I32 "int32" 32, I64 "int64" 64,
    U1 "uint1" 1, U2 "uint2" 2, U3 "uint3" 3, U4 "uint4" 4, U6 "uint6" 6,
    U8 "uint8" 8, U16 "uint16" 16, U32 "uint32" 32, U64 "uint64" 64,
}

impl DType {
    /// Bytes of `n` elements, packed as Core ML packs them: one bit stream, no row padding.
    ///
    /// `None` when the size does not fit `u64`.
    pub fn bytes(self, n: u64) -> Option<u64> {
        Some(self.bits().checked_mul(n)?.div_ceil(8))
    }

    /// Floating point, of any width.
    pub fn is_float(self) -> bool {
        use DType::*;
        matches!(self, F16 | F32 | F64 | BF16 | F8E4M3 | F8E5M2)
    }

    /// Integer, of any width and sign; not `bool`.
    pub fn is_int(self) -> bool {
        !self.is_float() && !matches!(self, DType::Bool | DType::String)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for DType {
    type Err = ();

    fn from_str(s: &str) -> Result<Self, ()> {
        DType::ALL.iter().copied().find(|d| d.name() == s).ok_or(())
    }
}

/// A version of Core ML's op set, named after the iOS release it came with.
///
/// Source of the table: `coremltools` 9.0, `_OPSET` and `_deployment_compatibility`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Opset {
    Ios15,
    Ios16,
    Ios17,
    Ios18,
    Ios26,
}

impl Opset {
    /// Every opset of an ML Program, oldest first.
    pub const ALL: &'static [Opset] =
        &[Opset::Ios15, Opset::Ios16, Opset::Ios17, Opset::Ios18, Opset::Ios26];

    /// What a user types: `ios15`.
    pub const fn name(self) -> &'static str {
        match self {
            Opset::Ios15 => "ios15",
            Opset::Ios16 => "ios16",
            Opset::Ios17 => "ios17",
            Opset::Ios18 => "ios18",
            Opset::Ios26 => "ios26",
        }
    }

    /// The string a package names it by.
    pub const fn coreml_name(self) -> &'static str {
        match self {
            Opset::Ios15 => "CoreML5",
            Opset::Ios16 => "CoreML6",
            Opset::Ios17 => "CoreML7",
            Opset::Ios18 => "CoreML8",
            Opset::Ios26 => "CoreML9",
        }
    }

    /// `specificationVersion` of a package that uses it.
    pub const fn spec_version(self) -> i32 {
        match self {
            Opset::Ios15 => 6,
            Opset::Ios16 => 7,
            Opset::Ios17 => 8,
            Opset::Ios18 => 9,
            Opset::Ios26 => 10,
        }
    }

    /// The oldest systems that load it.
    pub const fn systems(self) -> &'static str {
        match self {
            Opset::Ios15 => "iOS 15, macOS 12",
            Opset::Ios16 => "iOS 16, macOS 13",
            Opset::Ios17 => "iOS 17, macOS 14",
            Opset::Ios18 => "iOS 18, macOS 15",
            Opset::Ios26 => "iOS 26, macOS 26",
        }
    }

    /// The opset of a `specificationVersion`, if it is one of an ML Program.
    pub fn from_spec_version(version: i32) -> Option<Opset> {
        Opset::ALL.iter().copied().find(|o| o.spec_version() == version)
    }
}

impl fmt::Display for Opset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Opset {
    type Err = ();

    fn from_str(s: &str) -> Result<Self, ()> {
        Opset::ALL.iter().copied().find(|o| o.name() == s || o.coreml_name() == s).ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for &d in DType::ALL {
            assert_eq!(d.name().parse(), Ok(d));
        }
        for &o in Opset::ALL {
            assert_eq!(o.name().parse(), Ok(o));
            assert_eq!(o.coreml_name().parse(), Ok(o));
            assert_eq!(Opset::from_spec_version(o.spec_version()), Some(o));
        }
    }

    #[test]
    fn sub_byte_sizes_round_up_once() {
        assert_eq!(DType::U3.bytes(3), Some(2));
        assert_eq!(DType::I4.bytes(5), Some(3));
        assert_eq!(DType::U1.bytes(0), Some(0));
        assert_eq!(DType::F64.bytes(u64::MAX), None);
    }
}
