//! Any text gives a size or an error, and a size in bytes reads back as itself.

use tensorferry::Size;

pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(size) = text.parse::<Size>() {
        assert_eq!(size.0.to_string().parse::<Size>().expect("digits"), size);
        assert!(!size.to_string().is_empty());
    }
}
