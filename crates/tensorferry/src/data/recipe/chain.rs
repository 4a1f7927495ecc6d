//! Steps in their order.

use super::step::Step;
use crate::error::{Error, Result};

/// What is done with one field of every sample: steps, one after the other.
///
/// An empty chain gives what is stored: pictures as float32 from 0 to 1 in the order channels,
/// height, width, arrays as they are.
///
/// ```
/// use tensorferry::data::recipe::Chain;
///
/// let chain = Chain::from_json(r#"[
///     {"name": "RandomResizedCrop", "size": 224},
///     {"name": "RandomHorizontalFlip"},
///     {"name": "Normalize", "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
/// ]"#)?;
/// assert_eq!(chain.steps().len(), 3);
/// # Ok::<(), tensorferry::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Chain(Vec<Step>);

impl Chain {
    /// A chain of these steps.
    pub fn new(steps: impl Into<Vec<Step>>) -> Self {
        Self(steps.into())
    }

    /// A chain from its text: a list of steps, each an object with a `name` and its arguments.
    pub fn from_json(text: &str) -> Result<Self> {
        let steps = serde_json::from_str(text);
        steps.map(Self).map_err(|error| Error::invalid(format!("the transform is wrong: {error}")))
    }

    /// The steps.
    pub fn steps(&self) -> &[Step] {
        &self.0
    }

    /// An error that says which step has no meaning for `what`.
    pub(super) fn refuse(step: &Step, what: &str) -> Error {
        Error::invalid(format!("{} is no step for {what}", step.name()))
    }
}
