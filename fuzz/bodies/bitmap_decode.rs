//! Any bytes give a tensor or an error, the same at every level; a tensor survives another round.

use tensorferry::codec::{Level, bitmap};

/// A header of a few hundred bytes can announce only a few kilobytes; this is far above that.
const DECODED_MAX: usize = 1 << 24;

pub fn run(data: &[u8]) {
    let Ok(header) = bitmap::inspect(data) else { return };
    assert!(header.decoded_len() / 26 <= data.len(), "more is announced than can be there");
    if header.decoded_len() > DECODED_MAX {
        return;
    }
    let mut decoded = vec![0; header.decoded_len()];
    let expected = bitmap::decode_into_at(Level::Portable, data, &mut decoded);
    let expected = expected.map_err(|error| error.to_string());
    for level in Level::available() {
        let mut again = vec![0x5a; header.decoded_len()];
        let got = bitmap::decode_into_at(level, data, &mut again);
        assert_eq!(got.map_err(|error| error.to_string()), expected, "{level}");
        assert!(expected.is_err() || again == decoded, "{level} decodes to other bytes");
    }
    if expected.is_ok() {
        encode_again(&decoded, header);
    }
}

fn encode_again(decoded: &[u8], header: bitmap::Header) {
    let length = bitmap::encoded_len(decoded, header.width).expect("whole elements");
    // Zeros that the input stored are left out this time.
    assert!(length <= header.encoded_len());
    let mut encoded = vec![0; length];
    bitmap::encode_into(decoded, header.width, &mut encoded).expect("room enough");
    let mut again = vec![0x5a; decoded.len()];
    bitmap::decode_into(&encoded, &mut again).expect("our own encoding");
    assert!(again == decoded, "a tensor changed on its way");
}
