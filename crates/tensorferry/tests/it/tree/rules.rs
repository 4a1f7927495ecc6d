//! What a file may name, by where it lies.

use std::collections::HashMap;
use std::fmt;

use super::source::{self, Named, Token};

/// The ways data takes. None of them knows another.
const PATHS: [&str; 5] = ["checkpoint", "data", "pool", "activations", "parameters"];

/// What `plan` may use of the crate: plain data and errors.
const PURE: [&str; 9] =
    ["plan", "error", "random", "size", "dtype", "Error", "Kind", "Result", "Size"];
/// What `plan` may not use of the standard library: it does I/O, waits or reads a clock.
const IMPURE_STD: [&[&str]; 17] = [
    &["fs"],
    &["net"],
    &["io"],
    &["os"],
    &["thread"],
    &["process"],
    &["env"],
    &["time", "Instant"],
    &["time", "SystemTime"],
    &["time", "UNIX_EPOCH"],
    &["time", "*"],
    &["sync", "Mutex"],
    &["sync", "RwLock"],
    &["sync", "Condvar"],
    &["sync", "Barrier"],
    &["sync", "mpsc"],
    &["sync", "*"],
];
const IMPURE_CRATES: [&str; 5] = ["rustix", "io_uring", "libc", "tempfile", "loom"];
const IMPURE_MACROS: [&str; 5] = ["print", "println", "eprint", "eprintln", "dbg"];

/// Where `unsafe` may stand, as beginnings of file names.
const UNSAFE_ALLOWED: [&str; 7] = [
    "crates/tensorferry/src/memory/",
    "crates/tensorferry/src/memory.rs",
    "crates/tensorferry/src/io/ring",
    "crates/tensorferry/src/device/cuda",
    "crates/tensorferry/src/codec/",
    "crates/tensorferry/src/codec.rs",
    "python/src/",
];

/// Crates that would tie the core to Python.
const FOREIGN: [&str; 6] = ["pyo3", "numpy", "dlpark", "torch", "torch-sys", "tch"];

const CORE: &str = "crates/tensorferry/src/";
/// What plans are held against is as pure as they are.
const SIMULATE: &str = "crates/tensorferry-simulate/src/";

/// A broken rule, at its place.
#[derive(Debug, PartialEq, Eq)]
pub struct Violation {
    file: String,
    line: usize,
    /// What is wrong.
    what: String,
    /// What to do instead.
    instead: &'static str,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}\n    {}", self.file, self.line, self.what, self.instead)
    }
}

/// The names that the crate's root gives to items of a path: `crate::save` is `checkpoint` too.
#[derive(Debug, Default)]
pub struct Exports(HashMap<String, &'static str>);

impl Exports {
    pub fn of(root: &str) -> Self {
        let mut exports = HashMap::new();
        for named in source::paths(&source::tokens(root)) {
            let segments =
                named.segments.iter().skip_while(|name| matches!(name.as_str(), "crate" | "self"));
            let segments: Vec<_> = segments.collect();
            let path =
                PATHS.into_iter().find(|path| segments.first().is_some_and(|name| name == path));
            if let (Some(path), Some(last)) = (path, segments.last()) {
                exports.insert(named.alias.unwrap_or_else(|| (*last).clone()), path);
            }
        }
        Self(exports)
    }

    /// The path that `crate::name` leads to, if it leads to one.
    fn path(&self, name: &str) -> Option<&'static str> {
        PATHS.into_iter().find(|path| *path == name).or_else(|| self.0.get(name).copied())
    }
}

