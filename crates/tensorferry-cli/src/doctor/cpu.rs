//! Cores, and the instructions that the codecs are written for.

use std::thread;

use tensorferry::codec::Level;

use super::finding::{Choice, Finding, Status};

pub(super) fn probe_cores() -> Finding {
    match thread::available_parallelism() {
        Ok(cores) => Finding::new("cores", Status::Ok, cores.to_string())
            .means("Training and the engine's threads share them; a codec runs on one at a time.")
            .fact("usable", cores.get()),
        Err(error) => Finding::new("cores", Status::Error, error.to_string())
            .means("How many cores this process may use stays unknown."),
    }
}

pub(super) fn probe_features() -> (Finding, Choice) {
    describe(&features(), Level::detect())
}

/// Every feature we look for, and whether this processor has it.
#[cfg(target_arch = "x86_64")]
fn features() -> Vec<(&'static str, bool)> {
    vec![
        ("sse4.2", is_x86_feature_detected!("sse4.2")),
        ("avx2", is_x86_feature_detected!("avx2")),
        ("f16c", is_x86_feature_detected!("f16c")),
        ("avx512f", is_x86_feature_detected!("avx512f")),
        ("avx512bw", is_x86_feature_detected!("avx512bw")),
        ("avx512vbmi2", is_x86_feature_detected!("avx512vbmi2")),
        ("vpclmulqdq", is_x86_feature_detected!("vpclmulqdq")),
    ]
}

#[cfg(not(target_arch = "x86_64"))]
fn features() -> Vec<(&'static str, bool)> {
    Vec::new()
}

fn describe(features: &[(&'static str, bool)], level: Level) -> (Finding, Choice) {
    let present: Vec<_> =
        features.iter().filter(|(_, there)| *there).map(|(name, _)| *name).collect();
    let name = level.name();
    let (status, meaning, choice) = match level {
        Level::Avx512 => (Status::Ok, "Codecs run at level avx512.", Choice::best(name)),
        Level::Avx2 => (Status::Ok, "Codecs run at level avx2.", Choice::best(name)),
        Level::Portable => (
            Status::Limited,
            "Codecs run portable code, several times slower than on avx2.",
            Choice::fallback(name, "this processor has no avx2 with f16c"),
        ),
    };
    let shown =
        if present.is_empty() { "none of those looked for".to_owned() } else { present.join(" ") };
    let finding = Finding::new("cpu features", status, shown)
        .means(meaning)
        .fact("present", present)
        .fact("codec_level", name);
    let finding =
        if status == Status::Ok { finding } else { finding.remedy("use a newer processor") };
    (finding, choice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portable_code_is_a_limit_and_says_what_is_missing() {
        for (level, status) in [
            (Level::Avx512, Status::Ok),
            (Level::Avx2, Status::Ok),
            (Level::Portable, Status::Limited),
        ] {
            let (finding, choice) = describe(&[], level);
            assert_eq!((finding.status, choice.name.as_str()), (status, level.name()));
            assert_eq!(finding.remedy.is_some(), status == Status::Limited);
        }
    }

    #[test]
    fn a_feature_that_is_absent_is_not_shown() {
        let (finding, _) = describe(&[("avx2", false), ("sse4.2", true)], Level::Portable);
        assert_eq!(finding.value, "sse4.2");
    }
}
