//! What a pool over several hosts will use: UCX for transfers, etcd for membership.
//!
//! There is no such pool yet, and each finding says so.

use std::env;
use std::ffi::OsStr;
use std::path::PathBuf;

use super::finding::{Finding, Status};
use super::library;

/// Where clients of etcd find its address, in the order in which they are looked at.
const ENDPOINT_VARIABLES: [&str; 2] = ["ETCD_ENDPOINTS", "ETCDCTL_ENDPOINTS"];

const UCX_WILL: &str = "This version does not use it yet. Later versions will share data among \
                        hosts, over RDMA and shared memory where UCX finds them.";
const ETCD_WILL: &str = "This version does not use it yet. Later versions will share data among \
                         hosts, which find one another through etcd.";

pub(super) fn probe() -> [Finding; 2] {
    let endpoints = ENDPOINT_VARIABLES
        .into_iter()
        .find_map(|name| env::var(name).ok().filter(|value| !value.is_empty()));
    let path = env::var_os("PATH").unwrap_or_default();
    [
        describe_ucx(library::find("libucp.so.0", &[])),
        describe_etcd(endpoints.as_deref(), on_path("etcd", &path)),
    ]
}

fn on_path(program: &str, path: &OsStr) -> Option<PathBuf> {
    env::split_paths(path)
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(program))
        .find(|file| file.is_file())
}

fn describe_ucx(library: Option<PathBuf>) -> Finding {
    let shown = library.map(|file| file.to_string_lossy().into_owned());
    unused("UCX", shown.as_deref(), "libucx0", UCX_WILL).fact("library", shown)
}

fn describe_etcd(endpoints: Option<&str>, program: Option<PathBuf>) -> Finding {
    let program = program.map(|file| file.to_string_lossy().into_owned());
    let named = endpoints.map(|endpoints| format!("{endpoints} (not contacted)"));
    unused("etcd", named.as_deref().or(program.as_deref()), "etcd-server", ETCD_WILL)
        .fact("endpoints", endpoints)
        .fact("program", program)
}

fn unused(name: &'static str, found: Option<&str>, package: &str, meaning: &str) -> Finding {
    match found {
        Some(found) => Finding::new(name, Status::Unused, format!("found: {found}")),
        None => Finding::new(name, Status::Unused, "none")
            .remedy(format!("Debian: apt install {package}; one machine will not need it")),
    }
    .means(meaning)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_program_is_found_on_the_search_path_as_a_file() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("a/etcd")).unwrap();
        fs::create_dir(directory.path().join("b")).unwrap();
        fs::write(directory.path().join("b/etcd"), "").unwrap();
        let path = env::join_paths(["a", "b"].map(|name| directory.path().join(name))).unwrap();
        assert_eq!(on_path("etcd", &path), Some(directory.path().join("b/etcd")));
        assert_eq!(on_path("etcd", OsStr::new("")), None);
    }

    #[test]
    fn what_is_there_and_what_is_not_is_said_not_to_be_used_yet() {
        for finding in [
            describe_ucx(None),
            describe_ucx(Some("/x/libucp.so.0".into())),
            describe_etcd(None, None),
            describe_etcd(None, Some("/usr/bin/etcd".into())),
            describe_etcd(Some("http://10.0.0.1:2379"), None),
        ] {
            assert_eq!(finding.status, Status::Unused, "{}", finding.value);
            assert!(finding.meaning.contains("does not use it yet"), "{}", finding.meaning);
            assert_eq!(finding.remedy.is_some(), finding.value == "none", "{}", finding.value);
        }
    }

    #[test]
    fn what_is_missing_says_that_one_machine_will_not_need_it() {
        for finding in [describe_ucx(None), describe_etcd(None, None)] {
            let remedy = finding.remedy.unwrap();
            assert!(remedy.starts_with("Debian: apt install"), "{remedy}");
            assert!(remedy.ends_with("one machine will not need it"), "{remedy}");
        }
    }

    #[test]
    fn an_endpoint_is_reported_as_not_contacted() {
        let finding = describe_etcd(Some("http://10.0.0.1:2379"), Some("/usr/bin/etcd".into()));
        assert_eq!(finding.value, "found: http://10.0.0.1:2379 (not contacted)");
    }
}
