//! Plans replayed on machines that do not exist.
//!
//! | what | module |
//! |---|---|
//! | a training step whose activations go to disk and come back | [`activations`] |
//! | an iteration whose parameters are in host memory | [`parameters`] |
//! | caches of any number of nodes, over a run of some epochs | [`cache`] |

pub mod activations;
pub mod cache;
pub mod parameters;
