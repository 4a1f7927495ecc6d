//! An engine whose operations are done as soon as they are asked for: under models of what is above
//! it, which are about their own threads.

use std::path::Path;
use std::sync::Arc;

use super::file::{File, Home, Open};
use super::memory::{Directory, set_len};
use super::{Borrowed, Engine, Facts, Failed, Pending, Priority};
use crate::error::{Error, Kind, Result};
use crate::memory::Block;
use crate::sync::lock;

/// Files in memory.
pub(crate) struct Immediate {
    files: Directory,
    refuses_writes: bool,
    facts: Facts,
}

impl Immediate {
    /// One that takes every write, or none.
    pub(crate) fn new(refuses_writes: bool) -> Self {
        let facts = Facts {
            backend: "memory",
            why: String::new(),
            depth: 1,
            in_flight_bytes: 0,
            registered_bytes: 0,
        };
        Self { files: Directory::default(), refuses_writes, facts }
    }
}

impl Engine for Immediate {
    fn open(&self, path: &Path, how: Open) -> Result<File> {
        let home = Home { engine: 0, on_close: Arc::new(|_| ()) };
        self.files.open(path, how.mode, &home)
    }

    fn read(&self, file: &File, offset: u64, mut into: Block, _: Priority) -> Pending<Block> {
        let content = lock(file.content().unwrap());
        let target = into.as_mut().unwrap();
        target.copy_from_slice(&content[offset as usize..][..target.len()]);
        drop(content);
        Pending::ready(Ok(into))
    }

    fn write(&self, file: &File, offset: u64, from: Block, _: Priority) -> Pending<Block> {
        if self.refuses_writes {
            let error = Error::new(Kind::OutOfSpace, "nothing is written here");
            return Pending::ready(Err(Failed { error, block: Some(from) }));
        }
        let mut content = lock(file.content().unwrap());
        let (start, end) = (offset as usize, offset as usize + from.len());
        if content.len() < end {
            set_len(&mut content, end as u64).unwrap();
        }
        content[start..end].copy_from_slice(&from);
        drop(content);
        Pending::ready(Ok(from))
    }

    fn move_inline(
        &self,
        file: &File,
        offset: u64,
        mut memory: Borrowed<'_, '_>,
        _: Priority,
    ) -> Result<usize> {
        Ok(memory.carry_out(file, offset, None).unwrap())
    }

    fn sync(&self, _: &File, _: Priority) -> Pending<()> {
        Pending::ready(Ok(()))
    }

    fn stop(&self) {}

    fn facts(&self) -> &Facts {
        &self.facts
    }
}
