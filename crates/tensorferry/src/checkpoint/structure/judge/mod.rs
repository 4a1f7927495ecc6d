//! Judges the tree of a text against the header that it stands in.
//!
//! A judge walks down with the path of where it is, so that an error can say at which place of the
//! object it was found. The first error ends the walk.

mod elsewhere;
mod leaf;
mod path;

use std::collections::{HashMap, HashSet};

use self::path::{Path, Step};
use super::leaf::Leaf;
use super::node::{Entries, Node};
use super::{NESTING_MAX, STRUCTURE_VERSION, Structure, notation};
use crate::checkpoint::header::{Header, Tensor};
use crate::checkpoint::json::Json;
use crate::error::{Error, Kind, Result};

/// Characters of a tool's name.
const TOOL_MAX: usize = 64;

/// Integers from here on have no place in an `i64`.
const INT_END: f64 = 9_223_372_036_854_775_808.0;

/// Judges a whole text. Keys that are not known are passed over: a later version may add some
/// without becoming another.
pub fn structure(json: &Json, header: &Header) -> Result<Structure> {
    let mut judge = Judge {
        tensors: by_name(&header.tensors).collect(),
        objects: HashMap::new(),
        memories: HashMap::new(),
        path: Path::default(),
    };
    let Json::Object(fields) = json else {
        return Err(judge.wrong(format!("the structure is {}, not an object", json.what())));
    };
    judge.check_unique(fields)?;
    let field = |name| fields.iter().find(|(key, _)| key == name).map(|(_, value)| value);
    let version = judge.version(field("version"))?;
    let elsewhere =
        elsewhere::tensors(field("elsewhere"), header).map_err(|why| judge.wrong(why))?;
    judge.tensors.extend(by_name(&elsewhere));
    let Some(Json::Bool(checksum)) = field("checksum") else {
        return Err(judge.wrong("\"checksum\" is missing or no boolean"));
    };
    let tool = match field("tool") {
        Some(Json::Text(tool)) if tool.len() <= TOOL_MAX => tool.clone(),
        _ => return Err(judge.wrong("\"tool\" is missing, no text or too long")),
    };
    let object = field("object").ok_or_else(|| judge.wrong("\"object\" is missing"))?;
    Ok(Structure { version, checksum: *checksum, tool, object: judge.node(object, 0)? })
}

fn by_name(tensors: &[Tensor]) -> impl Iterator<Item = (&str, &Tensor)> {
    tensors.iter().map(|tensor| (tensor.name.as_str(), tensor))
}

struct Judge<'a> {
    tensors: HashMap<&'a str, &'a Tensor>,
    /// Leaves that are one object, with their tag, by their number.
    objects: HashMap<u64, (&'a str, Leaf)>,
    /// The first leaf of each memory that several share, by its number.
    memories: HashMap<u64, Leaf>,
    path: Path<'a>,
}

impl<'a> Judge<'a> {
    #[cold]
    fn wrong(&self, why: impl Into<String>) -> Error {
        Error::new(Kind::Corrupt, why).with("at", &self.path)
    }

    fn version(&self, json: Option<&Json>) -> Result<u64> {
        match json {
            Some(Json::Int(version)) if *version > STRUCTURE_VERSION as i64 => {
                let why = format!(
                    "the object was saved by a newer tensorferry, in version {version} of its \
                     structure; upgrade to load it"
                );
                Err(Error::new(Kind::Unsupported, why).with("known", STRUCTURE_VERSION))
            }
            Some(Json::Int(version @ 1..)) => Ok(*version as u64),
            _ => Err(self.wrong("\"version\" is missing or no positive integer")),
        }
    }

    /// A node with `depth` containers around it.
    fn node(&mut self, json: &'a Json, depth: usize) -> Result<Node> {
        Ok(match json {
            Json::Null => Node::None,
            Json::Bool(value) => Node::Bool(*value),
            Json::Int(value) => Node::Int(*value),
            Json::Float(value) => Node::Float(*value),
            Json::Text(value) => Node::Str(value.clone()),
            Json::Array(items) => Node::List(self.items(items, depth)?),
            Json::Object(fields) => match fields.as_slice() {
                [(tag, content)] => self.tagged(tag, content, depth)?,
                [(tag, content), (other, metadata)] if tag == "odict" && other == "metadata" => {
                    self.odict(content, metadata, depth)?
                }
                [(other, metadata), (tag, content)] if tag == "odict" && other == "metadata" => {
                    self.odict(content, metadata, depth)?
                }
                _ => {
                    let why = format!("an object has {} keys instead of one tag", fields.len());
                    return Err(self.wrong(why));
                }
            },
        })
    }

