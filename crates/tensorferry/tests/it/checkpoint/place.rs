//! Where a file is put, and what was there before.

use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::path::Path;

use tensorferry::checkpoint::{Checkpoint, save, save_behind};
use tensorferry::io::Config;
use tensorferry::{Error, Kind, Result};

use super::{Content, READERS, Setting, files_in, quick};

fn object(seed: u64) -> Content {
    Content::of_sizes(seed, &[5000, 10])
}

fn save_at(setting: &Setting, path: &Path, object: &Content) -> Result<()> {
    let header = object.header.clone();
    save(&setting.engine, path, header, &mut object.source(), &quick()).map(drop)
}

/// The error, from either way to save.
fn refused(setting: &Setting, path: &Path) -> Error {
    let (object, options) = (object(1), quick());
    let header = object.header.clone();
    let behind =
        save_behind(&setting.engine, path, header, &mut object.source(), &options).unwrap_err();
    let error = save_at(setting, path, &object).unwrap_err();
    assert_eq!(behind.to_string(), error.to_string());
    error
}

#[test]
fn a_place_where_nothing_can_be_saved_is_refused_with_the_reason() {
    let setting = Setting::new(&Config::default());
    let directory = setting.directory.path();
    fs::write(directory.join("file"), "x").unwrap();
    fs::create_dir(directory.join("folder")).unwrap();
    let shown = directory.canonicalize().unwrap();
    let no_directory =
        |name: &str| format!("can't save, {}/{name} is no directory", shown.display());
    for (name, kind, text) in [
        ("folder", Kind::InvalidInput, "can't save to this path, it is a directory".into()),
        (".", Kind::InvalidInput, "can't save to this path, it is a directory".into()),
        ("..", Kind::InvalidInput, "can't save to a path that has no file name".into()),
        ("missing/model", Kind::NotFound, no_directory("missing")),
        ("file/model", Kind::NotFound, no_directory("file")),
        (&"x".repeat(256), Kind::InvalidInput, "can't save to this path (file: ".into()),
    ] {
        let error = refused(&setting, &directory.join(name));
        assert_eq!(error.kind(), kind, "{name}: {error}");
        assert!(error.to_string().starts_with(&text), "{error}");
    }
    assert_eq!(files_in(directory), ["file", "folder"], "nothing was left behind");
}

#[test]
fn a_device_or_a_pipe_is_never_replaced() {
    let setting = Setting::new(&Config::default());
    let pipe = setting.directory.path().join("pipe");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    for path in ["/dev/null".as_ref(), pipe.as_path()] {
        let error = refused(&setting, path);
        assert_eq!(error.kind(), Kind::InvalidInput);
        let expected =
            format!("can't save to this path, it is no regular file (file: {})", path.display());
        assert_eq!(error.to_string(), expected);
    }
    assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
    assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
}

#[test]
fn a_file_or_a_directory_that_is_not_writable_is_respected() {
    let setting = Setting::new(&Config::default());
    let old = object(7);
    old.save(&setting, &quick()).unwrap();
    fs::set_permissions(setting.path(), fs::Permissions::from_mode(0o444)).unwrap();
    if fs::File::options().write(true).open(setting.path()).is_ok() {
        return eprintln!("this user may write everywhere; nothing can be refused to it");
    }
    let error = refused(&setting, &setting.path());
    assert_eq!(error.kind(), Kind::PermissionDenied);
    assert!(error.to_string().starts_with("can't save over this file, it is not writable"));
    let directory = setting.directory.path();
    fs::set_permissions(directory, fs::Permissions::from_mode(0o555)).unwrap();
    let error = refused(&setting, &directory.join("new"));
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(error.kind(), Kind::PermissionDenied, "{error}");
    setting.assert_only(&old);
}

#[test]
fn what_is_saved_over_keeps_its_permissions() {
    let setting = Setting::new(&Config::default());
    object(1).save(&setting, &quick()).unwrap();
    for mode in [0o600, 0o640, 0o666] {
        fs::set_permissions(setting.path(), fs::Permissions::from_mode(mode)).unwrap();
        object(2).save(&setting, &quick()).unwrap();
        assert_eq!(fs::metadata(setting.path()).unwrap().permissions().mode() & 0o7777, mode);
    }
}

#[test]
fn a_link_stays_a_link_and_what_it_leads_to_is_replaced_or_made() {
    let setting = Setting::new(&Config::default());
    let directory = setting.directory.path();
    fs::create_dir(directory.join("far")).unwrap();
    symlink("far/real", directory.join("link")).unwrap();
    symlink("link", directory.join("link to link")).unwrap();
    for (seed, name) in [(1, "link"), (2, "link"), (3, "link to link")] {
        save_at(&setting, &directory.join(name), &object(seed)).unwrap();
        assert!(fs::symlink_metadata(directory.join(name)).unwrap().is_symlink());
        object(seed).assert_is_in(&setting.engine, &directory.join("far/real"), READERS[1]);
        assert_eq!(files_in(&directory.join("far")), ["real"]);
    }
    assert_eq!(files_in(directory), ["far", "link", "link to link"]);
}

#[test]
fn a_name_as_long_as_they_get_is_no_problem() {
    let setting = Setting::new(&Config::default());
    let path = setting.directory.path().join("é".repeat(127));
    save_at(&setting, &path, &object(1)).unwrap();
    object(1).assert_is_in(&setting.engine, &path, READERS[0]);
}

#[test]
fn drafts_that_nobody_writes_are_removed_and_all_others_are_not() {
    let setting = Setting::new(&Config::default());
    let directory = setting.directory.path();
    let make = |name: &str| fs::File::create(directory.join(name)).unwrap();
    // Of this path, abandoned and in use; of others; and the user's own.
    make(".model.ferry.999999-0.draft");
    make(".model.ferry.7-12.draft");
    let used = make(".model.ferry.999999-1.draft");
    used.lock().unwrap();
    let others = [
        ".model.999999-0.draft",
        ".model.ferry.-.draft",
        ".model.ferry.1-2-3.draft",
        ".model.ferry.draft",
        ".model.ferry.my notes.draft",
        ".other.ferry.999999-0.draft",
        "model.ferry.999999-0.draft",
    ];
    drop(others.map(make));
    object(1).save(&setting, &quick()).unwrap();
    let mut expected = [&others[..], &[".model.ferry.999999-1.draft", "model.ferry"]].concat();
    expected.sort_unstable();
    assert_eq!(files_in(directory), expected);
}

#[test]
fn a_draft_of_the_same_name_is_stepped_over() {
    let setting = Setting::new(&Config::default());
    let directory = setting.directory.path();
    // As a process of this number on another machine would hold them.
    let names = (0..20).map(|number| format!(".model.ferry.{}-{number}.draft", std::process::id()));
    let held: Vec<_> = names.map(|name| fs::File::create(directory.join(name)).unwrap()).collect();
    held.iter().for_each(|file| file.lock().unwrap());
    object(1).save(&setting, &quick()).unwrap();
    assert_eq!(files_in(directory).len(), held.len() + 1);
    let path = setting.path();
    object(1).assert_is(&Checkpoint::open(&setting.engine, &path, None, true).unwrap());
}

#[test]
fn relative_paths_and_other_spellings_are_one_place() {
    let setting = Setting::new(&Config::default());
    let directory = setting.directory.path();
    let name = directory.file_name().unwrap();
    let spelled = directory.join("..").join(name).join(".").join("model.ferry");
    save_at(&setting, &spelled, &object(1)).unwrap();
    setting.assert_only(&object(1));
}
