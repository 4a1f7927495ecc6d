//! CUDA and cuFile, as far as files tell: nothing is loaded or called.

use std::fs;
use std::path::{Path, PathBuf};

use super::finding::{Finding, Status};
use super::library;
use super::python::Answer;

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
    let finding = |status, value: &str| Finding::new("CUDA driver", status, value);
    let shown = library.as_ref().map(|file| file.to_string_lossy().into_owned());
    let found = match (driver, library) {
        (Some(driver), Some(_)) => finding(Status::Ok, driver)
            .means("Tensors on a GPU can be saved, loaded and offloaded. Untested on hardware."),
        (Some(driver), None) => finding(Status::Limited, driver)
            .means("The kernel has the driver, but libcuda.so.1 is not where the loader looks.")
            .remedy("in containers, start with the NVIDIA runtime; else install libcuda1"),
        // Windows' Linux has the library and no such file in /proc.
        (None, Some(_)) => finding(Status::Limited, "libcuda.so.1 without a driver in /proc")
            .means("A GPU may work through a host's driver. Untested on hardware.")
            .remedy("`nvidia-smi` tells whether a GPU is visible"),
        (None, None) => finding(Status::Missing, "none")
            .means("The host and the emulated device are used.")
            .remedy("install NVIDIA's driver (Debian: nvidia-driver) on a machine with a GPU"),
    };
    found.fact("driver", driver).fact("library", shown)
}

fn describe_cufile(library: Option<PathBuf>, module: Option<&str>) -> Finding {
    let shown = library.map(|file| file.to_string_lossy().into_owned());
    let found = match (&shown, module) {
        (Some(file), Some(_)) => Finding::new("cuFile", Status::Ok, file.clone())
            .means("Files can go straight to GPU memory. Untested on hardware."),
        (Some(file), None) => Finding::new("cuFile", Status::Limited, file.clone())
            .means("Without the nvidia-fs module, cuFile copies through host memory as we do.")
            .remedy("install NVIDIA's nvidia-fs module on a machine with a GPU"),
        (None, _) => Finding::new("cuFile", Status::Missing, "none")
            .means("Files go to GPU memory through host memory.")
            .remedy("pip install nvidia-cufile, on a machine with a GPU"),
    };
    found.fact("library", shown).fact("nvidia_fs", module)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_counts_with_its_library_only() {
        let library = || Some(PathBuf::from("/usr/lib/libcuda.so.1"));
        for (driver, library, status) in [
            (Some("NVRM version: 580"), library(), Status::Ok),
            (Some("NVRM version: 580"), None, Status::Limited),
            (None, library(), Status::Limited),
            (None, None, Status::Missing),
        ] {
            let finding = describe_cuda(driver, library);
            assert_eq!(finding.status, status);
            assert_eq!(finding.remedy.is_none(), status == Status::Ok);
        }
    }

    #[test]
    fn whatever_is_found_of_a_gpu_is_said_to_be_untested() {
        let library = || Some(PathBuf::from("/x"));
        for finding in [
            describe_cuda(Some("580"), library()),
            describe_cuda(None, library()),
            describe_cufile(library(), Some("2.26")),
        ] {
            assert!(finding.meaning.contains("Untested on hardware"), "{}", finding.meaning);
        }
    }

    #[test]
    fn cufile_without_its_module_is_limited() {
        let library = || Some(PathBuf::from("/x/libcufile.so.0"));
        assert_eq!(describe_cufile(library(), None).status, Status::Limited);
        assert_eq!(describe_cufile(library(), Some("2.26")).status, Status::Ok);
        assert_eq!(describe_cufile(None, Some("2.26")).status, Status::Missing);
    }
}
