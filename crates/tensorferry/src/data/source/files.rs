//! Files named by the caller, with labels if there are any.

use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};

use super::names::{Names, common_ending, ending};
use super::spec::Paths;
use super::store::{Located, Options, Store, Stores};
use super::{Label, Source, pattern};
use crate::data::sample::Raw;
use crate::error::{Error, Kind, Result};
use crate::io::Shared;

/// What each file is labelled with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Labels {
    /// Whole numbers.
    Ints(Vec<i64>),
    /// Yes or no.
    Bools(Vec<bool>),
    /// Numbers; what is none is `null` in JSON.
    Floats(#[serde(deserialize_with = "nan_of_null")] Vec<f64>),
}

fn nan_of_null<'de, D: Deserializer<'de>>(given: D) -> std::result::Result<Vec<f64>, D::Error> {
    let labels = Vec::<Option<f64>>::deserialize(given)?;
    Ok(labels.into_iter().map(|label| label.unwrap_or(f64::NAN)).collect())
}

impl Labels {
    fn len(&self) -> usize {
        match self {
            Self::Ints(labels) => labels.len(),
            Self::Bools(labels) => labels.len(),
            Self::Floats(labels) => labels.len(),
        }
    }
}

/// Files anywhere, a sample each.
pub struct Files {
    stores: Vec<Arc<dyn Store>>,
    /// Which store each file is in; empty if there is but one.
    stored: Vec<u16>,
    names: Names,
    sizes: Vec<u64>,
    labels: Option<Labels>,
    fields: Vec<String>,
}

impl Files {
    /// Takes a list as it stands, or whatever matches a pattern, in order.
    pub fn open(
        paths: &Paths,
        labels: Option<Labels>,
        engine: &Shared,
        options: &Options,
    ) -> Result<Self> {
        let mut stores = Stores::new(engine, options);
        let found = match paths {
            Paths::List(paths) => listed(paths, &mut stores)?,
            Paths::Pattern(pattern) => matched(pattern, &mut stores)?,
        };
        let Found { mut stored, names, sizes } = found;
        if let Some(labels) = &labels
            && labels.len() != names.len()
        {
            let told = format!("there are {} files and {} labels", names.len(), labels.len());
            return Err(Error::invalid(format!("{told}; give a label for each file")));
        }
        if stored.iter().all(|store| *store == 0) {
            stored = Vec::new();
        }
        let fields = vec![common_ending(names.iter().map(ending))];
        Ok(Self { stores: stores.all(), stored, names, sizes, labels, fields })
    }

    fn store(&self, index: usize) -> &dyn Store {
        &*self.stores[self.stored.get(index).map_or(0, |store| usize::from(*store))]
    }
}

impl Source for Files {
    fn len(&self) -> usize {
        self.sizes.len()
    }

    fn name(&self, index: usize) -> String {
        self.store(index).name(self.names.path(index))
    }

    fn bytes(&self, index: usize) -> u64 {
        self.sizes[index]
    }

    fn fields(&self) -> &[String] {
        &self.fields
    }

    fn label(&self, index: usize) -> Label {
        match &self.labels {
            None => Label::None,
            Some(Labels::Ints(labels)) => Label::Int(labels[index]),
            Some(Labels::Bools(labels)) => Label::Bool(labels[index]),
            Some(Labels::Floats(labels)) => Label::Float(labels[index]),
        }
    }

    fn is_remote(&self) -> bool {
        self.stores.iter().any(|store| store.is_remote())
    }

    fn fetch(&self, index: usize) -> Result<Raw> {
        self.store(index).fetch(self.names.path(index), self.sizes[index])
    }
}

#[derive(Default)]
struct Found {
    stored: Vec<u16>,
    names: Names,
    sizes: Vec<u64>,
}

fn number(store: usize) -> Result<u16> {
    u16::try_from(store).map_err(|_| Error::invalid("the files are in more than 65536 stores"))
}

/// Measures files in the order in which they were named.
fn listed(paths: &[String], stores: &mut Stores<'_>) -> Result<Found> {
    let mut found = Found { sizes: vec![0; paths.len()], ..Found::default() };
    // By store: its names, and where in the list each stands.
    let mut apart: Vec<(Names, Vec<usize>)> = Vec::new();
    for (at, path) in paths.iter().enumerate() {
        let located = Located::of(path)?;
        let store = stores.at(&located.root)?;
        if store == apart.len() {
            apart.push(Default::default());
        }
        apart[store].0.push(located.path.as_bytes());
        apart[store].1.push(at);
        found.names.push(located.path.as_bytes());
        found.stored.push(number(store)?);
    }
    for (store, (names, places)) in apart.into_iter().enumerate() {
        let sizes = stores.get(store).sizes(&names)?;
        places.into_iter().zip(sizes).for_each(|(at, bytes)| found.sizes[at] = bytes);
    }
    Ok(found)
}

/// Everything that a pattern stands for; nothing is an error, because it is a slip of the keyboard.
fn matched(pattern: &str, stores: &mut Stores<'_>) -> Result<Found> {
    let mut found = Found::default();
    for name in pattern::expand(pattern)? {
        let located = Located::of(&name)?;
        let store = stores.at(&located.root)?;
        for (path, bytes) in matches(&**stores.get(store), &located.path)? {
            found.names.push(path.as_os_str().as_encoded_bytes());
            found.stored.push(number(store)?);
            found.sizes.push(bytes);
        }
    }
    if found.names.is_empty() {
        let told = "no file matches the pattern; a list of paths is taken as it stands";
        return Err(Error::new(Kind::NotFound, told).with("pattern", pattern));
    }
    Ok(found)
}

/// What one name without braces stands for, with bytes.
fn matches(store: &dyn Store, name: &str) -> Result<Vec<(PathBuf, u64)>> {
    if pattern::is_glob(name) {
        return store.matching(name);
    }
    let sizes = store.sizes(&[name].iter().collect())?;
    Ok(sizes.into_iter().map(|bytes| (PathBuf::from(name), bytes)).collect())
}
