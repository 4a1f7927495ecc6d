//! Who does what: each contest is one thing, done by several, the first of whom is tensorferry.

use serde::Serialize;

/// One thing that several can do.
#[derive(Debug)]
pub(super) struct Contest {
    pub(super) name: &'static str,
    pub(super) unit: Unit,
    /// What holds of the page cache when an entry starts.
    pub(super) cache: Cache,
    /// Whether peak memory is worth a process of its own.
    pub(super) memory: bool,
    pub(super) entries: &'static [Entry],
}

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Bytes of the state, in a second.
    BytesPerSecond,
    /// Steps of a loop, in a second.
    StepsPerSecond,
}

/// Where a contestant finds the file it reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cache {
    /// It reads none.
    Any,
    /// On the disk only.
    Cold,
    /// In memory, all of it.
    Warm,
}

/// One contestant.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: &'static str,
    pub(super) way: Way,
    /// Takes part in the short list too: tensorferry, torch and the disk itself.
    pub(super) essential: bool,
}

/// How a contestant is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Asked of the worker, under this name.
    Python(&'static str),
    /// fio, on a file of the same size.
    Fio(Pass),
}

/// What fio does with its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pass {
    /// Writes a new one, as everybody does who keeps the previous checkpoint until the next one is
    /// there. Its room is reserved before the clock starts.
    WriteNew,
    /// Overwrites the one that is there: what the disk can do at best.
    WriteOver,
    /// Reads into a few buffers again and again: what the disk can do at best.
    Read,
    /// The same without the means that make it faster here: buffers in huge pages, registered.
    ReadAsItComes,
    /// Reads each block into memory of its own that is new to the process, as a load does.
    ReadIntoNew,
}

impl Way {
    /// By what its file is known to the worker: the first part of the case's name.
    pub(super) fn file(self) -> Option<&'static str> {
        match self {
            Self::Python(case) => case.split(['.', ' ']).next(),
            Self::Fio(_) => None,
        }
    }
}

const fn python(name: &'static str, case: &'static str) -> Entry {
    Entry { name, way: Way::Python(case), essential: false }
}

const fn essential(name: &'static str, case: &'static str) -> Entry {
    Entry { essential: true, ..python(name, case) }
}

const fn fio(name: &'static str, pass: Pass) -> Entry {
    Entry { name, way: Way::Fio(pass), essential: true }
}

/// All of them. Saving comes first: what it leaves is what the others load.
pub(super) const CONTESTS: [Contest; 6] = [
    Contest {
        name: "save, synced",
        unit: Unit::BytesPerSecond,
        cache: Cache::Any,
        memory: true,
        entries: &[
            essential("tensorferry", "ferry.save"),
            fio("fio, new file", Pass::WriteNew),
            fio("fio, over a file", Pass::WriteOver),
            essential("torch.save", "torch.save"),
            python("safetensors", "safetensors.save_file"),
            python("torch.distributed", "dcp.save"),
        ],
    },
    Contest {
        name: "load from the disk",
        unit: Unit::BytesPerSecond,
        cache: Cache::Cold,
        memory: false,
        entries: &[
            essential("tensorferry", "ferry.load"),
            essential("tensorferry, again", "ferry.load again"),
            essential("tensorferry, first", "ferry.load first"),
            fio("fio, direct read", Pass::Read),
            fio("fio, as it comes", Pass::ReadAsItComes),
            fio("fio, into new memory", Pass::ReadIntoNew),
            python("new memory, small pages", "memory small"),
            python("new memory, huge pages", "memory huge"),
            essential("torch.load", "torch.load"),
            python("safetensors", "safetensors.load_file"),
            python("safetensors, pread", "safetensors.load_file pread"),
            python("torch.distributed", "dcp.load"),
        ],
    },
    Contest {
        name: "load from the page cache",
        unit: Unit::BytesPerSecond,
        cache: Cache::Warm,
        memory: true,
        entries: &[
            essential("tensorferry", "ferry.load"),
            essential("torch.load", "torch.load"),
            python("safetensors, pread", "safetensors.load_file pread"),
            python("torch.distributed", "dcp.load"),
        ],
    },
    Contest {
        name: "map from the page cache",
        unit: Unit::BytesPerSecond,
        cache: Cache::Warm,
        memory: true,
        entries: &[
            essential("tensorferry, mmap", "ferry.load mmap"),
            essential("torch.load, mmap", "torch.load mmap"),
            python("safetensors", "safetensors.load_file"),
        ],
    },
    Contest {
        name: "the caller of save_async is held",
        unit: Unit::BytesPerSecond,
        cache: Cache::Any,
        memory: true,
        entries: &[
            essential("tensorferry", "ferry.save_async"),
            essential("copy_ into old memory", "copy_"),
            essential("clone into new memory", "clone"),
        ],
    },
    Contest {
        name: "a Python loop meanwhile",
        unit: Unit::StepsPerSecond,
        cache: Cache::Any,
        memory: false,
        entries: &[
            essential("during save_async", "count during save_async"),
            essential("alone", "count alone"),
        ],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensorferry_stands_first_and_names_are_unique_in_each_contest() {
        for contest in &CONTESTS {
            let Way::Python(case) = contest.entries[0].way else { panic!("{contest:?}") };
            assert!(case.starts_with("ferry.") || case.contains("save_async"), "{case}");
            assert!(contest.entries[0].essential);
            let mut names: Vec<_> = contest.entries.iter().map(|entry| entry.name).collect();
            names.sort_unstable();
            assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
        }
    }

    #[test]
    fn what_is_loaded_is_found_by_the_name_of_who_saved_it() {
        for (case, file) in [
            ("ferry.load mmap", "ferry"),
            ("safetensors.load_file", "safetensors"),
            ("dcp.load", "dcp"),
        ] {
            assert_eq!(Way::Python(case).file(), Some(file));
        }
        assert_eq!(Way::Fio(Pass::Read).file(), None);
    }
}
