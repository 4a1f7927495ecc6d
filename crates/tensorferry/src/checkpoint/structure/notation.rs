//! Small notations inside the text: digits, base64, and names of dtypes and devices.
//!
//! Each function says what a well-formed text means, or nothing.

/// Bytes of `{"bytes"}`; longer ones are stored as tensors.
const INLINE_BYTES_MAX: usize = 4096;

/// Hexadecimal digits of an integer.
const INT_DIGITS_MAX: usize = 16384;

/// Characters of a dtype's or a device's name.
const NAME_MAX: usize = 64;

/// Bytes of an element.
pub const ITEMSIZE_MAX: u64 = 65536;

/// The bits of a float.
pub fn float_bits(text: &str) -> Option<u64> {
    (text.len() == 16 && is_hex(text)).then(|| u64::from_str_radix(text, 16).ok())?
}

/// Whether the text is an integer such as `-0x1f`.
pub fn is_long_int(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text).strip_prefix("0x");
    digits.is_some_and(|digits| (1..=INT_DIGITS_MAX).contains(&digits.len()) && is_hex(digits))
}

/// Whether the text is nothing but hexadecimal digits.
pub fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// How many bytes base64 stands for.
pub fn base64_len(text: &str) -> Option<usize> {
    let digits = text.trim_end_matches('=');
    let padding = text.len() - digits.len();
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/';
    if !text.len().is_multiple_of(4) || padding > 2 || !digits.bytes().all(is_digit) {
        return None;
    }
    let len = text.len() / 4 * 3 - padding;
    (len <= INLINE_BYTES_MAX).then_some(len)
}

/// Whether the text may name a dtype of torch: which ones there are depends on its version.
pub fn is_dtype(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    (1..=NAME_MAX).contains(&text.len()) && text.bytes().all(is_part)
}

/// Whether the text may name a device, such as `cuda:0`.
pub fn is_device(text: &str) -> bool {
    let (kind, index) = text.split_once(':').unwrap_or((text, "0"));
    let is_index = |text: &str| text.parse::<u16>().is_ok_and(|number| number.to_string() == text);
    is_dtype(kind) && is_index(index)
}

/// Bytes of an element of a NumPy dtype such as `<f4`, `|b1`, `>U12` or `<M8[ns]`.
pub fn numpy_itemsize(text: &str) -> Option<u64> {
    let rest = text.strip_prefix(['<', '>', '|'])?;
    let kind = rest.chars().next().filter(|kind| "biufcmMSUV".contains(*kind))?;
    let rest = &rest[1..];
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (number, unit) = rest.split_at(digits);
    let is_unit = |unit: &str| {
        let inner = unit.strip_prefix('[').and_then(|unit| unit.strip_suffix(']'));
        inner.is_some_and(is_unit_of_time)
    };
    if !(unit.is_empty() || (matches!(kind, 'm' | 'M') && is_unit(unit))) {
        return None;
    }
    let characters = number.parse::<u64>().ok()?;
    let bytes = characters.checked_mul(if kind == 'U' { 4 } else { 1 })?;
    (bytes <= ITEMSIZE_MAX).then_some(bytes)
}

/// `ns`, `25s`, `D`.
fn is_unit_of_time(text: &str) -> bool {
    (1..=NAME_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn well_formed_texts_mean_something_and_others_nothing() {
        assert_eq!(float_bits("7ff8000000000001"), Some(f64::NAN.to_bits() + 1));
        assert!(
            ["7ff", "7ff800000000000g", "+ff8000000000001", ""]
                .iter()
                .all(|t| float_bits(t).is_none())
        );
        assert!(["0x1f", "-0x8000000000000001"].into_iter().all(is_long_int));
        assert!(!["1f", "0x", "--0x1", "0x1_0", "0x+1", ""].into_iter().any(is_long_int));
        assert!(!is_long_int(&format!("0x{}", "f".repeat(INT_DIGITS_MAX + 1))));
        for (text, len) in [("", 0), ("YQ==", 1), ("YWI=", 2), ("YWJj", 3), ("+/+/", 3)] {
            assert_eq!(base64_len(text), Some(len));
        }
        for text in ["Y", "YQ=", "Y===", "====", "Y=Q=", "YW-j", "YW j", "YWJjé"] {
            assert_eq!(base64_len(text), None, "{text}");
        }
        assert_eq!(base64_len(&"AAAA".repeat(1366)), None, "4098 bytes");
        assert_eq!(base64_len(&format!("{}AA==", "AAAA".repeat(1365))), Some(4096));
    }

    #[test]
    fn names_of_dtypes_and_devices_are_only_that() {
        assert!(["float32", "float8_e4m3fn"].into_iter().all(is_dtype));
        assert!(!["", "torch.float32", "__class__ ", "Float"].into_iter().any(is_dtype));
        assert!(["cpu", "cuda:0", "privateuseone:11"].into_iter().all(is_device));
        assert!(
            !["", ":0", "cuda:", "cuda:-1", "cuda:+1", "cuda:00", "cuda:0:0", "cuda 0"]
                .into_iter()
                .any(is_device)
        );
        for (text, bytes) in
            [("<f4", 4), ("|b1", 1), (">U12", 48), ("<M8[ns]", 8), ("<m8[25s]", 8), ("|S0", 0)]
        {
            assert_eq!(numpy_itemsize(text), Some(bytes), "{text}");
        }
        for text in [
            "f4", "<f", "<O8", "|T16", "<f4[ns]", "<M8[]", "<M8[ns", "<é4", "|V65537", "<U16385",
            "<f4,<f4",
        ] {
            assert_eq!(numpy_itemsize(text), None, "{text}");
        }
    }
}
