//! A tree with a directory for each class, as torchvision's `ImageFolder` reads it.
//!
//! Classes are the directories below the root, in the order in which Python sorts their names.
//! Samples are the images below each, sorted by directory and then by name. Links are followed.
//! The same tree gives the same indices and labels as torchvision does. Two things that it passes
//! over in silence are errors here: a directory that can't be listed, and a link that leads back
//! into the tree, whose files it lists some forty times.

use std::cmp::Ordering;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::names::{Names, ending};
use super::side::side_by_side;
use super::store::{Located, Options, Store, Stores};
use super::{Label, Source};
use crate::data::recipe::PICTURES;
use crate::data::sample::Raw;
use crate::error::{Error, Kind, Result};

/// torchvision's endings of images.
pub(super) const IMAGES: [&str; 9] =
    ["jpg", "jpeg", "png", "ppm", "bmp", "pgm", "tif", "tiff", "webp"];

/// Images in a directory for each class.
pub struct Folder {
    store: Arc<dyn Store>,
    root: PathBuf,
    directories: Vec<OsString>,
    classes: Vec<String>,
    /// Where the samples of each class end.
    ends: Vec<usize>,
    /// Paths below the directory of their class.
    names: Names,
    sizes: Vec<u64>,
    fields: Vec<String>,
}

impl Folder {
    /// Lists the images below `root`. A class without an image is an error unless `allow_empty`.
    pub fn open(root: &str, allow_empty: bool, options: &Options) -> Result<Self> {
        let located = Located::of(root)?;
        let mut stores = Stores::new(options);
        let store = stores.at(&located.root)?;
        let store = Arc::clone(stores.get(store));
        let root = PathBuf::from(&located.path);
        let mut directories = store.directories(&root)?;
        directories.sort_by(|one, other| as_python(one.as_bytes(), other.as_bytes()));
        if directories.is_empty() {
            let told =
                "no class is here: ImageFolder wants a directory for each class, with images";
            return Err(Error::new(Kind::NotFound, told).with("directory", store.name(&root)));
        }
        let listed = side_by_side(store.requests_max(), directories.len(), |at| {
            list(&*store, &root.join(&directories[at]))
        })?;
        let classes = directories.iter().map(|name| name.to_string_lossy().into_owned()).collect();
        let mut folder = Self {
            store,
            root,
            directories,
            classes,
            ends: Vec::new(),
            names: Names::default(),
            sizes: Vec::new(),
            fields: Vec::new(),
        };
        folder.take(listed);
        if !allow_empty {
            folder.refuse_empty()?;
        }
        Ok(folder)
    }

    fn take(&mut self, listed: Vec<(Names, Vec<u64>)>) {
        for (names, sizes) in listed {
            self.names.append(&names);
            self.sizes.extend(sizes);
            self.ends.push(self.sizes.len());
        }
        self.names.shrink();
        self.sizes.shrink_to_fit();
        self.fields = vec![common_ending(&self.names)];
    }

    fn refuse_empty(&self) -> Result<()> {
        let starts = [0].into_iter().chain(self.ends.iter().copied());
        let empty = starts.zip(&self.ends).zip(&self.classes);
        let empty: Vec<_> = empty
            .filter(|((start, end), _)| start == *end)
            .map(|(_, name)| name.as_str())
            .collect();
        if empty.is_empty() {
            return Ok(());
        }
        let told = format!("no image was found for the classes {}", empty.join(", "));
        let endings = format!("images end in {}", IMAGES.join(", "));
        let advice = "remove the empty directories, or pass allow_empty=True";
        let error = Error::new(Kind::NotFound, format!("{told}; {endings}; {advice}"));
        Err(error.with("directory", self.store.name(&self.root)))
    }

    fn class(&self, index: usize) -> usize {
        self.ends.partition_point(|end| *end <= index)
    }

    fn path(&self, index: usize) -> PathBuf {
        let mut path = self.root.join(&self.directories[self.class(index)]);
        path.push(self.names.path(index));
        path
    }
}

impl Source for Folder {
    fn len(&self) -> usize {
        self.sizes.len()
    }

    fn name(&self, index: usize) -> String {
        self.store.name(&self.path(index))
    }

    fn bytes(&self, index: usize) -> u64 {
        self.sizes[index]
    }

    fn fields(&self) -> &[String] {
        &self.fields
    }

