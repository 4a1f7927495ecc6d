//! Tools, the formats they speak, and sets of them.
//!
//! Five are our own. A process may add others, by a name and a format; they have numbers in the order in
//! which they came, and keep them for as long as the process lives.

use std::fmt;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Tools that a process may add.
pub const ADDED_MAX: usize = 16;

/// Bytes of the name of a tool that is added.
pub const NAME_BYTES_MAX: usize = 64;

/// One way to move an object to or from a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Tool {
    /// Past the page cache, through the engine.
    Direct,
    /// Through the page cache.
    Buffered,
    /// Mapped into memory; reads only.
    Mapped,
    /// `torch.save` and `torch.load`.
    Torch,
    /// `numpy.save` and `numpy.load`.
    Numpy,
    /// What somebody has added.
    Added(Added),
}

/// What the bytes in a file are; a file is read by a tool of the format it was written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Format {
    /// What `direct` and `buffered` write and `direct`, `buffered` and `mapped` read.
    Safetensors,
    /// torch's own.
    Torch,
    /// numpy's own.
    Numpy,
    /// That of a tool that was added.
    Added(Added),
}

/// The number of a tool that was added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Added(u8);

/// Names and formats, by number.
static ADDED: [OnceLock<(String, Format)>; ADDED_MAX] = [const { OnceLock::new() }; ADDED_MAX];

impl Tool {
    /// Every tool of our own.
    pub const ALL: [Self; 5] =
        [Self::Direct, Self::Buffered, Self::Mapped, Self::Torch, Self::Numpy];

    /// The name, the same in every language.
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Buffered => "buffered",
            Self::Mapped => "mapped",
            Self::Torch => "torch",
            Self::Numpy => "numpy",
            Self::Added(added) => added.get().map_or("added", |(name, _)| name),
        }
    }

    /// The tool of this name.
    pub fn named(name: &str) -> Result<Self> {
        Self::known().find(|tool| tool.name() == name).ok_or_else(|| {
            let names: Vec<_> = Self::known().map(Self::name).collect();
            let (last, others) = names.split_last().unwrap_or((&"", &[]));
            let choices = format!("{} or {last}", others.join(", "));
            Error::invalid(format!("{name:?} is no tool; choose {choices}"))
        })
    }

    /// Adds a tool, or finds the one that was added by this name. `format` is one of ours, that of a tool
    /// that was added before, or `name` for a format of its own.
    pub fn add(name: &str, format: &str) -> Result<Self> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let length = 1..=NAME_BYTES_MAX;
        if !(length.contains(&name.len()) && name.bytes().all(is_plain)) {
            let what = format!("{name:?} is no name for a tool");
            let hint = format!("use up to {NAME_BYTES_MAX} letters, digits, '-', '_' and '.'");
            return Err(Error::invalid(format!("{what}; {hint}")));
        }
        let taken = Self::ALL.map(Self::name);
        if taken.contains(&name) || ["auto", "safetensors", "index"].contains(&name) {
            let message = format!("the name {name:?} is taken; give the tool another one");
            return Err(Error::invalid(message));
        }
        let others = if format == name { None } else { Some(Format::named(format)?) };
        for (number, slot) in (0..).zip(&ADDED) {
            let format = others.unwrap_or(Format::Added(Added(number)));
            let kept = slot.get_or_init(|| (name.to_owned(), format));
            if kept.0 != name {
                continue;
            }
            if kept.1 != format {
                let message = format!("the name {name:?} is taken by a tool of another format");
                return Err(Error::invalid(message).with("format", kept.1.name()));
            }
            return Ok(Self::Added(Added(number)));
        }
        let message = format!("there are {ADDED_MAX} added tools already, which are the most");
        Err(Error::invalid(message).with("tool", name))
    }

    /// Those of our own, and those that were added.
    fn known() -> impl Iterator<Item = Self> {
        let added = (0..).map(Added).map_while(|added| added.get().map(|_| Self::Added(added)));
        Self::ALL.into_iter().chain(added)
    }

    /// Whether it can write.
    pub const fn writes(self) -> bool {
        !matches!(self, Self::Mapped)
    }

    /// What it writes or reads.
    pub fn format(self) -> Format {
        match self {
            Self::Direct | Self::Buffered | Self::Mapped => Format::Safetensors,
            Self::Torch => Format::Torch,
            Self::Numpy => Format::Numpy,
            Self::Added(added) => added.get().map_or(Format::Added(added), |(_, format)| *format),
        }
    }

    /// The number of the tool in a set.
    pub(super) const fn number(self) -> usize {
        match self {
            Self::Direct => 0,
            Self::Buffered => 1,
            Self::Mapped => 2,
            Self::Torch => 3,
            Self::Numpy => 4,
            Self::Added(Added(number)) => Self::ALL.len() + number as usize,
        }
    }

    fn numbered(number: usize) -> Option<Self> {
        let added = || {
            let number = u8::try_from(number - Self::ALL.len()).ok()?;
            (usize::from(number) < ADDED_MAX).then_some(Self::Added(Added(number)))
        };
        Self::ALL.get(number).copied().or_else(added)
    }
}

