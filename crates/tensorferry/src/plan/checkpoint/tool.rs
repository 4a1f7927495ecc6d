//! Tools, the formats they speak, and sets of them.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// One way to move an object to or from a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
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
}

/// What the bytes in a file are; a file is read by a tool of the format it was written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// What `direct` and `buffered` write and `direct`, `buffered` and `mapped` read.
    Safetensors,
    /// torch's own.
    Torch,
    /// numpy's own.
    Numpy,
}

impl Tool {
    /// Every tool.
    pub const ALL: [Self; 5] =
        [Self::Direct, Self::Buffered, Self::Mapped, Self::Torch, Self::Numpy];

    /// The name, the same in every language.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Buffered => "buffered",
            Self::Mapped => "mapped",
            Self::Torch => "torch",
            Self::Numpy => "numpy",
        }
    }

    /// The tool of this name.
    pub fn named(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name).ok_or_else(|| {
            let choices = "direct, buffered, mapped, torch or numpy";
            Error::invalid(format!("{name:?} is no tool; choose {choices}"))
        })
    }

    /// Whether it can write.
    pub const fn writes(self) -> bool {
        !matches!(self, Self::Mapped)
    }

    /// Whether it can read: all can, what they or their kin wrote.
    pub const fn reads(self) -> bool {
        true
    }

    /// What it writes or reads.
    pub const fn format(self) -> Format {
        match self {
            Self::Direct | Self::Buffered | Self::Mapped => Format::Safetensors,
            Self::Torch => Format::Torch,
            Self::Numpy => Format::Numpy,
        }
    }
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Format {
    /// The tool that stands for the format where the file does not tell which one wrote it.
    pub const fn tool(self) -> Tool {
        match self {
            Self::Safetensors => Tool::Direct,
            Self::Torch => Tool::Torch,
            Self::Numpy => Tool::Numpy,
        }
    }
}

/// A set of tools.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(from = "Vec<Tool>", into = "Vec<Tool>")]
pub struct Tools(u8);

impl Tools {
    /// Every tool.
    pub const ALL: Self = Self((1 << Tool::ALL.len()) - 1);

    /// Whether `tool` is one of them.
    pub const fn contains(self, tool: Tool) -> bool {
        self.0 & (1 << tool as u8) != 0
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
        Self(self.0 | 1 << tool as u8)
    }

    /// Those that can write.
    #[must_use]
    pub fn writing(self) -> Self {
        self.into_iter().filter(|tool| tool.writes()).collect()
    }

    /// Those that read `format`.
    #[must_use]
    pub fn reading(self, format: Format) -> Self {
        self.into_iter().filter(|tool| tool.reads() && tool.format() == format).collect()
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

/// The tools of a set, in the order of [`Tool::ALL`].
#[derive(Debug, Clone)]
pub struct Members(Tools);

impl Iterator for Members {
    type Item = Tool;

    fn next(&mut self) -> Option<Tool> {
        let tool = *Tool::ALL.get(self.0.0.trailing_zeros() as usize)?;
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
    fn a_set_holds_what_was_put_in_and_nothing_else() {
        for bits in 0..1u8 << Tool::ALL.len() {
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
