//! The data path, with sources and recipes made up for the purpose.

mod cache;
mod disk;
mod loader;
mod made_up;
