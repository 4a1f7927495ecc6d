//! Which tool moves an object to or from a file.
//!
//! A *tool* is one way to do it: direct or buffered I/O, a mapping, torch's or numpy's own format.
//! Which is fastest depends on the size, on whether the bytes must be durable or are cached, and on
//! what else the machine does, so it is measured while training runs and decided for each operation.
//!
//! ```text
//!   Save, Load ──► Dictionary ──► Tool ──► the caller moves the bytes and times it
//!                      ▲                                     │
//!                      └───────────── Observed ◄─────────────┘
//! ```
//!
//! | what | file |
//! |---|---|
//! | tools, formats and sets of tools | `tool.rs` |
//! | what is asked: goal, situation, save, load; what is told: an observation | `ask.rs` |
//! | sizes in half octaves | `class.rs` |
//! | the published algorithm, step by step | `paper.rs` |
//! | ours: a rule for each situation, and a short memory | `rule/` |
//! | the user's own choice by size | `own.rs` |
//! | one face over all of them, kept as JSON | `dictionary/` |
//! | what was done, as data and as a table | `report.rs` |
//! | policies compared over a recorded trace, beside oracles | `simulate/` |
//!
//! # Example
//!
//! ```
//! use tensorferry::plan::checkpoint::{
//!     Dictionary, Explore, Goal, Observed, Reading, Save, Situation, Tools, Writing,
//! };
//!
//! # fn main() -> tensorferry::Result<()> {
//! let mut dictionary = Dictionary::aware(Explore::Rule, Goal::Write);
//! let save = Save {
//!     size: 64 << 20,
//!     writing: Writing::Durable,
//!     reading: Reading::Cold,
//!     eligible: Tools::ALL,
//! };
//! let tool = dictionary.choose_write(&save)?;
//! // ... the caller writes with that tool, and times it ...
//! dictionary.record(&Observed {
//!     situation: Situation::Durable,
//!     tool,
//!     size: save.size,
//!     seconds: 0.04,
//!     cpu_seconds: 0.004,
//! })?;
//! println!("{}", dictionary.report());
//! # Ok(())
//! # }
//! ```

mod ask;
mod class;
mod dictionary;
mod own;
pub mod paper;
mod report;
pub mod rule;
mod tables;
mod tool;

pub use ask::{Direction, Goal, Load, Observed, Reading, Save, Situation, Writing};
pub use class::SizeClass;
pub use dictionary::{Dictionary, Explore, VERSION};
pub use own::Own;
pub use report::{Report, Row, Used};
pub use tables::{Entry, Table, Tables};
pub use tool::{ADDED_MAX, Added, Format, NAME_BYTES_MAX, Tool, Tools};
