//! What a pool over several hosts can use: UCX for transfers, etcd for membership.

use std::env;
use std::ffi::OsStr;
use std::path::PathBuf;

use super::finding::{Finding, Status};
use super::library;

/// Where clients of etcd find its address, in the order in which they are looked at.
const ENDPOINT_VARIABLES: [&str; 2] = ["ETCD_ENDPOINTS", "ETCDCTL_ENDPOINTS"];

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
    let found = match &shown {
        Some(file) => Finding::new("UCX", Status::Ok, file.clone())
            .means("Pool servers can use RDMA and shared memory where the hardware has them."),
        None => Finding::new("UCX", Status::Missing, "none")
            .means("Pool servers use TCP. A single machine does not need it.")
            .remedy("Debian: apt install libucx0"),
    };
    found.fact("library", shown)
}

fn describe_etcd(endpoints: Option<&str>, program: Option<PathBuf>) -> Finding {
    let program = program.map(|file| file.to_string_lossy().into_owned());
    let means = "Pool servers can find one another and notice when one goes away.";
    let found = match (endpoints, &program) {
        (Some(endpoints), _) => {
            Finding::new("etcd", Status::Ok, format!("{endpoints} (not contacted)")).means(means)
        }
        (None, Some(file)) => Finding::new("etcd", Status::Ok, file.clone()).means(means),
        (None, None) => Finding::new("etcd", Status::Missing, "none")
            .means("Pool servers have to be listed by hand. A single machine does not need it.")
            .remedy("Debian: apt install etcd-server, or set ETCD_ENDPOINTS"),
    };
    found.fact("endpoints", endpoints).fact("program", program)
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
    fn what_is_missing_says_that_one_machine_does_not_need_it() {
        for finding in [describe_ucx(None), describe_etcd(None, None)] {
            assert_eq!(finding.status, Status::Missing);
            assert!(finding.meaning.contains("A single machine does not need it"));
            assert!(finding.remedy.unwrap().starts_with("Debian: apt install"));
        }
    }

    #[test]
    fn an_endpoint_is_reported_as_not_contacted() {
        let finding = describe_etcd(Some("http://10.0.0.1:2379"), None);
        assert_eq!(finding.value, "http://10.0.0.1:2379 (not contacted)");
        assert_eq!(describe_ucx(Some("/x/libucp.so.0".into())).status, Status::Ok);
    }
}
