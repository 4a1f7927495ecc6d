//! Local samples are moved by the engine: counted, by its rules for what fails.

use std::sync::Arc;

use serde_json::json;
use tensorferry::Kind;
use tensorferry::data::batch::Content;
use tensorferry::data::cache::{self, DiskConfig};
use tensorferry::data::loader::{Config, Crew, Loader, Mode};
use tensorferry::data::recipe::{Chain, for_source};
use tensorferry::data::source::{Source, open};
use tensorferry::io::{self, Effect, Fault, Faults, On, Shared};
use tensorferry::metrics::Registry;
use tensorferry::plan::data::eviction::Policy;

use super::made_up::{in_order, taken};

/// Small ones, one that does not fill its blocks, and one that stays in its file.
const SIZES: [usize; 4] = [10, 4096, 150_001, (1 << 20) + 7];

fn content(at: usize) -> Vec<u8> {
    (0..SIZES[at % SIZES.len()]).map(|byte| (byte * 7 + byte / 256 + at) as u8).collect()
}

struct Setting {
    folder: tempfile::TempDir,
    metrics: Registry,
    faults: Faults,
    engine: Shared,
}

impl Setting {
    fn new(faults: Faults) -> Self {
        let metrics = Registry::new();
        let config = io::Config {
            metrics: metrics.clone(),
            faults: Some(faults.clone()),
            ..io::Config::default()
        };
        let engine = Shared::only(io::open(&config).unwrap());
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        for at in 0..8 {
            std::fs::write(folder.path().join(format!("{at}.bin")), content(at)).unwrap();
        }
        Self { folder, metrics, faults, engine }
    }

    fn source(&self) -> Arc<dyn Source> {
        let paths = format!("{}/*.bin", self.folder.path().display());
        let spec = serde_json::from_value(json!({"kind": "files", "paths": paths})).unwrap();
        open(&spec, &self.engine, &|_| ()).unwrap()
    }

    fn loader(&self, cache: cache::Config) -> Loader {
        let source = self.source();
        let recipes = for_source(&*source, &Chain::default()).unwrap();
        let crew = Crew::new(2, Mode::Auto).unwrap();
        Loader::new(source, recipes, Config { cache, ..Config::default() }, crew).unwrap()
    }

    fn counted(&self, op: &str, priority: &str) -> u64 {
        let name = format!("ferry_io_bytes_total{{op=\"{op}\",priority=\"{priority}\"}} ");
        let text = self.metrics.snapshot().to_prometheus();
        text.lines().find_map(|line| line.strip_prefix(&name)).map_or(0, |n| n.parse().unwrap())
    }
}

/// An epoch of samples that are as they were written.
fn check(loader: &Loader, epoch: u32) {
    let run = loader.begin(epoch).unwrap();
    for (at, batch) in in_order(8, 1).iter().enumerate() {
        run.submit(batch).unwrap();
        let batch = taken(&run);
        let Content::Blobs(blobs) = &batch.columns[0].content else { panic!("no bytes") };
        assert!(*blobs[0] == *content(at), "sample {at}");
    }
}

#[test]
fn every_byte_from_a_file_or_the_ssd_is_counted_by_its_priority() {
    let setting = Setting::new(Faults::new());
    let all: usize = (0..8).map(|at| content(at).len()).sum();
    check(&setting.loader(cache::Config::default()), 0);
    assert_eq!(setting.counted("read", "waiting"), all as u64);
    assert_eq!(setting.counted("write", "offload"), 0);

    let directory = setting.folder.path().to_owned();
    let engine = setting.engine.clone();
    let disk = Some(DiskConfig { engine, directory, bytes: 1 << 30, leave_bytes: 0 });
    let config = cache::Config { policy: Policy::Belady, disk, ..cache::Config::default() };
    let loader = setting.loader(config);
    let orders: Vec<Vec<u32>> = vec![(0..8).collect(); 4];
    loader.foresee(0, &orders).unwrap();
    check(&loader, 0);
    assert_eq!(setting.counted("write", "offload"), all as u64, "all of it went to the SSD");
    let before = setting.counted("read", "waiting");
    loader.foresee(1, &orders).unwrap();
    check(&loader, 1);
    assert_eq!(setting.counted("read", "waiting") - before, all as u64, "and came back");
    assert_eq!(loader.stats().disk_hits, 8);
}

#[test]
fn what_passes_is_tried_again_and_short_reads_go_on() {
    for seed in [1, 2, 3] {
        check(&Setting::new(Faults::chaos(seed)).loader(cache::Config::default()), 0);
    }
}

#[test]
fn a_disk_that_fails_fails_the_sample_by_its_name() {
    let setting = Setting::new(Faults::new());
    let loader = setting.loader(cache::Config::default());
    let run = loader.begin(0).unwrap();
    for at in 0..4 {
        setting.faults.add(Fault::new(On::Read, Effect::Fail(libc::EIO)));
        run.submit(&[at]).unwrap();
        let error = run.next(None).unwrap_err();
        assert_eq!(error.kind(), Kind::Io, "{error}");
        let told = error.to_string();
        let is_named = told.contains(&format!("/{at}.bin"));
        assert!(told.starts_with("can't read the file (") && is_named, "{told}");
        run.submit(&[at]).unwrap();
        assert_eq!(taken(&run).indices, [at], "the next one succeeds");
    }
}
