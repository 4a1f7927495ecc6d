//! Any bytes are halves and numbers; every level converts them alike, and halves come back.

use tensorferry::codec::Level;
use tensorferry::codec::half::{Format, narrow_at, widen_at};

/// The first byte says how far the input is from being aligned.
pub fn run(data: &[u8]) {
    let Some((skew, data)) = data.split_first() else { return };
    let data = &data[usize::from(*skew).min(data.len())..];
    for format in Format::ALL {
        let numbers = &data[..data.len() / 4 * 4];
        let halves = &data[..data.len() / 2 * 2];
        let narrowed = narrow(Level::Portable, format, numbers);
        let widened = widen(Level::Portable, format, halves);
        for level in Level::available() {
            assert!(narrow(level, format, numbers) == narrowed, "{level} narrows otherwise");
            assert!(widen(level, format, halves) == widened, "{level} widens otherwise");
        }
        // What was narrowed once has no signalling NaN any more and must not change again.
        let again = narrow(Level::detect(), format, &widen(Level::detect(), format, &narrowed));
        assert!(again == narrowed, "a half changed on its way");
    }
}

fn narrow(level: Level, format: Format, src: &[u8]) -> Vec<u8> {
    let mut dst = vec![0; src.len() / 2];
    narrow_at(level, format, src, &mut dst).expect("matching lengths");
    dst
}

fn widen(level: Level, format: Format, src: &[u8]) -> Vec<u8> {
    let mut dst = vec![0; src.len() * 2];
    widen_at(level, format, src, &mut dst).expect("matching lengths");
    dst
}
