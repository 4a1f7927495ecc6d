//! What a remote store answers, told as our kinds and with what to do.

use std::error::Error as Cause;

use object_store::client::{HttpError, HttpErrorKind};

use super::settings::Scheme;
use crate::error::{Error, Kind};

/// Where machines in a cloud ask who they are. A request to it that fails means that no other
/// credentials were given.
const METADATA: &str = "169.254.169.254";

/// The error of a store as callers know it.
pub(super) fn told(scheme: Scheme, error: &object_store::Error) -> Error {
    use object_store::Error as Answer;
    let text = error.to_string();
    let told = match error {
        Answer::NotFound { .. } => missing(),
        Answer::PermissionDenied { .. } | Answer::Unauthenticated { .. } => credentials(scheme),
        Answer::NotSupported { .. } if text.contains("Range request") => {
            let told = "the server can't send parts of a file; use one that knows HTTP ranges";
            Error::new(Kind::Unsupported, told)
        }
        Answer::NotSupported { .. } | Answer::NotImplemented { .. } => {
            Error::new(Kind::Unsupported, "the store can't do what was asked")
        }
        _ if text.contains(METADATA) || text.contains("metadata.google") => credentials(scheme),
        _ => match status(&text) {
            Some(401 | 403) => credentials(scheme),
            Some(404) => missing(),
            _ => failed(error),
        },
    };
    // Only the text is kept: the error's inside is another crate's.
    told.caused_by(text)
}

fn missing() -> Error {
    Error::new(Kind::NotFound, "the object or its bucket is not there, or not any more")
}

fn credentials(scheme: Scheme) -> Error {
    let told = format!("the store refuses our credentials; {}", scheme.credentials());
    Error::new(Kind::PermissionDenied, told)
}

fn failed(error: &object_store::Error) -> Error {
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

/// The status in the text of an error. A list that is refused keeps it nowhere else that we can
/// reach.
fn status(text: &str) -> Option<u16> {
    let (_, rest) = text.split_once("status code: ")?;
    rest.get(..3)?.parse().ok()
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