    fn label(&self, index: usize) -> Label {
        Label::Int(self.class(index) as i64)
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn fetch(&self, index: usize) -> Result<Raw> {
        self.store.fetch(&self.path(index), self.sizes[index])
    }
}

/// The images of one class in torchvision's order, as paths below its directory.
fn list(store: &dyn Store, class: &Path) -> Result<(Names, Vec<u64>)> {
    let mut found = Vec::new();
    store.files(class, &is_image, &mut |path, bytes| {
        let below = path.strip_prefix(class).unwrap_or(&path).to_owned();
        found.push((below, bytes));
    })?;
    found.sort_by(|(one, _), (other, _)| {
        let split = |path: &Path| {
            let bytes = path.as_os_str().as_bytes();
            bytes.iter().rposition(|letter| *letter == b'/').unwrap_or(0)
        };
        let (one, other) = (one.as_path(), other.as_path());
        let (bytes, others) = (one.as_os_str().as_bytes(), other.as_os_str().as_bytes());
        as_python(&bytes[..split(one)], &others[..split(other)])
            .then_with(|| as_python(&bytes[split(one)..], &others[split(other)..]))
    });
    let names = found.iter().map(|(path, _)| path.as_os_str().as_bytes()).collect();
    Ok((names, found.iter().map(|(_, bytes)| *bytes).collect()))
}

/// As torchvision asks: the ending in any case, also of a name that is nothing but an ending.
fn is_image(name: &[u8]) -> bool {
    let Some(dot) = name.iter().rposition(|letter| *letter == b'.') else { return false };
    let ending = &name[dot + 1..];
    IMAGES.iter().any(|image| ending.eq_ignore_ascii_case(image.as_bytes()))
}

/// The ending that all of the names have, or nothing. Pictures of several formats count as one: their
/// content tells them apart.
pub(super) fn common_ending(names: &Names) -> String {
    let kind = |name: &[u8]| {
        let ending = ending(name);
        if PICTURES.contains(&&*ending) { PICTURES[0].to_owned() } else { ending }
    };
    let mut kinds = names.iter().map(kind);
    let first = kinds.next().unwrap_or_default();
    if kinds.all(|kind| kind == first) { first } else { String::new() }
}

/// The order of Python's strings: by code point. It is the order of the bytes, but for a byte that
/// is no text, which Python keeps as a code point of its own between the others.
fn as_python(one: &[u8], other: &[u8]) -> Ordering {
    if std::str::from_utf8(one).is_ok() && std::str::from_utf8(other).is_ok() {
        return one.cmp(other);
    }
    code_points(one).cmp(code_points(other))
}

fn code_points(name: &[u8]) -> impl Iterator<Item = u32> {
    const ESCAPED: u32 = 0xdc00;
    name.utf8_chunks().flat_map(|chunk| {
        let escaped = chunk.invalid().iter().map(|byte| ESCAPED + u32::from(*byte));
        chunk.valid().chars().map(u32::from).chain(escaped)
    })
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_no_text_are_sorted_as_python_sorts_them() {
        // sorted(map(os.fsdecode, names)), in Python.
        let expected: [&[u8]; 5] = [b"a", "z".as_bytes(), b"\x80", b"\xff", "\u{e000}".as_bytes()];
        let mut names = expected;
        names.reverse();
        names.sort_by(|one, other| as_python(one, other));
        assert_eq!(names, expected);
    }

    #[test]
    fn images_are_known_by_their_ending_in_any_case() {
        for name in ["a.jpg", "a.JPEG", ".png", "a.b.WebP"] {
            assert!(is_image(name.as_bytes()), "{name}");
        }
        for name in ["jpg", "a.jpg.txt", "a.gif", "a.jpg~", "a."] {
            assert!(!is_image(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn an_ending_is_common_only_if_all_names_have_it() {
        let common = |names: &[&str]| common_ending(&names.iter().collect());
        assert_eq!(common(&["a.jpg", "b.JPG"]), "jpg");
        assert_eq!(common(&["a.png", "b.jpeg"]), "jpg", "pictures tell themselves apart");
        assert_eq!(common(&["a.jpg", "b.npy"]), "");
        assert_eq!(common(&["a.jpg", "bjpg"]), "");
        assert_eq!(common(&["a", "b"]), "");
        assert_eq!(common(&[]), "");
    }
}
