//! The invariants of the source tree, kept by reading it (ARCHITECTURE.md says why they hold).
//!
//! 1. A path imports grounds, never another path; a ground never imports a path.
//! 2. `plan` imports nothing that does I/O, waits or reads a clock.
//! 3. `unsafe` stands only where it must.
//! 4. The core depends on nothing from Python's world.
//!
//! [`source`] turns a file into the paths and words of its code, [`rules`] judges them. The rules
//! are tested on made-up files beside them, so that they are known to catch what they forbid.

mod rules;
mod source;

use std::fs;
use std::path::{Path, PathBuf};

use rules::{Exports, Violation};

/// Everything with Rust code in it, seen from the root of the repository.
const SCANNED: [&str; 4] = ["crates", "python", "examples", "fuzz"];
const CORE_MANIFEST: &str = "crates/tensorferry/Cargo.toml";
const CORE_ROOT: &str = "crates/tensorferry/src/lib.rs";

#[test]
fn the_source_tree_keeps_its_invariants() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let exports = Exports::of(&fs::read_to_string(root.join(CORE_ROOT)).unwrap());
    let manifest = fs::read_to_string(root.join(CORE_MANIFEST)).unwrap();
    let mut violations = rules::check_manifest(CORE_MANIFEST, &manifest);
    let files = rust_files(&root);
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

fn rust_files(root: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut open: Vec<PathBuf> = SCANNED.iter().map(|name| root.join(name)).collect();
    while let Some(directory) = open.pop() {
        // Not all of them exist at all times.
        for entry in fs::read_dir(directory).into_iter().flatten() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}
