#![no_main]

#[path = "../bodies/tar_index.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
