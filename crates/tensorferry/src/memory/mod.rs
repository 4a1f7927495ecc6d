//! Memory: who may use how much of it (`budget`).

pub mod budget;
