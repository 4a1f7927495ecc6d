//! Cores, and the instructions that the codecs are written for.

use std::thread;

use super::finding::{Choice, Finding, Status};

pub(super) fn probe_cores() -> Finding {
    match thread::available_parallelism() {
        Ok(cores) => Finding::new("cores", Status::Ok, cores.to_string())
            .means(
                "Threads are divided among reading, decoding and the optimizer from this number.",
            )
            .fact("usable", cores.get()),
        Err(error) => Finding::new("cores", Status::Error, error.to_string())
            .means("The number of usable cores is unknown; one is assumed."),
    }
}

pub(super) fn probe_features() -> (Finding, Choice) {
    describe(&features())
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

fn describe(features: &[(&'static str, bool)]) -> (Finding, Choice) {
    let has = |name: &&str| features.iter().any(|(known, there)| known == name && *there);
    let present: Vec<_> =
        features.iter().filter(|(_, there)| *there).map(|(name, _)| *name).collect();
    let level = if ["avx512f", "avx512bw", "avx512vbmi2", "f16c"].iter().all(has) {
        "avx512"
    } else if ["avx2", "f16c"].iter().all(has) {
        "avx2"
    } else {
        "portable"
    };
    let (status, meaning, choice) = match level {
        "avx512" => (Status::Ok, "Codecs run at their fastest level, avx512.", Choice::best(level)),
        "avx2" => {
            (Status::Ok, "Codecs run at level avx2; avx512 would be faster.", Choice::best(level))
        }
        _ => (
            Status::Limited,
            "Codecs run portable code, several times slower than on avx2.",
            Choice::fallback(level, "this processor has no avx2 with f16c"),
        ),
    };
    let shown =
        if present.is_empty() { "none of those looked for".to_owned() } else { present.join(" ") };
    let finding = Finding::new("cpu features", status, shown)
        .means(meaning)
        .fact("present", present)
        .fact("codec_level", level);
    let finding =
        if status == Status::Ok { finding } else { finding.remedy("use a newer processor") };
    (finding, choice)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(present: &[&'static str]) -> (Status, String) {
        let features: Vec<_> = present.iter().map(|name| (*name, true)).collect();
        let (finding, choice) = describe(&features);
        (finding.status, choice.name)
    }

    #[test]
    fn the_codec_level_follows_from_the_features() {
        let best = ["avx2", "f16c", "avx512f", "avx512bw", "avx512vbmi2"];
        assert_eq!(level(&best), (Status::Ok, "avx512".to_owned()));
        assert_eq!(level(&best[..4]), (Status::Ok, "avx2".to_owned()));
        assert_eq!(level(&["avx2", "sse4.2"]), (Status::Limited, "portable".to_owned()));
        assert_eq!(level(&[]), (Status::Limited, "portable".to_owned()));
    }

    #[test]
    fn a_feature_that_is_absent_is_not_shown() {
        let (finding, _) = describe(&[("avx2", false), ("sse4.2", true)]);
        assert_eq!(finding.value, "sse4.2");
    }
}
