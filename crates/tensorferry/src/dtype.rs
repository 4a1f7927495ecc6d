//! What the elements of a tensor are.

use crate::error::{Error, Kind, Result};

/// The type of an element, by its name in safetensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Dtype {
    C64,
    F64,
    I64,
    U64,
    F32,
    I32,
    U32,
    F16,
    Bf16,
    I16,
    U16,
    F8E4M3,
    F8E4M3Fnuz,
    F8E5M2,
    F8E5M2Fnuz,
    F8E8M0,
    I8,
    U8,
    Bool,
}

/// Every type, its name and the bytes of one element.
const ALL: [(Dtype, &str, u64); 19] = [
    (Dtype::C64, "C64", 8),
    (Dtype::F64, "F64", 8),
    (Dtype::I64, "I64", 8),
    (Dtype::U64, "U64", 8),
    (Dtype::F32, "F32", 4),
    (Dtype::I32, "I32", 4),
    (Dtype::U32, "U32", 4),
    (Dtype::F16, "F16", 2),
    (Dtype::Bf16, "BF16", 2),
    (Dtype::I16, "I16", 2),
    (Dtype::U16, "U16", 2),
    (Dtype::F8E4M3, "F8_E4M3", 1),
    (Dtype::F8E4M3Fnuz, "F8_E4M3FNUZ", 1),
    (Dtype::F8E5M2, "F8_E5M2", 1),
    (Dtype::F8E5M2Fnuz, "F8_E5M2FNUZ", 1),
    (Dtype::F8E8M0, "F8_E8M0", 1),
    (Dtype::I8, "I8", 1),
    (Dtype::U8, "U8", 1),
    (Dtype::Bool, "BOOL", 1),
];

impl Dtype {
    /// Every type.
    pub fn all() -> impl Iterator<Item = Self> {
        ALL.into_iter().map(|(dtype, ..)| dtype)
    }

    /// The name in safetensors.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// Bytes of one element; elements are aligned to as many.
    pub fn bytes(self) -> u64 {
        self.row().2
    }

    /// The type of this name.
    pub fn named(name: &str) -> Result<Self> {
        let found = ALL.into_iter().find(|(_, known, _)| *known == name);
        found.map(|(dtype, ..)| dtype).ok_or_else(|| {
            Error::new(Kind::Unsupported, format!("{name:?} is no dtype that this version knows"))
        })
    }

    fn row(self) -> (Self, &'static str, u64) {
        ALL[self as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dtype_stands_in_its_own_row_and_is_found_by_its_name() {
        for dtype in Dtype::all() {
            assert_eq!(dtype.row().0, dtype);
            assert_eq!(Dtype::named(dtype.name()).unwrap(), dtype);
        }
        assert_eq!(Dtype::all().count(), ALL.len());
        assert!(Dtype::all().map(Dtype::bytes).is_sorted_by(|a, b| a >= b));
    }

    #[test]
    fn an_unknown_dtype_is_named_in_the_error() {
        let error = Dtype::named("F4").unwrap_err();
        assert_eq!(error.kind(), Kind::Unsupported);
        assert_eq!(error.to_string(), "\"F4\" is no dtype that this version knows");
    }
}
