//! A batch while threads write to it.
//!
//! A column comes into being when the first sample says what its array looks like: one buffer, cut
//! into as many [`Part`]s as there are slots. A thread takes the part of its slot, writes to it
//! without a lock, and puts it back; a sample that failed half-way leaves its part to the one that
//! stands in for it. [`Making::finish`] joins the parts again.
//!
//! Samples whose arrays differ can't lie side by side. That is no fault of one sample, but of the
//! recipe, so it fails the whole batch, whatever becomes of bad samples.

use std::sync::PoisonError;

use super::{Column, Content};
use crate::data::sample::{Layout, Place};
use crate::error::{Error, Kind, Result};
use crate::memory::{Block, Buffer, Named, Part, Parts, Priority};
use crate::sync::{Mutex, lock};

/// What columns of batches take, until whoever has them lets go.
static ACCOUNT: Named = Named::new("batches", Priority::Needed);

/// A batch of which not all samples are there.
pub struct Making {
    slots: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    columns: Vec<Growing>,
    /// How the samples differ, if they do, and one that does.
    unlike: Option<(String, usize)>,
}

struct Growing {
    field: usize,
    member: String,
    filled: Vec<bool>,
    values: Values,
}

enum Values {
    Arrays { layout: Layout, whole: Parts, parts: Vec<Option<Part>> },
    Blobs(Vec<Vec<u8>>),
}

impl Making {
    /// A batch of so many samples.
    pub fn new(slots: usize) -> Self {
        Self { slots, state: Mutex::new(State::default()) }
    }

    /// The place of one sample, first of its first field. One thread at a time has it.
    pub fn slot(&self, at: usize) -> Slot<'_> {
        Slot { making: self, at, field: 0, held: Vec::new() }
    }

    /// The columns, of those samples alone for which `keep` says so. An error names one by `name`.
    pub fn finish(self, keep: &[bool], name: &dyn Fn(usize) -> String) -> Result<Vec<Column>> {
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        // What only samples that are left out had is left out with them.
        let wanted = state.columns.into_iter().filter(|column| column.is_in_any(keep));
        let mut whole: Vec<_> =
            wanted.map(|column| column.finish(keep, name)).collect::<Result<_>>()?;
        // Which thread was first must not show.
        whole.sort_by(|a, b| (a.field, &a.member).cmp(&(b.field, &b.member)));
        Ok(whole)
    }

    fn take(&self, field: usize, member: &str, layout: &Layout, at: usize) -> Result<Part> {
        let mut state = lock(&self.state);
        let State { columns, unlike } = &mut *state;
        let column = find(columns, field, member, || {
            Growing::arrays(field, member, layout.clone(), self.slots)
        })?;
        let Values::Arrays { layout: others, parts, .. } = &mut column.values else {
            return Err(differ(unlike, "bytes", layout, at));
        };
        if others != layout {
            return Err(differ(unlike, &others.to_string(), layout, at));
        }
        column.filled[at] = true;
        parts[at].take().ok_or_else(|| Error::invalid(format!("{member:?} is there twice")))
    }

    fn put_back(&self, part: Part, key: (usize, &str), at: usize) {
        let mut state = lock(&self.state);
        let column = state.columns.iter_mut().find(|column| (column.field, &*column.member) == key);
        if let Some(Growing { values: Values::Arrays { parts, .. }, .. }) = column {
            parts[at] = Some(part);
        }
    }

    fn keep_bytes(&self, field: usize, member: &str, bytes: &[u8], at: usize) -> Result<()> {
        let mut state = lock(&self.state);
        let column = find(&mut state.columns, field, member, || {
            Ok(Growing::blobs(field, member, self.slots))
        })?;
        let Values::Blobs(blobs) = &mut column.values else {
            return Err(Error::invalid("some samples of a batch are arrays, others bytes"));
        };
        blobs[at] = bytes.to_vec();
        column.filled[at] = true;
        Ok(())
    }

    /// A slot that failed holds nothing any more.
    pub fn forget(&self, at: usize) {
        lock(&self.state).columns.iter_mut().for_each(|column| column.filled[at] = false);
    }

    /// Why the samples can't lie side by side, once two were seen that can't, and which is one of them.
    pub fn unlike(&self) -> Option<(Error, usize)> {
        let unlike = lock(&self.state).unlike.clone();
        unlike.map(|(message, at)| (Error::invalid(message), at))
    }
}

