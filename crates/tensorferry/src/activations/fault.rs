//! What went wrong in a step: raised by every later call for that step.

use crate::error::{Error, Kind};

/// The first failure of a step, which can be raised any number of times.
#[derive(Debug, Clone)]
pub(super) struct StepFault {
    kind: Kind,
    message: String,
}

impl StepFault {
    /// The failure `error`, of the tensor that the step saved as number `index`.
    pub fn new(error: &Error, index: usize, tensor: &str) -> Self {
        Self { kind: error.kind(), message: format!("{error} (activation {index}: {tensor})") }
    }

    /// The failure as an error.
    pub fn error(&self) -> Error {
        Error::new(self.kind, self.message.clone())
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn a_fault_names_its_tensor_and_is_raised_as_often_as_somebody_asks() {
        let fault = StepFault::new(&Error::new(Kind::Corrupt, "damaged"), 3, "relu");
        for error in [fault.error(), fault.error()] {
            assert_eq!(error.kind(), Kind::Corrupt);
            assert_eq!(error.to_string(), "damaged (activation 3: relu)");
        }
    }
}
