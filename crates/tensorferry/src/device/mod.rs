//! Accelerators: memory that host code can't touch, reached by copies that finish later.

pub mod link;
