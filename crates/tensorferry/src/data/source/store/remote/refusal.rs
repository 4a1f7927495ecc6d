//! What a remote store answers, told as our kinds and with what to do.

use std::error::Error as Cause;

use object_store::client::{HttpError, HttpErrorKind};

use super::settings::Scheme;
use crate::error::{Error, Kind};

/// Where machines in a cloud ask who they are. A request to it that fails means that no other
/// credentials were given.
const METADATA: &str = "169.254.169.254";

/// Tells the answers of a store.
pub(super) struct Refusal {
    pub scheme: Scheme,
}

impl Refusal {
    /// The error as callers know it.
    pub fn told(&self, error: &object_store::Error) -> Error {
        use object_store::Error as Answer;
        let text = error.to_string();
        let told = match error {
            Answer::NotFound { .. } => {
                Error::new(Kind::NotFound, "the object is not there, or not any more")
            }
            Answer::PermissionDenied { .. } | Answer::Unauthenticated { .. } => self.credentials(),
            Answer::NotSupported { .. } | Answer::NotImplemented { .. } => {
                Error::new(Kind::Unsupported, "the store can't do what was asked")
            }
            _ if text.contains(METADATA) || text.contains("metadata.google") => self.credentials(),
            _ => failed(error, &text),
        };
        // Only the text is kept: the error's inside is another crate's.
        told.caused_by(text)
    }

    fn credentials(&self) -> Error {
        let told = format!("the store refuses our credentials; {}", self.scheme.credentials());
        Error::new(Kind::PermissionDenied, told)
    }
}

fn failed(error: &object_store::Error, text: &str) -> Error {
    // object_store's own words for a server that ignores the range it was asked for.
    if text.contains("non-partial response") {
        let told = "the server can't send parts of a file; use one that knows HTTP ranges";
        return Error::new(Kind::Unsupported, told);
    }
    match http_kind(error) {
        Some(HttpErrorKind::Timeout) => {
            let told = "the store doesn't answer in time; storage_options takes `timeout`, \
                        `read_timeout` and `connect_timeout` (\"30 seconds\")";
            Error::new(Kind::Timeout, told)
        }
        Some(HttpErrorKind::Connect) => {
            let told = "can't connect to the store; check its endpoint and the network";
            Error::new(Kind::Io, told).retryable(true)
        }
        _ => Error::new(Kind::Io, "the store failed").retryable(true),
    }
}

/// What the client says at the bottom of an error, if it was the client.
fn http_kind(error: &object_store::Error) -> Option<HttpErrorKind> {
    let mut next: Option<&(dyn Cause + 'static)> = Some(error);
    while let Some(cause) = next {
        if let Some(http) = cause.downcast_ref::<HttpError>() {
            return Some(http.kind());
        }
        next = cause.source();
    }
    None
}
