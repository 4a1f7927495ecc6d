//! The one error type: what kind of thing went wrong, whether trying again can help, where it
//! happened, and what caused it.
//!
//! A message is made of three parts, so that it can be read by a person and matched by a program:
//! a sentence ("write failed"), named context (`file`, `offset`, ...) and the cause. The Python
//! binding maps each [`Kind`] to an exception class of the same name.

use std::any::Any;
use std::fmt;

use rustix::io::Errno;

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What kind of thing went wrong. Callers decide by kind, never by message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// An argument or a combination of arguments makes no sense.
    InvalidInput,
    /// A file, directory or name that must exist does not.
    NotFound,
    /// The operating system refuses access.
    PermissionDenied,
    /// Bytes from outside contradict their format or their checksum.
    Corrupt,
    /// Bytes from outside end too early.
    Truncated,
    /// The disk, or the quota on it, is full.
    OutOfSpace,
    /// A file would grow beyond what its file system or the process limit allows.
    FileTooLarge,
    /// Host or device memory, or a budget of it, is exhausted.
    OutOfMemory,
    /// A limit on waiting has passed.
    Timeout,
    /// The file, engine or queue was closed.
    Closed,
    /// This kernel, device, file system or build can't do what was asked.
    Unsupported,
    /// The storage or the kernel reported a failure.
    Io,
    /// A promise of this crate was broken: a bug.
    Internal,
}

impl Kind {
    /// Every kind, so that bindings can be checked to map them all.
    pub const ALL: [Self; 13] = [
        Self::InvalidInput,
        Self::NotFound,
        Self::PermissionDenied,
        Self::Corrupt,
        Self::Truncated,
        Self::OutOfSpace,
        Self::FileTooLarge,
        Self::OutOfMemory,
        Self::Timeout,
        Self::Closed,
        Self::Unsupported,
        Self::Io,
        Self::Internal,
    ];

    /// The kind's name, the same in every language.
    pub const fn name(self) -> &'static str {
        match self {
            Self::InvalidInput => "InvalidInput",
            Self::NotFound => "NotFound",
            Self::PermissionDenied => "PermissionDenied",
            Self::Corrupt => "Corrupt",
            Self::Truncated => "Truncated",
            Self::OutOfSpace => "OutOfSpace",
            Self::FileTooLarge => "FileTooLarge",
            Self::OutOfMemory => "OutOfMemory",
            Self::Timeout => "Timeout",
            Self::Closed => "Closed",
            Self::Unsupported => "Unsupported",
            Self::Io => "Io",
            Self::Internal => "Internal",
        }
    }

    fn of(errno: Errno) -> Self {
        match errno {
            Errno::INVAL | Errno::ISDIR | Errno::NOTDIR | Errno::NAMETOOLONG => Self::InvalidInput,
            Errno::NOENT => Self::NotFound,
            Errno::ACCESS | Errno::PERM | Errno::ROFS => Self::PermissionDenied,
            Errno::NOSPC | Errno::DQUOT => Self::OutOfSpace,
            Errno::FBIG => Self::FileTooLarge,
            Errno::NOMEM => Self::OutOfMemory,
            Errno::TIMEDOUT | Errno::TIME => Self::Timeout,
            Errno::BADF | Errno::CANCELED | Errno::SHUTDOWN => Self::Closed,
            Errno::NOSYS | Errno::OPNOTSUPP => Self::Unsupported,
            _ => Self::Io,
        }
    }

    /// Time or another process may mend these; nothing else will.
    const fn may_pass(self) -> bool {
        matches!(self, Self::Timeout | Self::OutOfSpace | Self::OutOfMemory)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Something went wrong; see the [module](self).
pub struct Error(Box<Details>);

type Cause = Box<dyn std::error::Error + Send + Sync>;

struct Details {
    kind: Kind,
    retryable: bool,
    message: String,
    context: Vec<(&'static str, String)>,
    cause: Option<Cause>,
}

impl Error {
    /// An error of this kind; `message` is a sentence without a full stop.
    #[cold]
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self(Box::new(Details {
            kind,
            retryable: kind.may_pass(),
            message: message.into(),
            context: Vec::new(),
            cause: None,
        }))
    }

    /// Shorthand for the most common kind.
    #[cold]
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Kind::InvalidInput, message)
    }

    /// An error from the operating system; its kind follows from the code.
    #[cold]
    pub fn from_errno(errno: Errno, message: impl Into<String>) -> Self {
        Self::new(Kind::of(errno), message)
            .caused_by(std::io::Error::from_raw_os_error(errno.raw_os_error()))
    }

    /// An error from the standard library; its kind follows from the code underneath, if any.
    #[cold]
    pub fn from_io(error: std::io::Error, message: impl Into<String>) -> Self {
        let kind = match (error.raw_os_error(), error.kind()) {
            (Some(code), _) => Kind::of(Errno::from_raw_os_error(code)),
            (None, std::io::ErrorKind::UnexpectedEof) => Kind::Truncated,
            (None, std::io::ErrorKind::InvalidData) => Kind::Corrupt,
            (None, std::io::ErrorKind::InvalidInput) => Kind::InvalidInput,
            (None, _) => Kind::Io,
        };
        Self::new(kind, message).caused_by(error)
    }

    /// Adds a named fact: which file, which offset.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl fmt::Display) -> Self {
        self.0.context.push((name, value.to_string()));
        self
    }

    /// Adds the error underneath.
    #[must_use]
    pub fn caused_by(mut self, cause: impl Into<Cause>) -> Self {
        self.0.cause = Some(cause.into());
        self
    }

    /// Overrides whether trying again can help.
    #[must_use]
    pub fn retryable(mut self, retryable: bool) -> Self {
        self.0.retryable = retryable;
        self
    }

    /// The same error, told as another kind: for callers that know better what a code means.
    #[must_use]
    pub fn of_kind(mut self, kind: Kind) -> Self {
        self.0.kind = kind;
        self.0.retryable = kind.may_pass();
        self
    }

    /// What kind of thing went wrong.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// Whether the same call may succeed later without a change by the caller.
    pub fn is_retryable(&self) -> bool {
        self.0.retryable
    }

    /// What the operating system said, if that is the cause.
    pub(crate) fn errno(&self) -> Option<Errno> {
        let said = self.0.cause.as_ref()?.downcast_ref::<std::io::Error>()?;
        said.raw_os_error().map(Errno::from_raw_os_error)
    }

    /// The named facts, in the order in which they were added.
    pub fn context(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.0.context.iter().map(|(name, value)| (*name, value.as_str()))
    }
}

