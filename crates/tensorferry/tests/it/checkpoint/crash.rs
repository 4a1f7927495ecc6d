//! A process that saves is killed at any moment: the file is one of those it saved, whole.

use std::path::PathBuf;
use std::time::Duration;

use tensorferry::checkpoint::{Options, staging};
use tensorferry::io::{Config, open};

use super::{Content, READERS, Setting, WINDOW, files_in};
use crate::victim::start_and_kill;

const KILLS: usize = 200;

/// What is killed.
const CHILD: &str = "checkpoint::crash::saves_until_it_is_killed";

/// Where the child saves to.
const DIRECTORY: &str = "TENSORFERRY_TEST_DIRECTORY";

/// The two contents that take turns: one is written in windows, one at once.
fn contents() -> [Content; 2] {
    [Content::of_sizes(1, &[3 * WINDOW, 1000]), Content::of_sizes(2, &[WINDOW / 2 + 77, 30, 4096])]
}

#[test]
fn a_process_that_is_killed_at_any_moment_leaves_a_whole_file() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("model.ferry");
    let engine = open(&Config::default()).unwrap();
    let contents = contents();
    let (mut random, mut seen, mut drafts) = (0x5EED_u64, [0; 2], 0);
    for _ in 0..KILLS {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let moment = Duration::from_micros(1000 + (random >> 33) % 39_000);
        start_and_kill(CHILD, (DIRECTORY, directory.path()), "saved", moment);
        let len = std::fs::metadata(&path).unwrap().len();
        let which = usize::from(len < WINDOW);
        contents[which].assert_is_in(&engine, &path, READERS[1]);
        seen[which] += 1;
        let left = files_in(directory.path()).len() - 1;
        assert!(left <= 1, "the save before has removed the draft of the one before it");
        drafts += left;
    }
    eprintln!("{seen:?} of the two contents, {drafts} drafts left behind");
    assert!(drafts > 0, "not once in the middle of a save");
    let setting = Setting { engine, directory };
    contents[0].save(&setting, &Options::new(staging(0).unwrap())).unwrap();
    setting.assert_only(&contents[0]);
}

#[test]
#[ignore = "for a process of its own: a_process_that_is_killed_at_any_moment_leaves_a_whole_file"]
fn saves_until_it_is_killed() {
    let directory = PathBuf::from(std::env::var_os(DIRECTORY).expect("a directory to save to"));
    let engine = open(&Config::default()).unwrap();
    let (options, contents) = (Options::new(staging(0).unwrap()), contents());
    let path = directory.join("model.ferry");
    for round in 0.. {
        let content = &contents[round % 2];
        let (header, behind) = (content.header.clone(), round / 2 % 2 == 1);
        let source = &mut content.source();
        if behind {
            let saving =
                tensorferry::checkpoint::save_behind(&engine, &path, header, source, &options);
            saving.unwrap().wait().unwrap();
        } else {
            tensorferry::checkpoint::save(&engine, &path, header, source, &options).unwrap();
        }
        if round == 0 {
            assert_eq!(files_in(&directory), ["model.ferry"], "drafts of the dead are swept");
            println!("saved");
        }
    }
}
