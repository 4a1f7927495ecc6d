//! CUDA and cuFile, as far as files tell: nothing is loaded or called.
//!
//! This version has no code for either. What is found is shown so that a machine can be made
//! ready, and said to be unused, so that nobody takes it for a feature.

use std::fs;
use std::path::{Path, PathBuf};

use super::finding::{Finding, Status};
use super::library;
use super::python::Answer;

const CUDA_WILL: &str = "This version does not use a GPU yet: it works in host memory. Later \
                         versions will save, load and offload the tensors of one.";
const CUFILE_WILL: &str = "This version does not use it yet. Later versions will read files \
                           straight into GPU memory with it.";

pub(super) fn probe(answer: &Result<Answer, String>) -> [Finding; 2] {
    let packages = answer.as_ref().map(|answer| answer.path.as_slice()).unwrap_or_default();
    let more = library::of_nvidia_packages(packages);
    let driver = first_line(Path::new("/proc/driver/nvidia/version"));
    let module = first_line(Path::new("/proc/driver/nvidia-fs/version"));
    [
        describe_cuda(driver.as_deref(), library::find("libcuda.so.1", &[])),
        describe_cufile(library::find("libcufile.so.0", &more), module.as_deref()),
    ]
}

fn first_line(file: &Path) -> Option<String> {
    fs::read_to_string(file).ok()?.lines().next().map(|line| line.trim().to_owned())
}

fn describe_cuda(driver: Option<&str>, library: Option<PathBuf>) -> Finding {
    let shown = library.map(|file| file.to_string_lossy().into_owned());
    let (value, remedy) = match (driver, &shown) {
        (Some(driver), Some(_)) => (format!("found: {driver}"), None),
        (Some(driver), None) => (
            format!("found: {driver}, without libcuda.so.1 where the loader looks"),
            Some("in containers, start with the NVIDIA runtime; else install libcuda1"),
        ),
        // Windows' Linux has the library and no such file in /proc.
        (None, Some(file)) => (
            format!("found: {file}, without a driver in /proc"),
            Some("`nvidia-smi` tells whether a GPU is visible"),
        ),
        (None, None) => (
            "none".to_owned(),
            Some("install NVIDIA's driver (Debian: nvidia-driver) on a machine with a GPU"),
        ),
    };
    Finding::new("CUDA driver", Status::Unused, value)
        .means(CUDA_WILL)
        .remedy_if_any(remedy)
        .fact("driver", driver)
        .fact("library", shown)
}

fn describe_cufile(library: Option<PathBuf>, module: Option<&str>) -> Finding {
    let shown = library.map(|file| file.to_string_lossy().into_owned());
    let (value, remedy) = match (&shown, module) {
        (Some(file), Some(_)) => (format!("found: {file}"), None),
        (Some(file), None) => (
            format!("found: {file}, without the nvidia-fs module"),
            Some("install NVIDIA's nvidia-fs module on a machine with a GPU"),
        ),
        (None, _) => {
            ("none".to_owned(), Some("pip install nvidia-cufile, on a machine with a GPU"))
        }
    };
    Finding::new("cuFile", Status::Unused, value)
        .means(CUFILE_WILL)
        .remedy_if_any(remedy)
        .fact("library", shown)
        .fact("nvidia_fs", module)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library() -> PathBuf {
        PathBuf::from("/x/lib.so")
    }

    #[test]
    fn whatever_is_found_of_a_gpu_is_said_not_to_be_used_yet() {
        for finding in [
            describe_cuda(Some("580"), Some(library())),
            describe_cuda(Some("580"), None),
            describe_cuda(None, Some(library())),
            describe_cuda(None, None),
            describe_cufile(Some(library()), Some("2.26")),
            describe_cufile(Some(library()), None),
            describe_cufile(None, Some("2.26")),
        ] {
            assert_eq!(finding.status, Status::Unused, "{}", finding.value);
            assert!(finding.meaning.contains("does not use"), "{}", finding.meaning);
        }
    }

    #[test]
    fn a_driver_with_its_library_has_nothing_to_get() {
        assert_eq!(describe_cuda(Some("NVRM 580"), Some(library())).value, "found: NVRM 580");
        for (driver, library, is_complete) in [
            (Some("580"), Some(library()), true),
            (Some("580"), None, false),
            (None, Some(library()), false),
            (None, None, false),
        ] {
            assert_eq!(describe_cuda(driver, library).remedy.is_none(), is_complete);
        }
    }

    #[test]
    fn cufile_without_its_module_says_how_to_get_it() {
        let finding = describe_cufile(Some(library()), None);
        assert_eq!(finding.value, "found: /x/lib.so, without the nvidia-fs module");
        assert!(finding.remedy.is_some());
        assert_eq!(describe_cufile(Some(library()), Some("2.26")).remedy, None);
        assert_eq!(describe_cufile(None, Some("2.26")).value, "none");
    }
}
