//! The invariants of the source tree, kept by reading it (ARCHITECTURE.md says why they hold).
//!
//! 1. A path imports grounds, never another path; a ground never imports a path.
//! 2. `plan`, and the crate that plans are held against, import nothing that does I/O, waits or reads a clock.
//! 3. `unsafe` stands only where it must.
//! 4. The core depends on nothing from Python's world.
//! 5. The tree in ARCHITECTURE.md names every module, and every ground is used.
//!
//! [`source`] turns a file into the paths and words of its code, [`rules`] judges them, [`map`] judges
//! the tree. The rules are tested on made-up files beside them, so that they are known to catch what they
//! forbid.

mod map;
mod rules;
mod source;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use rules::{Exports, Violation};

/// Everything with Rust code in it, seen from the root of the repository.
const SCANNED: [&str; 4] = ["crates", "python", "examples", "fuzz"];
const CORE_MANIFEST: &str = "crates/tensorferry/Cargo.toml";
const CORE_ROOT: &str = "crates/tensorferry/src/lib.rs";
/// The modules of the package and of its benchmarks are on the map too.
const PACKAGE: [&str; 3] = ["python/src", "python/tensorferry", "benches/tensorferry_bench"];

#[test]
fn the_source_tree_keeps_its_invariants() {
    let root = root();
    let exports = Exports::of(&fs::read_to_string(root.join(CORE_ROOT)).unwrap());
    let manifest = fs::read_to_string(root.join(CORE_MANIFEST)).unwrap();
    let mut violations = rules::check_manifest(CORE_MANIFEST, &manifest);
    let files = files_below(&root, &SCANNED, "rs");
    for file in &files {
        let name = file.strip_prefix(&root).unwrap().to_str().unwrap();
        violations.extend(rules::check(name, &fs::read_to_string(file).unwrap(), &exports));
    }
    // A directory that moved must not make this test pass over nothing.
    assert!(files.len() > 20, "only {} files found under {}", files.len(), root.display());
    assert!(violations.is_empty(), "{}", report(&violations));
}

fn report(violations: &[Violation]) -> String {
    let lines: Vec<_> = violations.iter().map(ToString::to_string).collect();
    format!("{} broken invariants:\n\n{}\n", lines.len(), lines.join("\n"))
}

#[test]
fn the_tree_in_architecture_names_every_module_and_nothing_else() {
    let root = root();
    let mut tops: Vec<String> = fs::read_dir(root.join("crates"))
        .unwrap()
        .map(|entry| format!("crates/{}/src", entry.unwrap().file_name().to_str().unwrap()))
        .filter(|directory| root.join(directory).is_dir())
        .collect();
    tops.extend(PACKAGE.map(str::to_owned));
    tops.sort();
    let seen: Vec<&str> = tops.iter().map(String::as_str).collect();
    let files: BTreeSet<String> = ["rs", "py"]
        .into_iter()
        .flat_map(|extension| files_below(&root, &seen, extension))
        .map(|file| file.strip_prefix(&root).unwrap().to_str().unwrap().to_owned())
        .collect();
    let wrong =
        map::check(&fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap(), &files, &tops);
    assert!(wrong.is_empty(), "the map is not the land:\n\n{}\n", wrong.join("\n"));
}

#[test]
fn every_ground_is_used_by_a_path_or_the_binding() {
    let root = root();
    let texts: Vec<(String, String)> =
        files_below(&root, &["crates/tensorferry/src", "python/src"], "rs")
            .iter()
            .map(|file| {
                let name = file.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
                (name, fs::read_to_string(file).unwrap())
            })
            .collect();
    let modules = rules::modules(&fs::read_to_string(root.join(CORE_ROOT)).unwrap());
    assert!(modules.len() > 5, "only {modules:?} in {CORE_ROOT}");
    let unused = rules::unused(&modules, &texts);
    assert_eq!(
        unused, [""; 0],
        "grounds that no path and no binding names: use them or remove them"
    );
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn files_below(root: &Path, directories: &[&str], extension: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut open: Vec<PathBuf> = directories.iter().map(|name| root.join(name)).collect();
    while let Some(directory) = open.pop() {
        // Not all of them exist at all times.
        for entry in fs::read_dir(directory).into_iter().flatten() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                open.push(path);
            } else if path.extension().is_some_and(|own| own == extension) {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}
