//! The tree in ARCHITECTURE.md, compared with the files that are there.
//!
//! A line whose first word ends with `/` is a directory, and the rest of it is prose. Other lines
//! name the modules of the directory above them by indentation; directories that have no line of their own
//! stand among them as `name/{modules}`. How lines are wrapped does not matter.

use std::collections::BTreeSet;

const FILE: &str = "ARCHITECTURE.md";
const HEADING: &str = "\n## The tree\n";
/// What is not named: roots of directories, and tests.
const UNNAMED: [&str; 8] =
    ["mod", "lib", "main", "__init__", "__main__", "tests", "loom_tests", "testing"];

/// A directory with a line of its own, and the names below it.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    directory: String,
    names: String,
    indent: usize,
}

/// What is wrong with the tree in `document`: `files` are all modules, `tops` the directories that it has
/// to have; both are seen from the root of the repository.
pub fn check(document: &str, files: &BTreeSet<String>, tops: &[String]) -> Vec<String> {
    let Some(entries) = tree(document).map(entries) else {
        return vec![format!("{FILE} has no block of code below \"{}\"", HEADING.trim())];
    };
    let own: BTreeSet<&str> = entries.iter().map(|entry| entry.directory.as_str()).collect();
    let mut wrong = Vec::new();
    for top in tops.iter().filter(|top| !own.contains(top.as_str())) {
        wrong.push(format!("{FILE}: the tree lacks a line `{top}/`, and what it is for"));
    }
    for entry in &entries {
        let prefix = format!("{}/", entry.directory);
        if !files.iter().any(|file| file.starts_with(&prefix)) {
            wrong.push(format!("{FILE}: the tree has `{prefix}`, where no module is"));
            continue;
        }
        let names = names(files, &prefix, &own);
        if names != entry.names {
            let indent = " ".repeat(entry.indent + 4);
            wrong.push(format!("{FILE}: below `{prefix}` the tree must say\n{indent}{names}"));
        }
    }
    wrong
}

/// The first block of code below the heading.
fn tree(document: &str) -> Option<&str> {
    let (_, section) = document.split_once(HEADING)?;
    let (_, block) = section.split_once("```\n")?;
    block.split_once("```").map(|(block, _)| block)
}

fn entries(tree: &str) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    for line in tree.lines().filter(|line| !line.trim().is_empty()) {
        let indent = line.len() - line.trim_start().len();
        let words: Vec<&str> = line.split_whitespace().collect();
        if let Some(name) = words[0].strip_suffix('/') {
            let above = parent(&entries, indent).map(|entry| format!("{}/", entry.directory));
            let directory = above.unwrap_or_default() + name;
            entries.push(Entry { directory, names: String::new(), indent });
        } else if let Some(entry) = entries.last_mut() {
            let space = if entry.names.is_empty() { "" } else { " " };
            entry.names += &(space.to_owned() + &words.join(" "));
        }
    }
    entries
}

/// The latest directory that is indented less: entries stand in the order of a walk.
fn parent(entries: &[Entry], indent: usize) -> Option<&Entry> {
    entries.iter().rev().find(|entry| entry.indent < indent)
}

/// The modules below `prefix` as the tree names them: files, then directories, each in order.
fn names(files: &BTreeSet<String>, prefix: &str, own: &BTreeSet<&str>) -> String {
    let (mut modules, mut directories) = (Vec::new(), BTreeSet::new());
    for inner in files.iter().filter_map(|file| file.strip_prefix(prefix)) {
        match inner.split_once('/') {
            Some((directory, _)) => _ = directories.insert(directory),
            None => modules.push(inner.split('.').next().unwrap_or(inner)),
        }
    }
    let mut named: Vec<String> =
        modules.into_iter().filter(|name| !UNNAMED.contains(name)).map(str::to_owned).collect();
    named.sort();
    for directory in directories {
        let path = format!("{prefix}{directory}");
        if !own.contains(path.as_str()) {
            named.push(format!("{directory}/{{{}}}", names(files, &(path + "/"), own)));
        }
    }
    named.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "# A\n\n## The tree\n\nProse.\n\n```\n\
        src/        the core\n    size sync\n    io/     bytes\n        file ring/{queue}\n        threads\n\
        ```\n\n```\nanother/ block\n```\n";
    const FILES: [&str; 8] = [
        "src/lib.rs",
        "src/size.rs",
        "src/sync.rs",
        "src/io/mod.rs",
        "src/io/file.rs",
        "src/io/threads.rs",
        "src/io/ring/queue.rs",
        "src/io/tests.rs",
    ];

    fn said(document: &str, files: &[&str], tops: &[&str]) -> Vec<String> {
        let files = files.iter().map(|file| (*file).to_owned()).collect();
        let tops: Vec<_> = tops.iter().map(|top| (*top).to_owned()).collect();
        check(document, &files, &tops)
    }

    fn canonical() -> String {
        DOCUMENT.replace("file ring/{queue}\n        threads\n", "file threads\n    ring/{queue}\n")
    }

    #[test]
    fn a_tree_that_names_every_module_passes_however_it_is_wrapped() {
        assert_eq!(said(&canonical(), &FILES, &["src"]), [""; 0]);
    }

    #[test]
    fn a_file_that_is_not_named_is_told_with_the_line_as_it_must_be() {
        let files = [&FILES[..], &["src/io/door.rs"]].concat();
        let line = "below `src/io/` the tree must say\n        door file threads ring/{queue}";
        assert_eq!(said(&canonical(), &files, &["src"]), [format!("{FILE}: {line}")]);
    }

    #[test]
    fn a_name_without_a_file_is_told() {
        let line = "below `src/` the tree must say\n    size";
        let files: Vec<_> = FILES.into_iter().filter(|file| !file.contains("sync")).collect();
        assert_eq!(said(&canonical(), &files, &["src"]), [format!("{FILE}: {line}")]);
    }

    #[test]
    fn a_directory_that_is_missing_on_either_side_is_told() {
        let document = canonical().replace("    io/ ", "    disk/ ");
        let found = said(&document, &FILES, &["src", "python"]);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].ends_with("lacks a line `python/`, and what it is for"));
        assert!(found[1].ends_with("size sync io/{file threads ring/{queue}}"));
        assert!(found[2].ends_with("the tree has `src/disk/`, where no module is"));
    }

    #[test]
    fn a_document_without_a_tree_is_told() {
        assert_eq!(said("# A\n", &FILES, &["src"]).len(), 1);
    }
}
