//! The ways between a file and memory that this crate has of its own.
//!
//! | tool | writes | reads |
//! |---|---|---|
//! | [`Direct`] | around the page cache | around the page cache |
//! | [`Buffered`] | through the page cache | through the page cache |
//! | [`Mapped`] | | by copying out of a mapping |
//!
//! Which is the fastest depends on the size, the disk and what is cached; that is for
//! `plan::checkpoint` to learn. All of them read and write the same bytes.

use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Kind, Result};
use crate::io::{Engine, Failed, File, Mode, Open, Pending, Priority};
use crate::memory::{Block, Mapped as Mapping};

/// One way between a file and memory.
pub trait Tool: Send + Sync {
    /// `direct`, `buffered` or `mapped`.
    fn name(&self) -> &'static str;

    /// Whether what is written goes around the page cache; an error for a tool that only reads.
    fn writes_directly(&self) -> Result<bool>;

    /// Opens a file to read from.
    fn open(&self, engine: &Arc<dyn Engine>, path: &Path) -> Result<Box<dyn Reader>>;
}

/// A file that is being read by one of the tools.
pub trait Reader: Send + Sync {
    /// Bytes in the file.
    fn file_len(&self) -> Result<u64>;

    /// Whether the device itself writes into the memory, and no processor copies.
    fn is_direct(&self) -> bool;

    /// Fills `into` with the bytes at `offset`.
    fn read(&self, offset: u64, into: Block, priority: Priority) -> Pending<Block>;

    /// The same for few bytes that the caller stands still for.
    fn read_inline(&self, offset: u64, into: Block) -> Result<Block, Failed> {
        self.read(offset, into, Priority::Waiting).wait()
    }
}

/// Around the page cache, at the speed of the disk.
#[derive(Debug, Clone, Copy)]
pub struct Direct;

/// Through the page cache: what small files and warm ones want.
#[derive(Debug, Clone, Copy)]
pub struct Buffered;

/// Out of a mapping of the file; only reads.
#[derive(Debug, Clone, Copy)]
pub struct Mapped;

impl Tool for Direct {
    fn name(&self) -> &'static str {
        "direct"
    }

    fn writes_directly(&self) -> Result<bool> {
        Ok(true)
    }

    fn open(&self, engine: &Arc<dyn Engine>, path: &Path) -> Result<Box<dyn Reader>> {
        Opened::reader(engine, path, Open::direct(Mode::Read))
    }
}

impl Tool for Buffered {
    fn name(&self) -> &'static str {
        "buffered"
    }

    fn writes_directly(&self) -> Result<bool> {
        Ok(false)
    }

    fn open(&self, engine: &Arc<dyn Engine>, path: &Path) -> Result<Box<dyn Reader>> {
        Opened::reader(engine, path, Open::buffered(Mode::Read))
    }
}

impl Tool for Mapped {
    fn name(&self) -> &'static str {
        "mapped"
    }

    fn writes_directly(&self) -> Result<bool> {
        Err(Error::invalid("the tool \"mapped\" only reads; save with \"direct\" or \"buffered\""))
    }

    fn open(&self, _: &Arc<dyn Engine>, path: &Path) -> Result<Box<dyn Reader>> {
        Ok(Box::new(Mapping::open(path, None)?))
    }
}

/// A file of the engine.
struct Opened {
    engine: Arc<dyn Engine>,
    file: File,
}

impl Opened {
    fn reader(engine: &Arc<dyn Engine>, path: &Path, how: Open) -> Result<Box<dyn Reader>> {
        let file = engine.open(path, how)?;
        Ok(Box::new(Self { engine: Arc::clone(engine), file }))
    }
}

impl Reader for Opened {
    fn file_len(&self) -> Result<u64> {
        self.file.len()
    }

    fn is_direct(&self) -> bool {
        self.file.is_direct()
    }

    fn read(&self, offset: u64, into: Block, priority: Priority) -> Pending<Block> {
        self.engine.read(&self.file, offset, into, priority)
    }

    fn read_inline(&self, offset: u64, into: Block) -> Result<Block, Failed> {
        self.engine.read_inline(&self.file, offset, into)
    }
}

impl Reader for Mapping {
    fn file_len(&self) -> Result<u64> {
        Ok(self.len() as u64)
    }

    fn is_direct(&self) -> bool {
        false
    }

    fn read(&self, offset: u64, mut into: Block, _: Priority) -> Pending<Block> {
        let range = usize::try_from(offset).ok().and_then(|start| {
            let end = start.checked_add(into.len())?;
            self.get(start..end)
        });
        Pending::ready(match (range, into.as_mut()) {
            (Some(bytes), Some(memory)) => {
                memory.copy_from_slice(bytes);
                Ok(into)
            }
            (None, _) => {
                let error = Error::new(Kind::Truncated, "the file ends too early");
                Err(Failed { error: error.with("offset", offset), block: Some(into) })
            }
            (_, None) => Err(Error::invalid("can't read into memory that is only read").into()),
        })
    }
}

/// The tool of this name.
pub fn tool(name: &str) -> Result<&'static dyn Tool> {
    Ok(match name {
        "direct" => &Direct,
        "buffered" => &Buffered,
        "mapped" => &Mapped,
        _ => {
            let choices = "direct, buffered or mapped";
            return Err(Error::invalid(format!("{name:?} is no tool; choose {choices}")));
        }
    })
}
