//! Memory: who may use how much of it (`budget`), and where in a fixed range a block lies (`arena`).

pub mod arena;
pub mod budget;