impl Added {
    fn get(self) -> Option<&'static (String, Format)> {
        ADDED.get(usize::from(self.0))?.get()
    }
}

impl TryFrom<String> for Tool {
    type Error = Error;

    fn try_from(name: String) -> Result<Self> {
        Self::named(&name)
    }
}

impl From<Tool> for String {
    fn from(tool: Tool) -> Self {
        tool.name().to_owned()
    }
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Format {
    /// The name: that of the tool whose own it is, but for ours.
    pub fn name(self) -> &'static str {
        match self {
            Self::Safetensors => "safetensors",
            Self::Torch => "torch",
            Self::Numpy => "numpy",
            Self::Added(added) => Tool::Added(added).name(),
        }
    }

    /// The format of this name.
    pub fn named(name: &str) -> Result<Self> {
        Tool::known().map(Tool::format).find(|format| format.name() == name).ok_or_else(|| {
            let choices = "choose \"safetensors\", \"torch\", \"numpy\" or the tool's own name";
            Error::invalid(format!("{name:?} is no format; {choices}"))
        })
    }

    /// The tool that stands for the format where the file does not tell which one wrote it.
    pub const fn tool(self) -> Tool {
        match self {
            Self::Safetensors => Tool::Direct,
            Self::Torch => Tool::Torch,
            Self::Numpy => Tool::Numpy,
            Self::Added(added) => Tool::Added(added),
        }
    }
}

/// A set of tools.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(from = "Vec<Tool>", into = "Vec<Tool>")]
pub struct Tools(u32);

impl Tools {
    /// Every tool of our own.
    pub const ALL: Self = Self((1 << Tool::ALL.len()) - 1);

    /// Whether `tool` is one of them.
    pub const fn contains(self, tool: Tool) -> bool {
        self.0 & (1 << tool.number()) != 0
    }

    /// Whether it holds no tool.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many they are.
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// These and one more.
    #[must_use]
    pub const fn with(self, tool: Tool) -> Self {
        Self(self.0 | 1 << tool.number())
    }

    /// Those that can write.
    #[must_use]
    pub fn writing(self) -> Self {
        self.into_iter().filter(|tool| tool.writes()).collect()
    }

    /// Those that read `format`.
    #[must_use]
    pub fn reading(self, format: Format) -> Self {
        self.into_iter().filter(|tool| tool.format() == format).collect()
    }
}

impl FromIterator<Tool> for Tools {
    fn from_iter<I: IntoIterator<Item = Tool>>(tools: I) -> Self {
        tools.into_iter().fold(Self::default(), Self::with)
    }
}

impl IntoIterator for Tools {
    type Item = Tool;
    type IntoIter = Members;

    fn into_iter(self) -> Members {
        Members(self)
    }
}

/// The tools of a set, in the order of [`Tool::ALL`], then those that were added.
#[derive(Debug, Clone)]
pub struct Members(Tools);

impl Iterator for Members {
    type Item = Tool;

    fn next(&mut self) -> Option<Tool> {
        let tool = Tool::numbered(self.0.0.trailing_zeros() as usize)?;
        self.0.0 &= self.0.0 - 1;
        Some(tool)
    }
}

