//! Which members of a sample are its fields.
//!
//! As in `WebDataset`: a member's name up to the first dot of its last part is the sample's, the rest
//! is the field's, in lower case. A field may be asked for by several names, `jpg;png`, of which the
//! first that the sample has counts.

use crate::data::source::names::IMAGES;
use crate::error::{Error, Result};

/// Endings, beside images, of what a sample is about.
const ARRAYS: [&str; 3] = ["npy", "npz", "wav"];

/// The name of a class.
const CLASS: &str = "cls";

/// The fields that are wanted, each with its names in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fields(Vec<Vec<String>>);

impl Fields {
    /// Reads a selection: `["jpg;png", "cls"]`, or `["jpg;png cls"]`.
    pub fn parse(selection: &[String]) -> Result<Self> {
        let fields = selection.iter().flat_map(|field| field.split_whitespace());
        let names = |field: &str| {
            let names =
                field.split(';').map(|name| name.trim_start_matches('.').to_ascii_lowercase());
            names.filter(|name| !name.is_empty()).collect()
        };
        let fields: Vec<Vec<String>> = fields.map(names).collect();
        if fields.is_empty() || fields.iter().any(Vec::is_empty) {
            let told = "the selection of fields is empty; name them as [\"jpg;png\", \"cls\"]";
            return Err(Error::invalid(told));
        }
        Ok(Self(fields))
    }

    /// What is taken of samples that look like this one: the first image, in any of its formats, or
    /// array; and the class. If it has neither image nor array, its first field.
    pub fn usual(sample: &[String]) -> Self {
        let last = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
        let is = |name: &str, endings: &[&str]| endings.contains(&last(name).as_str());
        let about = sample.iter().find(|name| is(name, &IMAGES) || is(name, &ARRAYS));
        let first = sample.iter().find(|name| *name != CLASS);
        let mut fields = Vec::new();
        if let Some(name) = about.or(first) {
            let others = IMAGES.iter().filter(|other| **other != name && is(name, &IMAGES));
            // A name of two endings, `seg.png`, is a choice; it has no other formats.
            let others = others.filter(|_| !name.contains('.')).map(|other| (*other).to_owned());
            fields.push([name.clone()].into_iter().chain(others).collect());
        }
        if sample.iter().any(|name| name == CLASS) {
            fields.push(vec![CLASS.to_owned()]);
        }
        Self(fields)
    }

    /// How many fields there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Every field that a member may be, with the place of its name among the field's.
    pub fn of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (usize, usize)> + 'a {
        let place = move |names: &Vec<String>| names.iter().position(|known| known == name);
        self.0.iter().enumerate().filter_map(move |(at, names)| Some((at, place(names)?)))
    }

    /// Name number `place` of field number `at`.
    pub fn name(&self, at: usize, place: usize) -> &str {
        &self.0[at][place]
    }

    /// Field number `at`, as it is asked for.
    pub fn shown(&self, at: usize) -> String {
        self.0[at].join(";")
    }
}

/// Splits a member's name into its sample's and its field's; `None` if it is no part of a sample:
/// without a dot, hidden, or about the dataset (`__name__`).
pub(super) fn split(name: &[u8]) -> Option<(&[u8], String)> {
    let part = name.iter().rposition(|letter| *letter == b'/').map_or(0, |slash| slash + 1);
    let dot = name[part..].iter().position(|letter| *letter == b'.').filter(|dot| *dot > 0)?;
    let top = name.split(|letter| *letter == b'/').next().unwrap_or_default();
    if top.len() >= 4 && top.starts_with(b"__") && top.ends_with(b"__") {
        return None;
    }
    let field = String::from_utf8_lossy(&name[part + dot + 1..]).to_lowercase();
    Some((&name[..part + dot], field))
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_split_at_the_first_dot_of_its_last_part() {
        for (name, expected) in [
            ("0001.jpg", Some(("0001", "jpg"))),
            ("a.b/c.Seg.PNG", Some(("a.b/c", "seg.png"))),
            ("./x.cls", Some(("./x", "cls"))),
            ("x.", Some(("x", ""))),
            ("README", None),
            ("a.b/README", None),
            ("a/.hidden.jpg", None),
            ("__index__/x.json", None),
            ("__meta__", None),
            ("__meta__.json", Some(("__meta__", "json"))),
        ] {
            let expected =
                expected.map(|(key, field): (&str, &str)| (key.as_bytes(), field.to_owned()));
            assert_eq!(split(name.as_bytes()), expected, "{name}");
        }
    }

    #[test]
    fn the_usual_fields_are_the_image_in_any_format_and_the_class() {
        let usual = |sample: &[&str]| {
            let sample: Vec<String> = sample.iter().map(|name| (*name).to_owned()).collect();
            let fields = Fields::usual(&sample);
            (0..fields.len()).map(|at| fields.shown(at)).collect::<Vec<_>>().join(" ")
        };
        let images = "png;jpg;jpeg;ppm;bmp;pgm;tif;tiff;webp";
        assert_eq!(usual(&["cls", "json", "png"]), format!("{images} cls"));
        assert_eq!(usual(&["seg.png", "jpg"]), "seg.png");
        assert_eq!(usual(&["txt", "npy"]), "npy");
        assert_eq!(usual(&["json", "txt"]), "json");
        assert_eq!(usual(&["cls"]), "cls");
    }

    #[test]
    fn a_selection_is_written_as_webdataset_writes_it() {
        let parse = |selection: &[&str]| {
            Fields::parse(&selection.iter().map(|field| (*field).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(parse(&["jpg;png cls"]).unwrap(), parse(&[".JPG;png", "cls"]).unwrap());
        for bad in [&[][..], &[" "], &["jpg", ";"]] {
            let told = parse(bad).unwrap_err().to_string();
            assert_eq!(
                told,
                "the selection of fields is empty; name them as [\"jpg;png\", \"cls\"]"
            );
        }
    }
}
