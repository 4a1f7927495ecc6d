//! A source as plain data, so that bindings, commands and files describe it in one way.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::store::Options;
use super::tar::{Progress, Tar, TarOptions};
use super::{Files, Folder, Labels, Source, Throttled};
use crate::error::{Error, Result};
use crate::io::Shared;

/// What to open.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Spec {
    /// A directory for each class.
    Folder {
        /// Path or URL of the directory.
        root: String,
        /// Endings of what is listed; without, torchvision's.
        #[serde(default)]
        extensions: Option<Vec<String>>,
        /// Whether a class may have no image.
        #[serde(default)]
        allow_empty: bool,
        /// Settings of a remote store.
        #[serde(default)]
        storage_options: Options,
    },
    /// Tar files in the layout of `WebDataset`.
    Tar {
        /// Which ones; in a list too, braces and wildcards are opened.
        shards: Paths,
        /// The fields of a sample; without, its image or array, and its class if it has one.
        #[serde(default)]
        fields: Option<Vec<String>>,
        /// Whether a shard that is cut or damaged is an error.
        #[serde(default = "yes")]
        strict: bool,
        /// Settings of a remote store.
        #[serde(default)]
        storage_options: Options,
    },
    /// Files, a sample each.
    Files {
        /// Which ones.
        paths: Paths,
        /// What each is labelled with.
        #[serde(default)]
        labels: Option<Labels>,
        /// Settings of remote stores.
        #[serde(default)]
        storage_options: Options,
    },
    /// Another source, slowed down.
    Throttled {
        /// The other source.
        source: Box<Spec>,
        /// What all of its readers share.
        bytes_per_second: u64,
        /// What each fetch takes on top.
        #[serde(default)]
        latency_seconds: f64,
    },
}

/// Names, or a pattern of names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Paths {
    /// A pattern: `data/*.npy`, `shard-{000..012}.tar`.
    Pattern(String),
    /// Names.
    List(Vec<String>),
}

fn yes() -> bool {
    true
}

/// Opens a source, whose local files are read by way of `engine`; `progress` is told what is being indexed.
pub fn open(
    spec: &Spec,
    engine: &Shared,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Arc<dyn Source>> {
    Ok(match spec {
        Spec::Folder { root, extensions, allow_empty, storage_options } => {
            let listed = (extensions.as_deref(), *allow_empty);
            Arc::new(Folder::open(root, listed, engine, storage_options)?)
        }
        Spec::Tar { shards, fields, strict, storage_options } => {
            let fields = fields.as_deref();
            let how = TarOptions { fields, strict: *strict, storage_options, progress };
            Arc::new(Tar::open(shards, engine, &how)?)
        }
        Spec::Files { paths, labels, storage_options } => {
            Arc::new(Files::open(paths, labels.clone(), engine, storage_options)?)
        }
        Spec::Throttled { source, bytes_per_second, latency_seconds } => {
            let latency = Duration::try_from_secs_f64(*latency_seconds).map_err(|_| {
                let told = format!("latency_seconds is {latency_seconds}; it must not be negative");
                Error::invalid(told)
            })?;
            Arc::new(Throttled::new(open(source, engine, progress)?, *bytes_per_second, latency)?)
        }
    })
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn a_description_says_only_what_differs_from_the_usual() {
        let spec = |text| serde_json::from_str::<Spec>(text);
        let tar = spec(r#"{"kind": "tar", "shards": "a-{0..3}.tar"}"#).unwrap();
        let Spec::Tar { shards, fields: None, strict: true, .. } = tar else { panic!("{tar:?}") };
        assert_eq!(shards, Paths::Pattern("a-{0..3}.tar".to_owned()));
        let files = spec(r#"{"kind": "files", "paths": ["a"], "labels": [1, 2.5]}"#).unwrap();
        let Spec::Files { paths, labels, .. } = files else { panic!("{files:?}") };
        assert_eq!(paths, Paths::List(vec!["a".to_owned()]));
        assert_eq!(labels, Some(Labels::Floats(vec![1.0, 2.5])));
        let labels = |text| serde_json::from_str::<Labels>(text).unwrap();
        assert_eq!(labels("[1, 2]"), Labels::Ints(vec![1, 2]));
        assert_eq!(labels("[true, false]"), Labels::Bools(vec![true, false]));
        let Labels::Floats(missing) = labels("[0.5, null]") else { panic!("no floats") };
        assert!(missing[1].is_nan());
        assert_eq!(serde_json::to_string(&Labels::Floats(missing)).unwrap(), "[0.5,null]");
    }

    #[test]
    fn a_misspelt_field_is_refused() {
        let error = serde_json::from_str::<Spec>(r#"{"kind": "folder", "root": "a", "rot": 1}"#);
        assert!(error.unwrap_err().to_string().contains("unknown field `rot`"));
        let error = serde_json::from_str::<Spec>(r#"{"kind": "zip"}"#).unwrap_err();
        assert!(error.to_string().contains("unknown variant `zip`"), "{error}");
    }
}
