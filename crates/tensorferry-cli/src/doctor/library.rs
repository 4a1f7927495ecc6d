//! Where the loader would find a shared library, without loading it.
//!
//! Loading runs the library's own code, which for a GPU driver can take seconds or hang. The
//! search follows `ld.so`: `LD_LIBRARY_PATH`, the directories of `/etc/ld.so.conf`, the defaults.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

/// Includes nest; a file that includes itself must not keep us busy.
const INCLUDE_DEPTH_MAX: u32 = 4;

/// The first file called `name` in the loader's directories or in `more`.
pub(super) fn find(name: &str, more: &[PathBuf]) -> Option<PathBuf> {
    let set = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let mut directories: Vec<PathBuf> = env::split_paths(&set).collect();
    directories.extend(configured(Path::new("/etc/ld.so.conf"), INCLUDE_DEPTH_MAX));
    directories.extend(defaults());
    directories.iter().chain(more).map(|directory| directory.join(name)).find(|file| file.is_file())
}

fn defaults() -> Vec<PathBuf> {
    let triple = format!("{}-linux-gnu", env::consts::ARCH);
    let roots = ["/lib", "/usr/lib"].map(PathBuf::from);
    let multiarch = roots.clone().map(|root| root.join(&triple));
    let wide = ["/lib64", "/usr/lib64"].map(PathBuf::from);
    multiarch.into_iter().chain(wide).chain(roots).collect()
}

/// The directories that a loader configuration names, in its order.
fn configured(file: &Path, depth: u32) -> Vec<PathBuf> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let base = file.parent().unwrap_or(Path::new("/"));
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    lines
        .flat_map(|line| match line.strip_prefix("include") {
            Some(_) if depth == 0 => Vec::new(),
            Some(pattern) => matching(&base.join(pattern.trim()))
                .iter()
                .flat_map(|file| configured(file, depth - 1))
                .collect(),
            None if line.starts_with('/') => vec![PathBuf::from(line)],
            None => Vec::new(),
        })
        .collect()
}

/// The files that a pattern such as `/etc/ld.so.conf.d/*.conf` names, sorted; the only wildcard
/// known is one `*` in the last part, the only one distributions use.
fn matching(pattern: &Path) -> Vec<PathBuf> {
    let last = pattern.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let Some((before, after)) = last.split_once('*') else {
        return vec![pattern.to_path_buf()];
    };
    let entries = pattern.parent().and_then(|directory| fs::read_dir(directory).ok());
    let mut files: Vec<_> = entries
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|file| {
            let name = file.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
            name.len() >= before.len() + after.len()
                && name.starts_with(before)
                && name.ends_with(after)
        })
        .collect();
    files.sort();
    files
}

/// The `lib` directories of the `nvidia` packages in a Python's search path: `nvidia/cufile/lib`,
/// `nvidia/cu13/lib`. The loader does not know them; the binding must.
pub(super) fn of_nvidia_packages(python_path: &[PathBuf]) -> Vec<PathBuf> {
    let roots = python_path.iter().map(|entry| entry.join("nvidia"));
    let packages = roots.filter_map(|root| fs::read_dir(root).ok()).flatten().flatten();
    let mut directories: Vec<_> = packages.map(|package| package.path().join("lib")).collect();
    directories.sort();
    directories
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_read_with_what_it_includes() {
        let etc = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(etc.path().join(name), text).unwrap();
        fs::create_dir(etc.path().join("conf.d")).unwrap();
        write("ld.so.conf", "# comment\n/first # why\ninclude conf.d/*.conf\nrelative\n/last\n");
        write("conf.d/b.conf", "/b\n");
        write("conf.d/a.conf", "/a\ninclude ../ld.so.conf\n");
        write("conf.d/c.txt", "/c\n");
        let found = configured(&etc.path().join("ld.so.conf"), 1);
        assert_eq!(found, ["/first", "/a", "/b", "/last"].map(PathBuf::from));
    }

    #[test]
    fn a_configuration_that_includes_itself_ends() {
        let etc = tempfile::tempdir().unwrap();
        let file = etc.path().join("ld.so.conf");
        fs::write(&file, "/x\ninclude ld.so.conf\n").unwrap();
        assert_eq!(configured(&file, INCLUDE_DEPTH_MAX).len(), 1 + INCLUDE_DEPTH_MAX as usize);
        assert!(configured(&etc.path().join("missing"), 1).is_empty());
    }

    #[test]
    fn the_libraries_of_pips_nvidia_packages_are_found() {
        let site = tempfile::tempdir().unwrap();
        let lib = site.path().join("nvidia/cu13/lib");
        fs::create_dir_all(&lib).unwrap();
        fs::write(lib.join("libnone-of-this-name.so.0"), "").unwrap();
        let more = of_nvidia_packages(&[PathBuf::from("/nonexistent"), site.path().to_path_buf()]);
        assert_eq!(more, std::slice::from_ref(&lib));
        let found = find("libnone-of-this-name.so.0", &more);
        assert_eq!(found, Some(lib.join("libnone-of-this-name.so.0")));
        assert_eq!(find("libnone-of-this-name.so.0", &[]), None);
    }
}
