//! Which element's state lies where in the file. Pure.
//!
//! Tensors come in batches and are laid one after the other, those with a master apart from those
//! without. Chunks of about equal size are cut over them, so that many small tensors cost as little
//! as a large one. In a chunk the first moments of all its elements come first, then the second,
//! then the masters.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::memory::ALIGNMENT;

/// Bytes of a chunk, at most: what is read, and written, at once.
pub const CHUNK_BYTES: usize = 2 << 20;

/// A tensor whose state is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// What errors call it.
    pub name: String,
    /// How many numbers.
    pub elements: u64,
    /// Whether it has a master, as halves do.
    pub master: bool,
}

impl Shape {
    fn planes(&self) -> usize {
        2 + usize::from(self.master)
    }
}

/// Where everything lies.
#[derive(Debug, Clone, Default)]
pub(super) struct Layout {
    pub tensors: Vec<Shape>,
    pub chunks: Vec<Chunk>,
    /// Bytes of the file.
    pub len: u64,
}

/// What is read at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chunk {
    pub offset: u64,
    pub elements: usize,
    pub planes: usize,
    pub segments: Vec<Segment>,
}

/// Elements of one tensor in a chunk, which lie behind those of the segments before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Segment {
    pub tensor: usize,
    /// Where in the chunk, in elements.
    pub at: usize,
    pub elements: usize,
}

impl Chunk {
    /// Bytes in the file: whole blocks.
    pub fn len(&self) -> usize {
        (self.elements * self.planes * 4).next_multiple_of(ALIGNMENT)
    }

    /// Where a segment's numbers are in the bytes of the chunk.
    pub fn range(&self, segment: &Segment, plane: usize) -> Range<usize> {
        let start = (plane * self.elements + segment.at) * 4;
        start..start + segment.elements * 4
    }
}

impl Layout {
    /// This layout with more tensors at the end.
    pub fn with(&self, tensors: Vec<Shape>) -> Self {
        let mut layout = self.clone();
        for planes in [2, 3] {
            let batch = tensors.iter().enumerate().filter(|(_, shape)| shape.planes() == planes);
            let batch = batch.map(|(at, shape)| (self.tensors.len() + at, shape.elements as usize));
            layout.cut(batch, planes);
        }
        layout.tensors.extend(tensors);
        layout
    }

    fn cut(&mut self, tensors: impl Iterator<Item = (usize, usize)>, planes: usize) {
        let most = CHUNK_BYTES / (planes * 4);
        let mut open = Chunk { offset: self.len, elements: 0, planes, segments: Vec::new() };
        for (tensor, mut left) in tensors {
            while left > 0 {
                let elements = left.min(most - open.elements);
                open.segments.push(Segment { tensor, at: open.elements, elements });
                open.elements += elements;
                left -= elements;
                if open.elements == most {
                    open = self.close(open);
                }
            }
        }
        if open.elements > 0 {
            self.close(open);
        }
    }

    /// Adds a chunk; the next one begins behind it.
    fn close(&mut self, chunk: Chunk) -> Chunk {
        self.len += chunk.len() as u64;
        let planes = chunk.planes;
        self.chunks.push(chunk);
        Chunk { offset: self.len, elements: 0, planes, segments: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shapes(sizes: &[(u64, bool)]) -> Vec<Shape> {
        let shape = |(elements, master): &(u64, bool)| Shape {
            name: "w".into(),
            elements: *elements,
            master: *master,
        };
        sizes.iter().map(shape).collect()
    }

    proptest! {
        #[test]
        fn every_element_has_one_place_and_chunks_fill_the_file(
            batches in prop::collection::vec(
                prop::collection::vec((0u64..600_000, any::<bool>()), 0..6), 0..3),
        ) {
            let mut layout = Layout::default();
            for batch in &batches {
                let before = layout.clone();
                layout = layout.with(shapes(batch));
                prop_assert_eq!(&layout.chunks[..before.chunks.len()], &before.chunks[..]);
            }
            let mut seen = vec![0; layout.tensors.len()];
            let mut end = 0;
            for chunk in &layout.chunks {
                prop_assert_eq!(chunk.offset, end);
                end += chunk.len() as u64;
                prop_assert!(chunk.len() <= CHUNK_BYTES && chunk.len() % ALIGNMENT == 0);
                let mut at = 0;
                for segment in &chunk.segments {
                    prop_assert_eq!(segment.at, at);
                    prop_assert!(segment.elements > 0);
                    at += segment.elements;
                    seen[segment.tensor] += segment.elements as u64;
                    prop_assert_eq!(layout.tensors[segment.tensor].planes(), chunk.planes);
                    prop_assert!(chunk.range(segment, chunk.planes - 1).end <= chunk.len());
                }
                prop_assert_eq!(at, chunk.elements);
            }
            prop_assert_eq!(end, layout.len);
            let sizes: Vec<u64> = layout.tensors.iter().map(|shape| shape.elements).collect();
            prop_assert_eq!(seen, sizes);
        }
    }

    #[test]
    fn a_thousand_small_tensors_are_one_chunk() {
        let layout = Layout::default().with(shapes(&[(100, false); 1000]));
        assert_eq!(layout.chunks.len(), 1);
    }
}