/// Every broken rule in one Rust file; `file` is seen from the root of the repository.
pub fn check(file: &str, text: &str, exports: &Exports) -> Vec<Violation> {
    let tokens = source::tokens(text);
    let mut found = check_unsafe(file, &tokens);
    if file.starts_with(SIMULATE) {
        let outside = |named: &Named| !matches!(&*named.segments[0], "crate" | "self" | "super");
        for named in source::paths(&tokens).iter().filter(|named| outside(named)) {
            let broken = check_pure("the simulator", &named.segments);
            found.extend(broken.map(|(what, instead)| violation(file, named.line, what, instead)));
        }
        found.extend(check_macros("the simulator", file, &tokens));
    }
    let Some(inner) = file.strip_prefix(CORE).filter(|inner| *inner != "lib.rs") else {
        return found;
    };
    let module = module_of(inner);
    for named in source::paths(&tokens) {
        let absolute = absolute(&named, &module);
        let broken = check_import(&module, &absolute, exports);
        let broken = broken
            .or_else(|| (module[0] == "plan").then(|| check_pure("`plan`", &absolute)).flatten());
        found.extend(broken.map(|(what, instead)| violation(file, named.line, what, instead)));
    }
    if module[0] == "plan" {
        found.extend(check_macros("`plan`", file, &tokens));
    }
    found
}

fn violation(file: &str, line: usize, what: String, instead: &'static str) -> Violation {
    Violation { file: file.to_owned(), line, what, instead }
}

/// `io/ring/mod.rs` and `io/ring.rs` are both the module `io::ring`.
fn module_of(inner: &str) -> Vec<String> {
    let parts = inner.trim_end_matches(".rs").split('/').filter(|part| *part != "mod");
    parts.map(str::to_owned).collect()
}

/// The path from the crate's root or from another crate: `super` and `self` are resolved.
fn absolute(named: &Named, module: &[String]) -> Vec<String> {
    let ups = named.segments.iter().take_while(|name| *name == "super").count();
    let selves = usize::from(named.segments[0] == "self");
    if ups + selves == 0 {
        return named.segments.clone();
    }
    // The modules inside the file are left first, and their names are of no interest.
    let left = module.len() - ups.saturating_sub(named.depth).min(module.len());
    let mut absolute = vec!["crate".to_owned()];
    absolute.extend_from_slice(&module[..left]);
    absolute.extend_from_slice(&named.segments[ups + selves..]);
    absolute
}

