//! The index of a checkpoint in several files: which files make it up, and which tensors are where.
//!
//! It is JSON beside the files, ours or that of plain safetensors files as others write it, and
//! outside bytes. What comes out is consistent in itself: files are plain names beside the index, one
//! for each rank, every tensor is of a known kind with ranks that exist, and the checksum is right if
//! there is one. What the files hold is compared when they are opened.

use std::collections::HashSet;

use super::header::DIMENSIONS_MAX;
use super::json::{self, Json};
use super::recognise::BYTE_ORDER_MARK;
use crate::codec::checksum::Crc32c;
use crate::error::{Error, Kind, Result};

/// The version that is written, and the newest that is read.
pub const INDEX_VERSION: u64 = 1;

/// Longer ones are refused, as headers are.
pub const INDEX_BYTES_MAX: u64 = 100_000_000;

/// Ranks have five digits in the names of files.
const RANKS_MAX: usize = 100_000;

/// What stands in front of the digits of the checksum, and behind them, at the end of an index.
const MARK: &str = ", \"crc32c\": \"";
const END: &str = "\"}";
const DIGITS: usize = 8;

const NEITHER: &str = "the file is neither a checkpoint nor an index";

/// Files that make up one checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Index {
    /// What several ranks have saved.
    Ranks(Ranks),
    /// Plain files: each tensor, and the file that has it.
    Shards(Vec<(String, String)>),
}

/// What several ranks have saved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranks {
    /// Of the save: the same in the names of all its files.
    pub token: String,
    /// The number of the save, at this path.
    pub generation: u64,
    /// By rank.
    pub files: Vec<String>,
    /// In the order of the text.
    pub tensors: Vec<(String, Kept)>,
}

/// How the ranks keep a tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kept {
    /// Each has its part.
    Sharded {
        /// As stored.
        dtype: String,
        /// Of the whole.
        shape: Vec<u64>,
        /// Along which it is cut, as `torch.chunk` cuts.
        dim: usize,
    },
    /// All have the same, and one stores it.
    Replicated {
        /// As stored.
        dtype: String,
        /// As stored.
        shape: Vec<u64>,
        /// The one.
        rank: usize,
    },
    /// Each of these ranks stores its own.
    Private {
        /// Ascending.
        ranks: Vec<usize>,
        /// Whether all ranks have it, and it is the same on all.
        equal: bool,
        /// Whether other numbers of ranks get it as rank 0 has it, if it does.
        own: bool,
    },
}

impl Index {
    /// Reads an index, or says what is wrong with it.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        if bytes.len() as u64 > INDEX_BYTES_MAX {
            return Err(Error::new(
                Kind::Corrupt,
                format!("an index has at most {INDEX_BYTES_MAX} bytes"),
            ));
        }
        let json = read(bytes)?;
        let fields = Fields(match &json {
            Json::Object(fields) => fields,
            _ => &[],
        });
        if fields.get("crc32c").is_some() && !is_sealed(bytes) {
            return Err(damaged("its checksum is wrong"));
        }
        if let Some(version) = fields.get("tensorferry_index") {
            check_version(version)?;
            return ranks(&fields).map(Self::Ranks).map_err(damaged);
        }
        let map = fields.get("weight_map").ok_or_else(|| {
            Error::new(Kind::Corrupt, "the file is JSON, but no index of a checkpoint")
        })?;
        shards(map).map(Self::Shards).map_err(damaged)
    }

    /// The bytes of a file for the text of an index, a JSON object: with a checksum over all of it.
    pub fn seal(text: &str) -> Result<Vec<u8>> {
        let open = text.strip_suffix('}').ok_or_else(|| Error::invalid("an index is an object"))?;
        let mut bytes = [open, MARK, &"0".repeat(DIGITS), END].concat().into_bytes();
        let at = bytes.len() - END.len() - DIGITS;
        let digits = format!("{:08x}", checksum(&bytes, at));
        bytes[at..at + DIGITS].copy_from_slice(digits.as_bytes());
        Ok(bytes)
    }
}

fn damaged(why: impl AsRef<str>) -> Error {
    let why = format!("the index of the checkpoint is damaged: {}", why.as_ref());
    Error::new(Kind::Corrupt, why)
}

fn read(bytes: &[u8]) -> Result<Json> {
    let wrong = |why| Error::new(Kind::Corrupt, format!("{NEITHER}: {why}"));
    let text =
        std::str::from_utf8(bytes).map_err(|error| wrong("it is no text").caused_by(error))?;
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    let json = json::read(text, &format!("{NEITHER}: it"))?;
    if has_twice(&json) { Err(wrong("a key stands twice")) } else { Ok(json) }
}

