#![no_main]

#[path = "../bodies/dictionary_from_json.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