type Broken = (String, &'static str);

fn check_import(module: &[String], absolute: &[String], exports: &Exports) -> Option<Broken> {
    let [root, name, ..] = absolute else { return None };
    // The crate's name works as `crate` does in doc examples and in macros.
    if root != "crate" && root != "tensorferry" {
        return None;
    }
    let own = PATHS.into_iter().find(|path| *path == module[0]);
    if name == "*" {
        let what = "imports everything of the crate".to_owned();
        return Some((what, "name what is needed, so that it can be checked"));
    }
    let path = exports.path(name).filter(|path| Some(*path) != own)?;
    Some(match own {
        Some(own) => (
            format!("the path `{own}` imports the path `{path}`"),
            "move what both need down into a ground, or pass it in through a trait",
        ),
        None => (
            format!("the ground `{}` imports the path `{path}`", module[0]),
            "grounds know no path: move the item down, or let the path call the ground",
        ),
    })
}

fn check_pure(who: &str, absolute: &[String]) -> Option<Broken> {
    const INSTEAD: &str =
        "plans are pure: measure in a profile, carry out in an engine, and pass plain data";
    let shown = absolute.join("::");
    let names: Vec<&str> = absolute.iter().map(String::as_str).collect();
    let impure = match names.as_slice() {
        ["crate" | "tensorferry", name, ..] => !PURE.contains(name),
        // The module itself is as good as all in it: `use std::time; time::Instant::now()`.
        ["std" | "core", "time" | "sync" | "*"] => true,
        ["std" | "core", rest @ ..] => IMPURE_STD.iter().any(|impure| rest.starts_with(impure)),
        [first, _, ..] => IMPURE_CRATES.contains(first),
        _ => false,
    };
    impure.then(|| (format!("{who} imports `{shown}`"), INSTEAD))
}

fn check_macros(who: &str, file: &str, tokens: &[Token]) -> Vec<Violation> {
    let called = tokens.windows(2).filter(|pair| pair[1].text == "!");
    let printing = called.filter(|pair| IMPURE_MACROS.contains(&pair[0].text.as_str()));
    printing
        .map(|pair| {
            let what = format!("{who} prints with `{}!`", pair[0].text);
            violation(file, pair[0].line, what, "plans are pure: return what should be shown")
        })
        .collect()
}

fn check_unsafe(file: &str, tokens: &[Token]) -> Vec<Violation> {
    if UNSAFE_ALLOWED.iter().any(|allowed| file.starts_with(allowed)) {
        return Vec::new();
    }
    let places = tokens.iter().filter(|token| token.text == "unsafe");
    places
        .map(|token| {
            let instead = "use a safe wrapper of `memory`, `io::ring`, `device::cuda` or `codec`";
            violation(file, token.line, "`unsafe` outside its places".to_owned(), instead)
        })
        .collect()
}

/// The modules of the crate's root that are no path: `pub mod io;` and `mod sync;` alike.
pub fn modules(root: &str) -> Vec<String> {
    let tokens = source::tokens(root);
    let declared = tokens.windows(3).filter(|three| three[0].text == "mod" && three[2].text == ";");
    let names = declared.map(|three| three[1].text.clone());
    names.filter(|name| !PATHS.contains(&name.as_str())).collect()
}

/// The modules that nobody names outside of themselves who is a path or the binding: `texts` are files of both,
/// by name.
pub fn unused(modules: &[String], texts: &[(String, String)]) -> Vec<String> {
    let mut unused = modules.to_vec();
    for (file, text) in texts {
        let module = file.strip_prefix(CORE).map(module_of);
        if module.as_ref().is_some_and(|module| !PATHS.contains(&module[0].as_str())) {
            continue;
        }
        for named in source::paths(&source::tokens(text)) {
            let absolute =
                module.as_ref().map_or(named.segments.clone(), |module| absolute(&named, module));
            if let ["crate" | "tensorferry", name, ..] =
                absolute.iter().map(String::as_str).collect::<Vec<_>>().as_slice()
            {
                unused.retain(|ground| ground != name);
            }
        }
    }
    unused
}

/// The core's manifest must not name Python's world as a dependency, under any name.
pub fn check_manifest(file: &str, text: &str) -> Vec<Violation> {
    let mut in_dependencies = false;
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        if line.trim_start().starts_with('[') {
            in_dependencies = line.contains("dependencies");
        }
        let is_part = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
        let foreign = line.split(|c| !is_part(c)).find(|word| FOREIGN.contains(word));
        if let (true, Some(name)) = (in_dependencies, foreign) {
            let what = format!("the core depends on `{name}`");
            let instead = "the core knows neither Python nor torch: put it into python/Cargo.toml";
            found.push(violation(file, number + 1, what, instead));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said of `text` if it stands in the core's file `inner`.
    fn said(inner: &str, text: &str) -> Vec<String> {
        let exports = Exports::of("pub mod io; pub use checkpoint::{save, load as read_back};");
        let found = check(&format!("{CORE}{inner}"), text, &exports);
        found.into_iter().map(|violation| violation.what).collect()
    }

    #[track_caller]
    fn caught(inner: &str, text: &str, what: &str) {
        assert_eq!(said(inner, text), [what], "{inner}: {text}");
    }

    #[track_caller]
    fn passes(inner: &str, text: &str) {
        assert_eq!(said(inner, text), [""; 0], "{inner}: {text}");
    }

    #[test]
    fn a_path_that_imports_another_path_is_caught() {
        let what = "the path `data` imports the path `checkpoint`";
        caught("data/cache.rs", "use crate::checkpoint::Writer;", what);
        caught("data/cache.rs", "use crate::{io, checkpoint::{Writer}};", what);
        caught("data/mod.rs", "fn f() { crate::checkpoint::save() }", what);
        caught("data.rs", "use super::checkpoint;", what);
        caught("data/cache.rs", "use super::super::checkpoint::Writer;", what);
        caught("data/cache.rs", "mod tests { use super::super::super::checkpoint::Writer; }", what);
        caught("data/cache.rs", "use tensorferry::checkpoint::Writer;", what);
        caught("data/cache.rs", "use crate::save;", what);
        caught("data/cache.rs", "use crate::read_back;", what);
    }

    #[test]
    fn a_ground_that_imports_a_path_is_caught() {
        caught("io/ring.rs", "use crate::pool::Server;", "the ground `io` imports the path `pool`");
        caught("metrics.rs", "crate::data::Stats", "the ground `metrics` imports the path `data`");
        caught("memory/mod.rs", "use crate::*;", "imports everything of the crate");
    }

    #[test]
    fn a_path_may_import_grounds_and_itself() {
        passes("data/cache.rs", "use crate::{io, memory::pool::Pool, plan, data::Batch, Error};");
        passes("data/cache.rs", "use super::source; use self::inner::X; use crate::data;");
        passes("data/cache.rs", "mod tests { use super::*; use super::super::source; }");
        passes(
            "io/file.rs",
            "// use crate::checkpoint;\nlet pool = \"crate::pool\"; use super::pool;",
        );
        passes("memory/arena.rs", "use crate::memory::pool::Pool; use super::pool; pool::take();");
        passes(
            "lib.rs",
            "pub mod checkpoint; pub use checkpoint::save; pub use crate::data::Batch;",
        );
    }

    #[test]
    fn a_plan_that_does_io_waits_or_reads_a_clock_is_caught() {
        for import in [
            "std::fs",
            "std::fs::File",
            "std::net::TcpStream",
            "std::io",
            "std::thread",
            "std::process::Command",
            "std::env::var",
            "std::time",
            "std::time::Instant",
            "std::time::SystemTime",
            "std::time::*",
            "std::sync::Mutex",
            "crate::io",
            "crate::device::Device",
            "crate::memory",
            "crate::sync::lock",
            "crate::metrics",
            "rustix::fs",
            "io_uring::IoUring",
        ] {
            let what = format!("`plan` imports `{import}`");
            caught("plan/data/eviction.rs", &format!("use {import};"), &what);
            caught("plan/mod.rs", &format!("fn f() {{ let x = {import}; }}"), &what);
        }
        let grouped = "use std::{time::{Duration, Instant}};";
        caught("plan/data/eviction/tier.rs", grouped, "`plan` imports `std::time::Instant`");
        caught("plan/mod.rs", "use super::io::File;", "`plan` imports `crate::io::File`");
        caught("plan/mod.rs", "fn f() { println!(\"{}\", 1) }", "`plan` prints with `println!`");
        caught("plan.rs", "use crate::data;", "the ground `plan` imports the path `data`");
    }

    #[test]
    fn a_plan_may_use_plain_data() {
        passes(
            "plan/checkpoint.rs",
            "use std::{collections::BTreeMap, time::Duration, sync::Arc, fmt};",
        );
        passes(
            "plan/checkpoint.rs",
            "use crate::{Error, Result, Size, error::Kind, plan::Profile};",
        );
        passes(
            "plan/checkpoint.rs",
            "use super::Profile; use serde::Serialize; let io = 1; io.max(2);",
        );
        passes("plan/checkpoint.rs", "mod tests { use super::*; use proptest::prelude::*; }");
        passes("io/threads.rs", "use std::{fs, thread, time::Instant};");
    }

    #[test]
    fn a_simulator_that_does_io_waits_or_reads_a_clock_is_caught() {
        let said = |text: &str| {
            let found =
                check(&format!("{SIMULATE}data/eviction/replay.rs"), text, &Exports::default());
            found.into_iter().map(|violation| violation.what).collect::<Vec<_>>()
        };
        for import in ["std::fs::File", "std::time::Instant", "tensorferry::io", "rustix::fs"] {
            let what = format!("the simulator imports `{import}`");
            assert_eq!(said(&format!("use {import};")), [what]);
        }
        assert_eq!(said("fn f() { println!() }"), ["the simulator prints with `println!`"]);
        let plain = "use tensorferry::{Error, Size, plan::data::eviction::Tier, random::SplitMix64}; \
                     use std::time::Duration; use super::io::Clock; use crate::data; use self::thread;";
        assert_eq!(said(plain), [""; 0]);
    }

    #[test]
    fn unsafe_outside_its_places_is_caught() {
        for file in [
            "crates/tensorferry/src/io/threads.rs",
            "crates/tensorferry/src/device/host.rs",
            "crates/tensorferry/src/lib.rs",
            "crates/tensorferry/tests/it/main.rs",
            "crates/tensorferry-cli/src/main.rs",
            "crates/tensorferry-bench/src/lib.rs",
            "examples/x.rs",
        ] {
            let found = check(file, "fn f() {\n    unsafe { g() }\n}", &Exports::default());
            assert_eq!(found.len(), 1, "{file}");
            assert!(found[0].to_string().starts_with(&format!("{file}:2: `unsafe` outside")));
        }
    }

    #[test]
    fn unsafe_in_its_places_or_in_prose_passes() {
        for file in [
            "crates/tensorferry/src/memory/buffer.rs",
            "crates/tensorferry/src/io/ring.rs",
            "crates/tensorferry/src/io/ring/queue.rs",
            "crates/tensorferry/src/device/cuda/mod.rs",
            "crates/tensorferry/src/codec/half/avx2.rs",
            "python/src/tensor.rs",
        ] {
            assert_eq!(check(file, "unsafe { g() }", &Exports::default()), [], "{file}");
        }
        passes("io/file.rs", "// unsafe\n#![forbid(unsafe_code)] /* unsafe */ \"unsafe\"");
    }

    #[test]
    fn a_ground_that_no_path_and_no_binding_names_is_caught() {
        let grounds = modules("pub mod io;\nmod sync;\npub mod data;\nmod tests { }");
        assert_eq!(grounds, ["io", "sync"]);
        let unused_with =
            |file: &str, text: &str| unused(&grounds, &[(file.to_owned(), text.to_owned())]);
        assert_eq!(
            unused_with("crates/tensorferry/src/data/mod.rs", "use crate::{io, sync};"),
            [""; 0]
        );
        assert_eq!(
            unused_with("crates/tensorferry/src/data/mod.rs", "use super::io::File;"),
            ["sync"]
        );
        assert_eq!(unused_with("python/src/engine.rs", "tensorferry::io::open()"), ["sync"]);
        assert_eq!(
            unused_with("crates/tensorferry/src/io/mod.rs", "use crate::sync;"),
            ["io", "sync"]
        );
    }

    #[test]
    fn a_core_that_depends_on_python_is_caught() {
        for line in [
            "[dependencies]\npyo3.workspace = true",
            "[dependencies]\n\"pyo3\" = \"0.30\"",
            "[dev-dependencies]\nnumpy = \"0.30\"",
            "[target.'cfg(unix)'.dependencies]\nt = { package = \"tch\" }",
            "[dependencies.dlpark]\nversion = \"1\"",
        ] {
            let found = check_manifest("Cargo.toml", line);
            assert_eq!(found.len(), 1, "{line}");
            assert!(found[0].what.starts_with("the core depends on `"));
        }
        let fine = "[package]\nkeywords = [\"torch\"]\n[dependencies]\nserde = \"1\" # not pyo3\n";
        assert_eq!(check_manifest("Cargo.toml", fine), []);
    }

    #[test]
    fn a_violation_says_where_what_and_what_to_do() {
        let found = check(
            "crates/tensorferry/src/io/file.rs",
            "\n\nuse crate::pool::Server;",
            &Exports::default(),
        );
        assert_eq!(
            found[0].to_string(),
            "crates/tensorferry/src/io/file.rs:3: the ground `io` imports the path `pool`\n    \
             grounds know no path: move the item down, or let the path call the ground"
        );
    }
}