    fn tagged(&mut self, tag: &'a str, content: &'a Json, depth: usize) -> Result<Node> {
        match tag {
            "dict" => Ok(Node::Dict(self.entries(content, depth)?)),
            "odict" => Ok(Node::OrderedDict(self.entries(content, depth)?, None)),
            "counter" => Ok(Node::Counter(self.entries(content, depth)?)),
            "tuple" => Ok(Node::Tuple(self.items(self.array(tag, content)?, depth)?)),
            "set" => Ok(Node::Set(self.elements(tag, content, depth)?)),
            "frozenset" => Ok(Node::FrozenSet(self.elements(tag, content, depth)?)),
            "tensor" => Ok(Node::Tensor(self.leaf(tag, content)?.into())),
            "array" => Ok(Node::Array(self.leaf(tag, content)?.into())),
            "blob" => Ok(Node::Blob(self.leaf(tag, content)?.into())),
            "bytearray_blob" => Ok(Node::ByteArrayBlob(self.leaf(tag, content)?.into())),
            "complex" => self.complex(self.array(tag, content)?, depth),
            "size" => self.size(self.array(tag, content)?),
            "scalar" => self.scalar(self.array(tag, content)?),
            _ => self.noted(tag, content),
        }
    }

    // -- containers --

    fn enter(&self, depth: usize) -> Result<()> {
        if depth < NESTING_MAX {
            return Ok(());
        }
        Err(self.wrong(format!("more than {NESTING_MAX} containers stand inside one another")))
    }

    fn inside(&mut self, step: Step<'a>, json: &'a Json, depth: usize) -> Result<Node> {
        self.path.push(step);
        let node = self.node(json, depth)?;
        self.path.pop();
        Ok(node)
    }

    fn items(&mut self, items: &'a [Json], depth: usize) -> Result<Vec<Node>> {
        self.enter(depth)?;
        let items = items.iter().enumerate();
        items.map(|(index, item)| self.inside(Step::Index(index), item, depth + 1)).collect()
    }

    fn odict(&mut self, content: &'a Json, metadata: &'a Json, depth: usize) -> Result<Node> {
        let entries = self.entries(content, depth)?;
        let metadata = self.inside(Step::Key("_metadata"), metadata, depth + 1)?;
        Ok(Node::OrderedDict(entries, Some(Box::new(metadata))))
    }