fn has_twice(json: &Json) -> bool {
    match json {
        Json::Array(items) => items.iter().any(has_twice),
        Json::Object(fields) => {
            let mut known = HashSet::new();
            fields.iter().any(|(key, value)| !known.insert(key) || has_twice(value))
        }
        _ => false,
    }
}

/// Whether the text ends with the checksum of all of it.
fn is_sealed(bytes: &[u8]) -> bool {
    let Some(at) = bytes.len().checked_sub(END.len() + DIGITS) else { return false };
    let (front, digits) = bytes.split_at(at);
    front.ends_with(MARK.as_bytes())
        && digits.ends_with(END.as_bytes())
        && digits.starts_with(format!("{:08x}", checksum(bytes, at)).as_bytes())
}

/// Of all bytes, with the digits at this place taken as zeros.
fn checksum(bytes: &[u8], at: usize) -> u32 {
    let mut checksum = Crc32c::new();
    checksum.update(&bytes[..at]);
    checksum.update(&[b'0'; DIGITS]);
    checksum.update(&bytes[at + DIGITS..]);
    checksum.finish()
}

fn check_version(version: &Json) -> Result<()> {
    match version {
        Json::Int(version) if *version > INDEX_VERSION as i64 => {
            let why = format!(
                "the checkpoint was saved by a newer tensorferry, in version {version} of its \
                 index; upgrade to load it"
            );
            Err(Error::new(Kind::Unsupported, why))
        }
        Json::Int(1..) => Ok(()),
        _ => Err(damaged("its version is no positive integer")),
    }
}

/// What went wrong, if anything.
type Judged<T> = std::result::Result<T, String>;

/// The fields of an object.
struct Fields<'a>(&'a [(String, Json)]);

impl<'a> Fields<'a> {
    fn get(&self, name: &str) -> Option<&'a Json> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    fn text(&self, name: &str) -> Option<&'a str> {
        self.get(name).and_then(Json::text)
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.get(name).and_then(Json::number)
    }

    fn flag(&self, name: &str) -> Option<bool> {
        self.get(name).and_then(Json::boolean)
    }
}

fn ranks(fields: &Fields<'_>) -> Judged<Ranks> {
    let token = fields.text("token").filter(|token| is_token(token));
    let token = token.ok_or("its token makes no sense")?.to_owned();
    let generation = fields.number("generation").ok_or("its generation is no number")?;
    let files = match fields.get("files") {
        Some(Json::Array(files)) if !files.is_empty() => files,
        _ => return Err("it names no files".into()),
    };
    let files: Vec<_> = files.iter().map(file).collect::<Judged<_>>()?;
    if files.iter().collect::<HashSet<_>>().len() < files.len() {
        return Err("it names a file twice".into());
    }
    if files.len() > RANKS_MAX {
        return Err("it names too many files".into());
    }
    if fields.number("world_size") != Some(files.len() as u64) {
        return Err("it does not name a file for each rank".into());
    }
    let Some(Json::Object(tensors)) = fields.get("tensors") else {
        return Err("it has no tensors".into());
    };
    let tensors = tensors.iter().map(|(name, said)| {
        let wrong = || format!("what it says of the tensor {name:?} makes no sense");
        kept(said, files.len()).map(|kept| (name.clone(), kept)).ok_or_else(wrong)
    });
    Ok(Ranks { token, generation, tensors: tensors.collect::<Judged<_>>()?, files })
}

/// `g`, up to 15 digits, and up to 48 digits and small letters.
fn is_token(text: &str) -> bool {
    let Some(rest) = text.strip_prefix('g') else { return false };
    let digits = rest.bytes().take(15).take_while(u8::is_ascii_digit).count();
    let tail = &rest.as_bytes()[digits..];
    digits > 0
        && tail.len() <= 48
        && tail.iter().all(|byte| byte.is_ascii_digit() || byte.is_ascii_lowercase())
}

fn kept(said: &Json, world_size: usize) -> Option<Kept> {
    let Json::Object(fields) = said else { return None };
    let fields = Fields(fields);
    let kind = fields.text("kind")?;
    if kind == "private" {
        return private(&fields, world_size);
    }
    let dtype = fields.text("dtype")?.to_owned();
    let shape = fields.get("shape")?.numbers().filter(|shape| shape.len() <= DIMENSIONS_MAX)?;
    let below = |name, end| {
        let number = usize::try_from(fields.number(name)?).ok()?;
        (number < end).then_some(number)
    };
    match kind {
        "sharded" => Some(Kept::Sharded { dtype, dim: below("dim", shape.len())?, shape }),
        "replicated" => Some(Kept::Replicated { dtype, shape, rank: below("rank", world_size)? }),
        _ => None,
    }
}

