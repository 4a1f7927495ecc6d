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

use super::names::{IMAGES, Names, ending};
use super::side::side_by_side;
use super::store::{Located, Options, Store, Stores};
use super::{Label, Source};
use crate::data::recipe::PICTURES;
use crate::data::sample::Raw;
use crate::error::{Error, Kind, Result};
use crate::io::Shared;

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
    warnings: Vec<String>,
}

impl Folder {
    /// Lists the images below `root`: files with torchvision's endings, or with these. A class without
    /// an image is an error unless `allow_empty`.
    pub fn open(
        root: &str,
        (extensions, allow_empty): (Option<&[String]>, bool),
        engine: &Shared,
        options: &Options,
    ) -> Result<Self> {
        let endings = Endings::of(extensions)?;
        let located = Located::of(root)?;
        let mut stores = Stores::new(engine, options);
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
            list(&*store, &root.join(&directories[at]), &endings)
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
            // Pictures, whatever their endings: their content tells.
            fields: vec![PICTURES[0].to_owned()],
            warnings: Vec::new(),
        };
        folder.take(listed);
        if !allow_empty {
            folder.refuse_empty(&endings)?;
        }
        folder.warn_of_foreign();
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
    }

    /// Files whose endings say that they can't be decoded are told before anything waits for them.
    fn warn_of_foreign(&mut self) {
        let is_foreign = |name: &[u8]| !PICTURES.contains(&&*ending(name));
        let foreign = self.names.iter().filter(|name| is_foreign(name)).count();
        let first = (0..self.len()).find(|at| is_foreign(self.names.get(*at)));
        self.warnings.extend(first.map(|at| {
            let of = format!("{foreign} of {} files are no JPEG, PNG or WebP by their names, ", self.len());
            let told = "and others are not decoded. Convert them, list only what is decoded \
                        (extensions=(\"jpg\", \"jpeg\", \"png\", \"webp\")), or pass over them with \
                        on_error=\"skip\"";
            format!("{of}{told} (first: {})", self.name(at))
        }));
    }

    fn refuse_empty(&self, endings: &Endings) -> Result<()> {
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
        let endings = format!("images end in {}", endings.0.join(", "));
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

    fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn is_remote(&self) -> bool {
        self.store.is_remote()
    }

    fn fetch(&self, index: usize) -> Result<Raw> {
        self.store.fetch(&self.path(index), self.sizes[index])
    }
}

/// The images of one class in torchvision's order, as paths below its directory.
fn list(store: &dyn Store, class: &Path, endings: &Endings) -> Result<(Names, Vec<u64>)> {
    let mut found = Vec::new();
    store.files(class, &|name| endings.take(name), &mut |path, bytes| {
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

/// Which files are taken: as torchvision asks, by the ending in any case, also of a name that is
/// nothing but an ending.
struct Endings(Vec<String>);

impl Endings {
    fn of(given: Option<&[String]>) -> Result<Self> {
        let Some(given) = given else { return Ok(Self(IMAGES.map(str::to_owned).into())) };
        let plain = |ending: &String| ending.trim_start_matches('.').to_ascii_lowercase();
        let endings: Vec<_> = given.iter().map(plain).collect();
        if endings.is_empty() || endings.iter().any(String::is_empty) {
            let told = "extensions names no ending; write it as (\"jpg\", \"png\")";
            return Err(Error::invalid(told));
        }
        Ok(Self(endings))
    }

    fn take(&self, name: &[u8]) -> bool {
        let Some(dot) = name.iter().rposition(|letter| *letter == b'.') else { return false };
        let ending = &name[dot + 1..];
        self.0.iter().any(|wanted| ending.eq_ignore_ascii_case(wanted.as_bytes()))
    }
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
        let images = Endings::of(None).unwrap();
        for name in ["a.jpg", "a.JPEG", ".png", "a.b.WebP", "a.bmp"] {
            assert!(images.take(name.as_bytes()), "{name}");
        }
        for name in ["jpg", "a.jpg.txt", "a.gif", "a.jpg~", "a."] {
            assert!(!images.take(name.as_bytes()), "{name}");
        }
    }
}