    fn entries(&mut self, content: &'a Json, depth: usize) -> Result<Entries> {
        self.enter(depth)?;
        match content {
            Json::Object(fields) => {
                self.check_unique(fields)?;
                let entry = |(key, json): &'a (String, Json)| {
                    let node = self.inside(Step::Key(key), json, depth + 1)?;
                    Ok((Node::Str(key.clone()), node))
                };
                fields.iter().map(entry).collect()
            }
            Json::Array(pairs) => {
                let mut known = HashSet::new();
                pairs.iter().map(|pair| self.pair(pair, depth, &mut known)).collect()
            }
            other => {
                let why = format!("a dict is {}, not an object or an array of pairs", other.what());
                Err(self.wrong(why))
            }
        }
    }

    fn pair(
        &mut self,
        json: &'a Json,
        depth: usize,
        known: &mut HashSet<String>,
    ) -> Result<(Node, Node)> {
        let Json::Array(pair) = json else {
            return Err(self.wrong(format!("an item of a dict is {}, not a pair", json.what())));
        };
        let [key, value] = pair.as_slice() else {
            let why = format!("an item of a dict has {} parts instead of two", pair.len());
            return Err(self.wrong(why));
        };
        let key = self.node(key, depth + 1)?;
        if !is_key(&key) {
            return Err(self.wrong("a key of a dict is of a type that keys can't have"));
        }
        self.check_new(&key, known)?;
        let value = self.inside(Step::of(&key), value, depth + 1)?;
        Ok((key, value))
    }

    fn elements(&mut self, tag: &str, content: &'a Json, depth: usize) -> Result<Vec<Node>> {
        self.enter(depth)?;
        let items = self.array(tag, content)?;
        let mut known = HashSet::new();
        let element = |json| {
            let node = self.node(json, depth + 1)?;
            if !is_element(&node) {
                return Err(self.wrong("an element of a set is of a type that elements can't have"));
            }
            self.check_new(&node, &mut known)?;
            Ok(node)
        };
        items.iter().map(element).collect()
    }

    fn check_unique(&self, fields: &[(String, Json)]) -> Result<()> {
        let mut known = HashSet::with_capacity(fields.len());
        match fields.iter().find(|(key, _)| !known.insert(key)) {
            None => Ok(()),
            Some((key, _)) => Err(self.wrong(format!("the key {key:?} stands twice"))),
        }
    }

    fn check_new(&self, node: &Node, known: &mut HashSet<String>) -> Result<()> {
        if identity(node).is_some_and(|identity| !known.insert(identity)) {
            return Err(self.wrong("two equal keys or elements"));
        }
        Ok(())
    }

    // -- values --

    fn array(&self, tag: &str, content: &'a Json) -> Result<&'a [Json]> {
        match content {
            Json::Array(items) => Ok(items),
            other => Err(self.wrong(format!("{tag:?} holds {}, not an array", other.what()))),
        }
    }

    fn complex(&mut self, parts: &'a [Json], depth: usize) -> Result<Node> {
        if let [real, imaginary] = parts {
            let parts = (self.node(real, depth)?, self.node(imaginary, depth)?);
            if let (Node::Float(real), Node::Float(imaginary)) = parts {
                return Ok(Node::Complex(real, imaginary));
            }
        }
        Err(self.wrong("\"complex\" does not hold two floats"))
    }

    fn size(&self, sizes: &[Json]) -> Result<Node> {
        let sizes = sizes.iter().map(|size| match size {
            Json::Int(size) => Ok(*size),
            other => Err(self.wrong(format!("\"size\" holds {}, not integers", other.what()))),
        });
        Ok(Node::Size(sizes.collect::<Result<_>>()?))
    }

    fn scalar(&self, parts: &[Json]) -> Result<Node> {
        if let [Json::Text(dtype), Json::Text(digits)] = parts {
            let itemsize = notation::numpy_itemsize(dtype);
            let bytes = digits.len() as u64 / 2;
            if itemsize == Some(bytes) && digits.len() % 2 == 0 && notation::is_hex(digits) {
                return Ok(Node::Scalar(dtype.clone()));
            }
        }
        Err(self.wrong("\"scalar\" does not hold a dtype of NumPy and the digits of one element"))
    }

    /// Tags whose content is one text in a notation of its own.
    fn noted(&self, tag: &str, content: &Json) -> Result<Node> {
        let wrong = || self.wrong(format!("{tag:?} holds no text, or one that makes no sense"));
        let text = if let Json::Text(text) = content { Some(text.as_str()) } else { None };
        let checked = |is: fn(&str) -> bool| {
            text.filter(|text| is(text)).map(str::to_owned).ok_or_else(wrong)
        };
        let len = || text.and_then(notation::base64_len).ok_or_else(wrong);
        match tag {
            "int" => checked(notation::is_long_int).map(Node::LongInt),
            "float" => {
                let bits = text.and_then(notation::float_bits).ok_or_else(wrong)?;
                Ok(Node::Float(f64::from_bits(bits)))
            }
            "bytes" => len().map(Node::Bytes),
            "bytearray" => len().map(Node::ByteArray),
            "dtype" => checked(notation::is_dtype).map(Node::Dtype),
            "device" => checked(notation::is_device).map(Node::Device),
            _ => Err(self.wrong(format!("the tag {tag:?} is not known"))),
        }
    }
}

fn is_key(node: &Node) -> bool {
    match node {
        Node::Tuple(items) => items.iter().all(is_key),
        Node::None | Node::Bool(_) | Node::Int(_) | Node::LongInt(_) | Node::Float(_) => true,
        other => matches!(other, Node::Str(_) | Node::Bytes(_)),
    }
}

fn is_element(node: &Node) -> bool {
    match node {
        Node::FrozenSet(_) => true,
        Node::Tuple(items) => items.iter().all(is_element),
        other => is_key(other),
    }
}

/// The same text for keys that Python holds equal: `1`, `1.0` and `True`. None where bytes are
/// concerned, whose content is not kept here, and for NaN, which equals nothing.
fn identity(node: &Node) -> Option<String> {
    match node {
        Node::Bool(value) => Some(i64::from(*value).to_string()),
        Node::Int(value) => Some(value.to_string()),
        Node::Float(value) if value.is_nan() => None,
        Node::Float(value) if value.fract() == 0.0 && value.abs() < INT_END => {
            Some((*value as i64).to_string())
        }
        Node::Bytes(_) => None,
        Node::Tuple(items) => {
            let items = items.iter().map(identity).collect::<Option<Vec<_>>>()?;
            Some(format!("({})", items.join(", ")))
        }
        Node::FrozenSet(items) => {
            let mut items = items.iter().map(identity).collect::<Option<Vec<_>>>()?;
            items.sort();
            Some(format!("{{{}}}", items.join(", ")))
        }
        other => Some(format!("{other:?}")),
    }
}
