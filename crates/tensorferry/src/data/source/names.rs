//! A long list of names in little memory.
//!
//! A dataset may have millions of samples. A `String` for each costs more in pointers than in
//! letters, so the names lie one behind the other.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::data::recipe::PICTURES;

/// Names, numbered from zero; any bytes, because file names are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    letters: Vec<u8>,
    ends: Vec<u64>,
}

impl Names {
    /// Adds a name behind the others.
    pub fn push(&mut self, name: &[u8]) {
        self.letters.extend_from_slice(name);
        self.ends.push(self.letters.len() as u64);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Name number `at`.
    pub fn get(&self, at: usize) -> &[u8] {
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.letters[start as usize..self.ends[at] as usize]
    }

    /// Name number `at`, as the path that it is.
    pub fn path(&self, at: usize) -> &Path {
        Path::new(OsStr::from_bytes(self.get(at)))
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|at| self.get(at))
    }

    /// Adds all of the others behind these.
    pub fn append(&mut self, others: &Self) {
        let before = self.letters.len() as u64;
        self.letters.extend_from_slice(&others.letters);
        self.ends.extend(others.ends.iter().map(|end| before + end));
    }

    /// Gives back memory that was taken for growing.
    pub fn shrink(&mut self) {
        self.letters.shrink_to_fit();
        self.ends.shrink_to_fit();
    }
}

impl<T: AsRef<[u8]>> FromIterator<T> for Names {
    fn from_iter<I: IntoIterator<Item = T>>(names: I) -> Self {
        let mut list = Self::default();
        names.into_iter().for_each(|name| list.push(name.as_ref()));
        list
    }
}

/// The ending of a file's name, in lower case and without its dot: `jpg`; empty if it has none.
pub fn ending(name: &[u8]) -> String {
    let path = Path::new(OsStr::from_bytes(name));
    let ending = path.extension().unwrap_or_default();
    String::from_utf8_lossy(ending.as_bytes()).to_ascii_lowercase()
}

/// torchvision's endings of images.
pub(super) const IMAGES: [&str; 9] =
    ["jpg", "jpeg", "png", "ppm", "bmp", "pgm", "tif", "tiff", "webp"];

/// The ending that all have, or nothing. Images of several formats count as one, if some of them can
/// be decoded: their content tells them apart, and what can't be decoded is told by its name.
pub(super) fn common_ending<T: AsRef<str>>(mut endings: impl Iterator<Item = T>) -> String {
    let Some(first) = endings.next() else { return String::new() };
    let first = first.as_ref();
    let (mut alike, mut images) = (true, IMAGES.contains(&first));
    let mut decoded = PICTURES.contains(&first);
    for ending in endings {
        let ending = ending.as_ref();
        alike &= ending == first;
        images &= IMAGES.contains(&ending);
        decoded |= PICTURES.contains(&ending);
    }
    match alike {
        true => first.to_owned(),
        false if images && decoded => PICTURES[0].to_owned(),
        false => String::new(),
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_as_they_were_also_empty_and_unreadable_ones() {
        let all: [&[u8]; 4] = [b"a/b.jpg", b"", b"\xff.png", "å".as_bytes()];
        let mut names = Names::from_iter(&all[..2]);
        names.append(&Names::from_iter(&all[2..]));
        assert_eq!(names.iter().collect::<Vec<_>>(), all);
        assert_eq!((names.len(), names.path(0)), (4, Path::new("a/b.jpg")));
    }

    #[test]
    fn an_ending_is_the_last_one_in_lower_case() {
        let cases = [("a/b.JPG", "jpg"), ("a.tar/b", ""), ("x.seg.png", "png"), (".jpg", "")];
        for (name, expected) in cases {
            assert_eq!(ending(name.as_bytes()), expected, "{name}");
        }
    }

    #[test]
    fn an_ending_is_common_only_if_all_names_have_it() {
        let common =
            |names: &[&str]| common_ending(names.iter().map(|name| ending(name.as_bytes())));
        assert_eq!(common(&["a.jpg", "b.JPG"]), "jpg");
        assert_eq!(common(&["a.png", "b.jpeg"]), "jpg", "pictures tell themselves apart");
        assert_eq!(common(&["a.bmp", "b.tif", "c.png"]), "jpg", "some can't be decoded");
        assert_eq!(common(&["a.bmp", "b.bmp"]), "bmp", "none of them can");
        assert_eq!(common(&["a.jpg", "b.npy"]), "");
        assert_eq!(common(&["a.jpg", "bjpg"]), "");
        assert_eq!(common(&["a", "b"]), "");
        assert_eq!(common(&[]), "");
    }
}