/// What a panic said, for those who turn one into an error.
pub fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let fixed = panic.downcast_ref::<&str>().copied();
    let made = || panic.downcast_ref::<String>().map(String::as_str);
    fixed.or_else(made).unwrap_or("a panic without a message")
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        for (position, (name, value)) in self.0.context.iter().enumerate() {
            write!(f, "{}{name}: {value}", if position == 0 { " (" } else { ", " })?;
        }
        if !self.0.context.is_empty() {
            f.write_str(")")?;
        }
        self.0.cause.as_ref().map_or(Ok(()), |cause| write!(f, ": {cause}"))
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {self}", self.0.kind)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.cause.as_ref().map(|cause| &**cause as &(dyn std::error::Error + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_reads_as_sentence_context_and_cause() {
        let error = Error::from_errno(Errno::NOSPC, "write failed")
            .with("file", "/scratch/a")
            .with("offset", 4096);
        assert_eq!(
            error.to_string(),
            "write failed (file: /scratch/a, offset: 4096): No space left on device (os error 28)"
        );
        assert_eq!(error.kind(), Kind::OutOfSpace);
        assert!(error.is_retryable());
    }

    #[test]
    fn every_kind_is_listed_once_under_its_own_name() {
        let mut names: Vec<_> = Kind::ALL.iter().map(|kind| kind.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Kind::ALL.len());
        for kind in Kind::ALL {
            assert_eq!(kind.name(), format!("{kind:?}"));
        }
    }

    #[test]
    fn the_operating_systems_codes_become_the_kinds_callers_match_on() {
        for (errno, kind) in [
            (Errno::IO, Kind::Io),
            (Errno::NOSPC, Kind::OutOfSpace),
            (Errno::DQUOT, Kind::OutOfSpace),
            (Errno::FBIG, Kind::FileTooLarge),
            (Errno::BADF, Kind::Closed),
            (Errno::NOENT, Kind::NotFound),
            (Errno::ROFS, Kind::PermissionDenied),
        ] {
            assert_eq!(Error::from_errno(errno, "x").kind(), kind, "{errno:?}");
        }
    }
}
