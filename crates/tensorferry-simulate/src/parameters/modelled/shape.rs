//! Networks by name: transformers, as they were published.

use tensorferry::{Error, Result};

use super::layers::BYTES;

/// A transformer: a table of tokens and positions, then equal blocks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shape {
    /// As users write it.
    pub name: &'static str,
    /// Blocks.
    pub blocks: u64,
    /// Values of a token.
    pub hidden: u64,
    /// Rows of the table of tokens.
    pub vocabulary: u64,
    /// Rows of the table of positions.
    pub positions: u64,
    /// Tokens of a sequence.
    pub sequence: u64,
    /// Whether backward computes each block's forward again, so that only its input is kept.
    pub recomputes: bool,
}

const fn bert(name: &'static str, blocks: u64, hidden: u64, vocabulary: u64) -> Shape {
    let (positions, sequence, recomputes) = (512, 512, false);
    Shape { name, blocks, hidden, vocabulary, positions, sequence, recomputes }
}

/// Hidden sizes and vocabularies from the range that the paper gives for its transformers.
const fn large(name: &'static str, blocks: u64, hidden: u64, vocabulary: u64) -> Shape {
    let (positions, sequence, recomputes) = (1024, 1024, true);
    Shape { name, blocks, hidden, vocabulary, positions, sequence, recomputes }
}

impl Shape {
    /// Every network.
    pub const ALL: [Self; 11] = [
        bert("bert-base", 12, 768, 30_522),
        bert("roberta", 12, 768, 50_265),
        bert("bert-large", 24, 1024, 30_522),
        Self { positions: 1024, sequence: 1024, ..bert("gpt2-medium", 24, 1024, 50_257) },
        large("transformer-0.7b", 12, 2048, 32_768),
        large("transformer-1b", 18, 2048, 32_768),
        large("transformer-1.3b", 24, 2048, 50_257),
        large("transformer-2.4b", 28, 2560, 65_536),
        large("transformer-3.6b", 30, 3072, 65_536),
        large("transformer-4.3b", 35, 3072, 98_304),
        large("transformer-6.7b", 32, 4096, 65_536),
    ];

    /// The network of that name; an error lists those there are.
    pub fn named(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|shape| shape.name == name).ok_or_else(|| {
            let known = Self::ALL.map(|shape| shape.name).join(", ");
            Error::invalid(format!("no network {name:?}; choose one of {known}"))
        })
    }

    /// Attention heads, of 64 values each.
    pub(super) const fn heads(&self) -> u64 {
        self.hidden / 64
    }

    /// Activations: of every block, or the inputs of all blocks and everything of one. 34 values of 2 bytes for
    /// each token and hidden value, and 5 for each pair of tokens and head, is the usual count; here they have
    /// 4 bytes.
    pub(super) fn work_bytes(&self, batch: u64) -> u64 {
        let tokens = batch * self.sequence;
        let values = 17 * self.hidden * tokens + 5 * self.heads() * self.sequence * tokens / 2;
        let inputs = self.hidden * tokens * self.blocks;
        BYTES * if self.recomputes { inputs + values } else { values * self.blocks }
    }
}
