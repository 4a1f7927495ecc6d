//! The tensorferry command.

fn main() {}