impl From<Vec<Tool>> for Tools {
    fn from(tools: Vec<Tool>) -> Self {
        tools.into_iter().collect()
    }
}

impl From<Tools> for Vec<Tool> {
    fn from(tools: Tools) -> Self {
        tools.into_iter().collect()
    }
}

impl fmt::Debug for Tools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(*self).finish()
    }
}

impl fmt::Display for Tools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.into_iter().map(Tool::name).collect();
        f.pad(&if names.is_empty() { "none".to_owned() } else { names.join(", ") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_is_found_by_its_name_and_reads_what_it_writes() {
        for tool in Tool::ALL {
            assert_eq!(Tool::named(tool.name()).unwrap(), tool);
            assert_eq!(serde_json::to_string(&tool).unwrap(), format!("{:?}", tool.name()));
            assert!(Tools::ALL.reading(tool.format()).contains(tool));
            assert!(tool.format().tool().writes());
            assert_eq!(tool.format().tool().format(), tool.format());
        }
        assert_eq!(Tools::ALL.reading(Format::Safetensors).len(), 3);
        assert_eq!(Tools::ALL.writing().len(), 4);
    }

    #[test]
    fn an_unknown_tool_is_an_error_that_names_the_known_ones() {
        let error = Tool::named("gds").unwrap_err();
        let expected = "\"gds\" is no tool; choose direct, buffered, mapped, torch or numpy";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn a_tool_that_was_added_is_one_of_them_for_as_long_as_the_process_lives() {
        let tape = Tool::add("tape", "tape").unwrap();
        let drum = Tool::add("drum", "tape").unwrap();
        let quick = Tool::add("quick", "numpy").unwrap();
        assert_eq!(Tool::add("tape", "tape").unwrap(), tape, "the same again");
        assert_eq!(Tool::named("drum").unwrap(), drum);
        assert_eq!((drum.format(), quick.format()), (tape.format(), Format::Numpy));
        let tools = Tools::ALL.with(tape).with(drum).with(quick);
        assert_eq!(tools.reading(tape.format()).into_iter().collect::<Vec<_>>(), [tape, drum]);
        assert_eq!(tools.reading(Format::Numpy).to_string(), "numpy, quick");
        let json = serde_json::to_string(&tools).unwrap();
        assert_eq!(serde_json::from_str::<Tools>(&json).unwrap(), tools);
        for (name, format, text) in [
            ("direct", "direct", "the name \"direct\" is taken; give the tool another one"),
            ("auto", "numpy", "the name \"auto\" is taken; give the tool another one"),
            ("tape", "numpy", "the name \"tape\" is taken by a tool of another format"),
            ("a/b", "a/b", "\"a/b\" is no name for a tool; use up to 64 letters"),
            ("", "", "\"\" is no name for a tool"),
            ("wire", "drum", "\"drum\" is no format; choose \"safetensors\", \"torch\""),
        ] {
            let error = Tool::add(name, format).unwrap_err().to_string();
            assert!(error.starts_with(text), "{error}");
        }
        for number in 3..ADDED_MAX {
            Tool::add(&format!("tool{number}"), "torch").unwrap();
        }
        let error = Tool::add("more", "torch").unwrap_err().to_string();
        assert_eq!(error, "there are 16 added tools already, which are the most (tool: more)");
    }

    #[test]
    fn a_set_holds_what_was_put_in_and_nothing_else() {
        for bits in 0..1u32 << Tool::ALL.len() {
            let set = Tools(bits);
            let tools: Vec<_> = set.into_iter().collect();
            assert_eq!(tools.len(), set.len());
            assert_eq!(tools.iter().copied().collect::<Tools>(), set);
            assert_eq!(set.is_empty(), bits == 0);
            let json = serde_json::to_string(&set).unwrap();
            assert_eq!(serde_json::from_str::<Tools>(&json).unwrap(), set);
        }
        assert_eq!(Tools::default().to_string(), "none");
        assert_eq!(Tools::ALL.writing().to_string(), "direct, buffered, torch, numpy");
    }
}
