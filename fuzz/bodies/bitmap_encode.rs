//! Any tensor comes back to the last bit, and every level writes the same encoding.

use tensorferry::codec::Level;
use tensorferry::codec::bitmap::{self, Width};

/// The first byte chooses the width and how far the tensor is from being aligned.
pub fn run(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else { return };
    let width = if choice & 1 == 0 { Width::Two } else { Width::Four };
    let skew = usize::from(choice >> 1).min(data.len());
    let tensor = &data[skew..];
    let Ok(length) = bitmap::encoded_len_at(Level::Portable, tensor, width) else {
        assert!(!tensor.len().is_multiple_of(width.bytes()));
        return;
    };
    let mut expected = vec![0; length];
    bitmap::encode_into_at(Level::Portable, tensor, width, &mut expected).expect("room enough");
    for level in Level::available() {
        let mut encoded = vec![0x5a; length];
        let done = bitmap::encode_into_at(level, tensor, width, &mut encoded);
        assert_eq!(done.expect("room enough"), length);
        assert!(encoded == expected, "{level} encodes to other bytes");
        let mut decoded = vec![0x5a; tensor.len()];
        bitmap::decode_into_at(level, &encoded, &mut decoded).expect("our own encoding");
        assert!(decoded == tensor, "{level} loses bits");
    }
}
