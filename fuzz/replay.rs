//! Runs a fuzz target's body without the fuzzer: on its seeds and on mutations of them.
//!
//! An ordinary test includes this and the bodies, so that `make test` goes through what the fuzzer
//! once found interesting, on every machine and in the same order every time.

use std::path::Path;

use tensorferry::random::SplitMix64;

/// Runs `body` on each file of the target's corpus, and on `mutations` mutations of each.
pub fn replay(target: &str, mutations: usize, body: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let entries = std::fs::read_dir(&folder).expect("a folder of seeds");
    let mut files: Vec<_> = entries.map(|entry| entry.expect("a seed").path()).collect();
    // The order in which a directory lists its files is no one's promise.
    files.sort();
    assert!(!files.is_empty(), "{} is empty", folder.display());
    for file in files {
        let seed = std::fs::read(&file).expect("a seed");
        body(&seed);
        let mut random = SplitMix64::new(seed.len() as u64 + 1);
        for _ in 0..mutations {
            body(&mutated(&seed, &mut random));
        }
    }
}

/// One to four edits: a byte, a bit, a cut, a repetition or something appended.
fn mutated(seed: &[u8], random: &mut SplitMix64) -> Vec<u8> {
    let mut data = seed.to_vec();
    for _ in 0..=random.below(3) {
        let place = random.place(data.len());
        match random.below(5) {
            0 if !data.is_empty() => data[place] = random.draw() as u8,
            1 if !data.is_empty() => data[place] ^= 1 << random.below(8),
            2 => data.truncate(place),
            3 => data.extend_from_within(place..),
            _ => data.extend_from_slice(&random.draw().to_le_bytes()),
        }
    }
    data
}
