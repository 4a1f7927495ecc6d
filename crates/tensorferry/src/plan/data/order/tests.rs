//! Against what torch gave.

use serde::Deserialize;

use super::{Distributed, Mt19937, randperm};

#[derive(Deserialize)]
struct Recorded {
    words: Vec<Words>,
    permutations: Vec<Permutation>,
    shares: Vec<Share>,
}

/// The first draws after a seed: lower 31 bits of 32, then lower 63 of 64.
#[derive(Deserialize)]
struct Words {
    seed: u64,
    first: Vec<u32>,
    count: usize,
    checksum: u64,
    wide: Vec<u64>,
}

#[derive(Deserialize)]
struct Permutation {
    n: u64,
    seed: u64,
    /// The whole order, or its beginning.
    first: Vec<u32>,
    checksum: u64,
    /// A second one of the same generator.
    next_checksum: u64,
}

#[derive(Deserialize)]
struct Share {
    len: u64,
    world_size: u32,
    rank: u32,
    seed: u64,
    shuffle: bool,
    drop_last: bool,
    epoch: u64,
    first: Vec<u32>,
    count: usize,
    checksum: u64,
}

fn recorded() -> Recorded {
    serde_json::from_str(include_str!("../../../../tests/data/orders.json")).unwrap()
}

/// Tells orders apart: a polynomial over the numbers, modulo 2^64.
fn checksum(order: &[u32]) -> u64 {
    let step = |sum: u64, id: &u32| {
        sum.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(u64::from(*id) + 1)
    };
    order.iter().fold(0, step)
}

#[test]
fn words_are_those_of_torch() {
    let words = recorded().words;
    assert!(words.len() >= 4);
    for Words { seed, first, count, checksum: expected, wide } in words {
        let mut generator = Mt19937::new(seed);
        let drawn: Vec<_> = (0..count).map(|_| generator.next_u32() & (u32::MAX >> 1)).collect();
        assert_eq!(drawn[..first.len()], first, "seed {seed}");
        assert_eq!(checksum(&drawn), expected, "seed {seed}");
        let drawn: Vec<_> = wide.iter().map(|_| generator.next_u64() & (u64::MAX >> 1)).collect();
        assert_eq!(drawn, wide, "seed {seed}");
    }
}

#[test]
fn permutations_are_those_of_torch() {
    let permutations = recorded().permutations;
    assert!(permutations.len() >= 40);
    for Permutation { n, seed, first, checksum: expected, next_checksum } in permutations {
        let mut generator = Mt19937::new(seed);
        let order = randperm(n, &mut generator).unwrap();
        assert_eq!(order[..first.len()], first, "n {n}, seed {seed}");
        assert_eq!((order.len() as u64, checksum(&order)), (n, expected), "n {n}, seed {seed}");
        let next = randperm(n, &mut generator).unwrap();
        assert_eq!(checksum(&next), next_checksum, "second of n {n}, seed {seed}");
    }
}

#[test]
fn shares_are_those_of_the_distributed_sampler() {
    let shares = recorded().shares;
    assert!(shares.len() >= 200);
    for share in shares {
        let Share { len, world_size, rank, seed, shuffle, drop_last, epoch, .. } = share;
        let sampler = Distributed { len, world_size, rank, seed, shuffle, drop_last };
        let order = sampler.epoch(epoch).unwrap();
        assert_eq!(order[..share.first.len()], share.first, "{sampler:?}");
        assert_eq!((order.len(), checksum(&order)), (share.count, share.checksum), "{sampler:?}");
        assert_eq!(sampler.share().unwrap(), share.count as u64);
    }
}

#[test]
#[ignore = "takes 900 MB and ten seconds; torch's sequence was recorded with torch 2.13"]
fn a_permutation_of_more_than_two_hundred_million_is_that_of_torch() {
    let order = randperm(WIDE, &mut Mt19937::new(7)).unwrap();
    assert_eq!((order[..4].to_vec(), checksum(&order)), (WIDE_FIRST.to_vec(), WIDE_CHECKSUM));
}

const WIDE: u64 = 214_748_364;
const WIDE_FIRST: [u32; 4] = [93_268_064, 63_068_233, 165_770_247, 155_513_421];
const WIDE_CHECKSUM: u64 = 17_887_899_965_986_847_554;

#[test]
fn a_rank_outside_of_the_world_is_an_error() {
    let sampler =
        Distributed { len: 9, world_size: 4, rank: 4, seed: 0, shuffle: true, drop_last: false };
    let error = sampler.epoch(0).unwrap_err();
    assert_eq!(error.to_string(), "there is no rank 4 in a world of 4; ranks count from 0");
    let error = Distributed { len: 1 << 32, rank: 0, ..sampler }.epoch(0).unwrap_err();
    assert!(error.to_string().starts_with("4294967296 samples are more than"), "{error}");
    assert!(Distributed { len: 0, rank: 0, ..sampler }.epoch(0).unwrap().is_empty());
}
