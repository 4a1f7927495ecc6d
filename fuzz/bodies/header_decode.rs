//! Any bytes give a header that is consistent and comes back as it was, or an error.
//!
//! The first eight bytes are the length of the data, the rest is the header.

use tensorferry::checkpoint::Header;

pub fn run(data: &[u8]) {
    let Some((len, json)) = data.split_first_chunk::<8>() else { return };
    let data_len = u64::from_le_bytes(*len);
    let _ = Header::data_start(*len, json.len() as u64);
    let Ok(header) = Header::decode(json, data_len) else { return };
    assert_eq!(header.data_len(), data_len);
    let bytes = header.encode().expect("what was read can be written");
    assert_eq!(
        Header::decode(&bytes[8..], data_len).expect("what was written can be read"),
        header
    );
}
