//! Plans replayed in a cluster that does not exist.
//!
//! | what | module |
//! |---|---|
//! | caches of any number of nodes, over a run of some epochs | [`cache`] |

pub mod cache;
