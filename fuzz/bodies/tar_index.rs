//! Any bytes give whole samples that lie inside of them, or an error that says where.

use tensorferry::Kind;
use tensorferry::data::source::scan_tar;

/// Where a header keeps its checksum, and the word behind it that marks one.
const CHECKSUM: std::ops::Range<usize> = 148..156;
const MAGIC: std::ops::Range<usize> = 257..262;

pub fn run(data: &[u8]) {
    check(data);
    // A checksum stops nearly every change at the door: mended, they come in.
    let mut mended = data.to_vec();
    for block in mended.chunks_exact_mut(512).filter(|block| &block[MAGIC] == b"ustar") {
        block[CHECKSUM].fill(b' ');
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[CHECKSUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
    check(&mended);
}

fn check(data: &[u8]) {
    let fields = ["jpg;png".to_owned(), "cls".to_owned()];
    let (samples, damage) = match scan_tar(data, &fields) {
        Ok(found) => found,
        Err(error) => {
            // A field that is there twice, or what we don't read: told, and nothing is given.
            assert!(matches!(error.kind(), Kind::Corrupt | Kind::Unsupported), "{error}");
            return;
        }
    };
    for sample in &samples {
        assert_eq!(sample.fields.len(), fields.len());
        for part in sample.fields.iter().flatten() {
            assert!(part.start <= part.end && part.end <= data.len() as u64, "{part:?}");
            assert_eq!(part.start % 512, 0, "members start at a block");
        }
    }
    let Some(damage) = damage else { return };
    assert!(matches!(damage.kind(), Kind::Corrupt | Kind::Truncated), "{damage}");
    assert!(damage.context().any(|(name, _)| name == "offset"), "{damage}");
}