fn find<'a>(
    columns: &'a mut Vec<Growing>,
    field: usize,
    member: &str,
    make: impl FnOnce() -> Result<Growing>,
) -> Result<&'a mut Growing> {
    let at = columns.iter().position(|column| column.field == field && column.member == member);
    let at = at.unwrap_or(columns.len());
    if at == columns.len() {
        columns.push(make()?);
    }
    Ok(&mut columns[at])
}

/// Two samples can't lie side by side.
fn differ(unlike: &mut Option<(String, usize)>, others: &str, layout: &Layout, at: usize) -> Error {
    let message = format!(
        "the samples of a batch differ: one is {layout}, another {others}; make them equal with a \
         transform (Resize and CenterCrop, or RandomResizedCrop), or use batch_size=1 or a \
         collate_fn"
    );
    *unlike = Some((message.clone(), at));
    Error::invalid(message)
}

impl Growing {
    fn arrays(field: usize, member: &str, layout: Layout, slots: usize) -> Result<Self> {
        let each = layout.bytes();
        let (Some(each), Some(all)) = (each, each.and_then(|each| each.checked_mul(slots))) else {
            let message = format!("a batch of {slots} samples of {layout} is too large");
            return Err(Error::new(Kind::OutOfMemory, message));
        };
        let mut whole = Parts::new(Block::from(Buffer::recycled_by(&ACCOUNT, all)?));
        let parts = (0..slots).map(|_| Some(whole.cut(each))).collect();
        let values = Values::Arrays { layout, whole, parts };
        Ok(Self { field, member: member.to_owned(), filled: vec![false; slots], values })
    }

    fn blobs(field: usize, member: &str, slots: usize) -> Self {
        let values = Values::Blobs(vec![Vec::new(); slots]);
        Self { field, member: member.to_owned(), filled: vec![false; slots], values }
    }

    fn is_in_any(&self, keep: &[bool]) -> bool {
        self.filled.iter().zip(keep).any(|(filled, keep)| *filled && *keep)
    }

    fn finish(self, keep: &[bool], name: &dyn Fn(usize) -> String) -> Result<Column> {
        if let Some(at) = (0..keep.len()).find(|at| keep[*at] && !self.filled[*at]) {
            let missing =
                format!("a sample lacks {:?}, which others of its batch have", self.member);
            return Err(Error::invalid(missing).with("name", name(at)));
        }
        let content = match self.values {
            Values::Blobs(blobs) => {
                let kept = blobs.into_iter().zip(keep).filter(|(_, keep)| **keep);
                Content::Blobs(kept.map(|(blob, _)| blob).collect())
            }
            Values::Arrays { layout, whole, parts } => {
                drop(parts);
                let lost = |_| Error::new(Kind::Internal, "a thread still writes to a batch");
                let block = compact(whole.join().map_err(lost)?, keep)?;
                Content::Arrays { layout, block }
            }
        };
        Ok(Column { field: self.field, member: self.member, content })
    }
}

/// Moves the arrays that are kept together, where some are not.
fn compact(mut block: Block, keep: &[bool]) -> Result<Block> {
    let kept = keep.iter().filter(|keep| **keep).count();
    if kept == keep.len() || keep.is_empty() {
        return Ok(block);
    }
    let each = block.len() / keep.len();
    if let Some(bytes) = block.as_mut() {
        for (to, (from, _)) in keep.iter().enumerate().filter(|(_, keep)| **keep).enumerate() {
            bytes.copy_within(from * each..(from + 1) * each, to * each);
        }
    }
    block.narrow(0..kept * each)
}

/// Where one sample of a batch goes.
pub struct Slot<'a> {
    making: &'a Making,
    at: usize,
    field: usize,
    held: Vec<(usize, String, Part)>,
}

impl Slot<'_> {
    /// What comes next belongs to this field.
    pub fn enter(&mut self, field: usize) {
        self.field = field;
    }
}