fn private(fields: &Fields<'_>, world_size: usize) -> Option<Kept> {
    let ranks: Vec<_> = match fields.get("ranks") {
        None => (0..world_size).collect(),
        Some(ranks) => ranks.numbers()?.into_iter().map(|rank| rank as usize).collect(),
    };
    let ascend = ranks.windows(2).all(|pair| pair[0] < pair[1]);
    let last = ranks.last().filter(|last| **last < world_size && ascend);
    let equal = fields.flag("equal")?;
    let own = if fields.get("own").is_some() { fields.flag("own")? } else { false };
    let makes_sense = last.is_some() && (!equal || ranks.len() == world_size);
    makes_sense.then_some(Kept::Private { ranks, equal, own })
}

fn shards(map: &Json) -> Judged<Vec<(String, String)>> {
    let Json::Object(map) = map else { return Err("its weight_map is no object".into()) };
    map.iter().map(|(name, said)| Ok((name.clone(), file(said)?))).collect()
}

/// A name that can only mean a file beside the index.
fn file(said: &Json) -> Judged<String> {
    let name =
        said.text().ok_or_else(|| format!("{} is no name of a file beside it", said.what()))?;
    if matches!(name, "" | "." | "..") || name.contains(['/', '\0']) {
        return Err(format!("{name:?} is no name of a file beside it"));
    }
    Ok(name.to_owned())
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    const OURS: &str = r#"{"tensorferry_index": 1, "token": "g3n2", "generation": 3, "world_size": 2,
        "files": ["a-0", "a-1"], "tensors": {
            "cut": {"kind": "sharded", "dtype": "F32", "shape": [4, 2], "dim": 1},
            "same": {"kind": "replicated", "dtype": "I8", "shape": [], "rank": 1},
            "own": {"kind": "private", "ranks": [1], "equal": false, "own": true},
            "all": {"kind": "private", "equal": true}}, "weight_map": {"all": "a-0"}}"#;

    #[test]
    fn an_index_says_which_rank_has_what() {
        let Index::Ranks(ranks) = Index::parse(OURS.as_bytes()).unwrap() else { panic!() };
        assert_eq!((ranks.token.as_str(), ranks.generation), ("g3n2", 3));
        assert_eq!(ranks.files, ["a-0", "a-1"]);
        let kept = |name| &ranks.tensors.iter().find(|(known, _)| known == name).unwrap().1;
        let cut = Kept::Sharded { dtype: "F32".into(), shape: vec![4, 2], dim: 1 };
        assert_eq!(*kept("cut"), cut);
        let same = Kept::Replicated { dtype: "I8".into(), shape: vec![], rank: 1 };
        assert_eq!(*kept("same"), same);
        assert_eq!(*kept("own"), Kept::Private { ranks: vec![1], equal: false, own: true });
        assert_eq!(*kept("all"), Kept::Private { ranks: vec![0, 1], equal: true, own: false });
    }

    #[test]
    fn an_index_of_others_says_which_file_has_what() {
        let text = r#"{"metadata": {"total_size": 8.0}, "weight_map": {"b": "2", "a": "1"}}"#;
        let expected = [("b", "2"), ("a", "1")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        assert_eq!(Index::parse(text.as_bytes()).unwrap(), Index::Shards(expected.into()));
    }

    #[test]
    fn any_changed_bit_of_a_sealed_index_is_noticed_or_changes_nothing() {
        let sealed = Index::seal(OURS).unwrap();
        let whole = Index::parse(&sealed).unwrap();
        assert_eq!(whole, Index::parse(OURS.as_bytes()).unwrap());
        for at in 0..sealed.len() {
            for bit in 0..8 {
                let mut changed = sealed.clone();
                changed[at] ^= 1 << bit;
                // Without the key of the checksum all else is as it was.
                if let Ok(index) = Index::parse(&changed) {
                    assert_eq!(index, whole, "byte {at}, bit {bit}");
                }
            }
        }
    }

    #[test]
    fn a_token_is_a_number_and_letters_of_bounded_length() {
        for good in ["g0", "g12n2", "g123456789012345", "g1234567890123456", "g1r00ff"] {
            assert!(is_token(good), "{good}");
        }
        let long = format!("g1{}", "a".repeat(49));
        for bad in ["", "g", "gn2", "1n2", "g1N", "g1/", "../x", "g1 ", &long] {
            assert!(!is_token(bad), "{bad}");
        }
    }
}
