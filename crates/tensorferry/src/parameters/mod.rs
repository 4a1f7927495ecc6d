//! Parameters, gradients and optimizer state out of device memory (MemFerry).
//!
//! ```text
//!   host parameters ─► device, or in place ─► gradients ─► optimizer ─► host parameters
//!   └ shadow: as a plan says ────────────────────────────┘ └ moments, masters: memory or SSD
//! ```
//!
//! [`shadow`] moves parameters and gradients through an iteration as a plan of
//! [`plan::parameters`](crate::plan::parameters) says; the [`optimizer`] takes the steps.

pub mod optimizer;
pub mod shadow;