impl Place for Slot<'_> {
    fn array(&mut self, member: &str, layout: &Layout) -> Result<&mut [u8]> {
        let part = self.making.take(self.field, member, layout, self.at)?;
        self.held.push((self.field, member.to_owned(), part));
        let memory = self.held.last_mut().and_then(|(.., part)| part.as_mut());
        memory.ok_or_else(|| Error::new(Kind::Internal, "a batch can't be written to"))
    }

    fn bytes(&mut self, member: &str, bytes: &[u8]) -> Result<()> {
        self.making.keep_bytes(self.field, member, bytes, self.at)
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        for (field, member, part) in self.held.drain(..) {
            self.making.put_back(part, (field, &member), self.at);
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::dtype::Dtype;

    fn write(making: &Making, at: usize, value: u8, len: usize) -> Result<()> {
        let layout = Layout::new(Dtype::U8, [len]);
        making.slot(at).array("", &layout)?.fill(value);
        Ok(())
    }

    fn named(at: usize) -> String {
        format!("sample {at}")
    }

    fn bytes(column: &Column) -> &[u8] {
        match &column.content {
            Content::Arrays { block, .. } => block,
            Content::Blobs(_) => panic!("bytes"),
        }
    }

    #[test]
    fn samples_written_by_many_threads_lie_in_order() {
        let making = Making::new(4);
        std::thread::scope(|scope| {
            for at in 0..4 {
                let making = &making;
                scope.spawn(move || write(making, at, at as u8, 3).unwrap());
            }
        });
        let columns = making.finish(&[true; 4], &named).unwrap();
        assert_eq!(bytes(&columns[0]), [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]);
    }

    #[test]
    fn samples_left_out_leave_no_gap() {
        let making = Making::new(4);
        for at in [0, 2, 3] {
            write(&making, at, at as u8, 2).unwrap();
        }
        let columns = making.finish(&[true, false, true, true], &named).unwrap();
        assert_eq!(bytes(&columns[0]), [0, 0, 2, 2, 3, 3]);
    }

    #[test]
    fn a_slot_can_be_written_again_after_a_failure() {
        let making = Making::new(1);
        write(&making, 0, 7, 2).unwrap();
        making.forget(0);
        write(&making, 0, 8, 2).unwrap();
        assert_eq!(bytes(&making.finish(&[true], &named).unwrap()[0]), [8, 8]);
    }

    #[test]
    fn arrays_that_differ_are_an_error_that_says_what_to_do() {
        let making = Making::new(2);
        write(&making, 0, 1, 2).unwrap();
        let error = write(&making, 1, 1, 3).unwrap_err().to_string();
        assert!(error.contains("U8[3]") && error.contains("U8[2]"), "{error}");
        assert!(error.contains("RandomResizedCrop"), "{error}");
    }

    #[test]
    fn a_member_that_one_sample_lacks_is_an_error() {
        let making = Making::new(2);
        write(&making, 0, 1, 2).unwrap();
        let error = making.finish(&[true, true], &named).unwrap_err();
        let told = error.to_string();
        assert!(told.contains("lacks") && told.contains("sample 1"), "{error}");
    }

    #[test]
    fn a_member_that_only_samples_left_out_had_is_left_out_with_them() {
        let making = Making::new(2);
        making.slot(0).bytes("odd", b"1").unwrap();
        making.forget(0);
        making.slot(1).bytes("", b"2").unwrap();
        let columns = making.finish(&[false, true], &named).unwrap();
        let members: Vec<_> = columns.iter().map(|column| &*column.member).collect();
        assert_eq!(members, [""]);
    }

    #[test]
    fn columns_stand_in_the_order_of_their_fields_whoever_was_first() {
        let making = Making::new(1);
        let mut slot = making.slot(0);
        for (field, member) in [(1, "b"), (0, ""), (1, "a")] {
            slot.enter(field);
            slot.bytes(member, member.as_bytes()).unwrap();
        }
        drop(slot);
        let columns = making.finish(&[true], &named).unwrap();
        let keys: Vec<_> = columns.iter().map(|c| (c.field, &*c.member)).collect();
        assert_eq!(keys, [(0, ""), (1, "a"), (1, "b")]);
    }
}
