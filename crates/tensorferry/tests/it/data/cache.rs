//! What is kept near comes from there, as much as can, and is the same.

use std::path::Path;
use std::sync::Arc;

use tensorferry::Kind;
use tensorferry::data::StoredFile;
use tensorferry::data::cache::{self, DiskConfig};
use tensorferry::data::loader::{Config, Loader, Stats};
use tensorferry::data::sample::Raw;
use tensorferry::plan::data::eviction::{Moment, Policy};
use tensorferry::plan::data::order::Distributed;

use super::super::engine::shared;
use super::made_up::{Numbers, epoch, loader, numbers};

const SAMPLES: u32 = 400;
const BYTES: usize = 1000;

fn on_disk() -> DiskConfig {
    let directory = std::env::temp_dir();
    DiskConfig { engine: shared(), directory, bytes: 1 << 20, leave_bytes: 0 }
}

fn cached(policy: Policy, memory: u64, disk: Option<u64>) -> Loader {
    let directory = std::env::temp_dir();
    let disk = disk.map(|bytes| DiskConfig { directory, bytes, ..on_disk() });
    let cache = cache::Config { policy, memory_bytes: memory, disk, decoded: false };
    let source = Numbers { size: BYTES, ..numbers(SAMPLES as usize) };
    loader(source, 3, Config { cache, load_ahead_bytes: 20_000, ..Config::default() })
}

fn order(epoch: u32, world_size: u32, rank: u32) -> Vec<u32> {
    let distributed = Distributed {
        len: u64::from(SAMPLES),
        world_size,
        rank,
        seed: 0,
        shuffle: true,
        drop_last: false,
    };
    distributed.epoch(u64::from(epoch)).unwrap()
}

/// The values of an epoch, and what was counted in it.
fn train(loader: &Loader, at: u32, (world, rank): (u32, u32)) -> (Vec<Vec<u64>>, Stats) {
    let before = loader.stats();
    let orders: Vec<_> = (at..at + 8).map(|epoch| order(epoch, world, rank)).collect();
    loader.foresee(at, &orders).unwrap();
    let batches: Vec<_> = orders[0].chunks(16).map(<[u32]>::to_vec).collect();
    let values = epoch(loader, at, &batches);
    let mut stats = loader.stats();
    stats.memory_hits -= before.memory_hits;
    stats.disk_hits -= before.disk_hits;
    stats.backend_bytes -= before.backend_bytes;
    (values, stats)
}

#[test]
fn half_of_the_dataset_in_memory_halves_the_bytes_of_every_later_epoch() {
    let all = u64::from(SAMPLES) * BYTES as u64;
    let loader = cached(Policy::Belady, all / 2, None);
    let plain = cached(Policy::Belady, 0, None);
    for at in 0..4 {
        let (values, stats) = train(&loader, at, (1, 0));
        assert_eq!(values, train(&plain, at, (1, 0)).0);
        let expected = if at == 0 { all } else { all / 2 };
        assert_eq!(stats.backend_bytes, expected, "epoch {at}");
    }
    assert_eq!(loader.cache().used().0, all / 2);
}

#[test]
fn what_does_not_fit_in_memory_goes_to_the_ssd_and_comes_back_the_same() {
    let all = u64::from(SAMPLES) * BYTES as u64;
    // A sample takes a block of 4096 bytes there.
    let loader = cached(Policy::Belady, all / 4, Some(all * 4));
    let plain = cached(Policy::Belady, 0, None);
    for at in 0..3 {
        let (values, stats) = train(&loader, at, (1, 0));
        assert_eq!(values, train(&plain, at, (1, 0)).0);
        if at > 0 {
            assert_eq!((stats.backend_bytes, stats.memory_hits, stats.disk_hits), (0, 100, 300));
        }
    }
}

#[test]
fn a_sample_that_comes_from_the_ssd_to_memory_leaves_the_ssd() {
    let all = u64::from(SAMPLES) * BYTES as u64;
    for policy in [Policy::Lru, Policy::Lobster] {
        let loader = cached(policy, all / 4, Some(all * 4));
        for at in 0..3 {
            train(&loader, at, (1, 0));
            let (memory, disk) = loader.cache().used();
            assert!(memory + disk <= all, "{policy}: {memory} in memory and {disk} on the SSD");
        }
    }
}

#[test]
fn a_sample_that_can_not_be_read_ahead_for_the_cache_does_not_fail_there() {
    let cache = cache::Config { memory_bytes: 1 << 20, ..cache::Config::default() };
    let cache = cache::Cache::new(10, &cache).unwrap();
    let file = StoredFile::open(shared().engine().unwrap(), Path::new("/dev/null"));
    let file = Arc::new(file.unwrap());
    let now = Moment { epoch: 0, position: 0 };
    cache.keep(3, &Raw::stored(file, 0, 100), now);
    assert_eq!(cache.used(), (0, 0));
    assert!(cache.find(3, now).is_none());
}

#[test]
fn every_policy_keeps_samples_although_nothing_is_known_of_what_comes() {
    let all = u64::from(SAMPLES) * BYTES as u64;
    for policy in Policy::ALL {
        let loader = cached(policy, all, None);
        for at in 0..2 {
            loader.foresee(at, &[]).unwrap();
            let batches: Vec<_> = order(at, 1, 0).chunks(16).map(<[u32]>::to_vec).collect();
            epoch(&loader, at, &batches);
        }
        assert_eq!(loader.stats().memory_hits, u64::from(SAMPLES), "{policy}");
    }
}

#[test]
fn no_policy_changes_what_comes_out_or_takes_more_than_its_limit() {
    let all = u64::from(SAMPLES) * BYTES as u64;
    let plain = cached(Policy::Belady, 0, None);
    let expected: Vec<_> = (0..3).map(|at| train(&plain, at, (1, 0)).0).collect();
    for policy in Policy::ALL {
        let loader = cached(policy, all / 3, Some(all / 3));
        for at in 0..3 {
            assert_eq!(train(&loader, at, (1, 0)).0, expected[at as usize], "{policy}");
            let (memory, disk) = loader.cache().used();
            assert!(memory <= all / 3 && disk <= all / 3, "{policy}");
        }
    }
}

#[test]
fn a_cache_directory_that_can_not_be_used_is_an_error_that_says_so() {
    let directory = "/nowhere/at/all".into();
    let disk = Some(DiskConfig { directory, ..on_disk() });
    let cache = cache::Config { disk, ..cache::Config::default() };
    let error = cache::Cache::new(10, &cache).err().unwrap();
    assert_eq!(error.kind(), Kind::NotFound);
    assert!(error.to_string().contains("cache_dir"), "{error}");
}

/// Half of the free disk was taken by each rank and each loader, as if there were no other.
#[test]
fn what_is_left_to_others_on_the_ssd_is_not_taken_whatever_the_limit() {
    let used = |leave_bytes| {
        let directory = std::env::temp_dir();
        let disk = Some(DiskConfig { directory, leave_bytes, ..on_disk() });
        let cache = cache::Config { disk, ..cache::Config::default() };
        let cache = cache::Cache::new(10, &cache).unwrap();
        let now = Moment { epoch: 0, position: 0 };
        cache.keep(3, &Raw::single(vec![7; 5000]), now);
        assert_eq!(cache.used().1 > 0, cache.find(3, now).is_some());
        cache.used().1
    };
    assert_eq!(used(1), 5000);
    assert_eq!(used(u64::MAX), 0);
}
