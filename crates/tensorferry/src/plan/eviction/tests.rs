//! What every policy promises, and what Belady's reaches.
