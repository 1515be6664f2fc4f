//! One error for the control plane: the operation, the interface, and the kernel's error.

use std::borrow::Cow;
use std::io;

/// A control-plane operation that the kernel refused.
///
/// Its text is one line meant for the person at the terminal, for example
/// `cannot set the MTU of eth0: Invalid argument (os error 22): mtu greater than device maximum`.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation}{}: {cause}{}", Suffix(" ", .interface), Suffix(": ", .detail))]
pub struct Error {
    operation: Cow<'static, str>,
    interface: Option<String>,
    detail: Option<String>,
    cause: io::Error,
}

/// A control-plane result.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of `operation`, which reads after the word "cannot".
    pub fn new(operation: impl Into<Cow<'static, str>>, cause: io::Error) -> Self {
        Self { operation: operation.into(), interface: None, detail: None, cause }
    }

    /// Names the interface; `operation` then ends in the preposition before it ("the MTU of").
    #[must_use]
    pub fn on(mut self, interface: impl Into<String>) -> Self {
        self.interface = Some(interface.into());
        self
    }

    /// Adds what else is known about the cause, such as the kernel's extended acknowledgement.
    #[must_use]
    pub fn because(mut self, detail: Option<String>) -> Self {
        self.detail = detail;
        self
    }

    /// The kernel's error number (`errno`), if the failure came from a system call.
    pub fn errno(&self) -> Option<i32> {
        self.cause.raw_os_error()
    }

    /// The kind of the underlying error.
    pub fn kind(&self) -> io::ErrorKind {
        self.cause.kind()
    }

    /// The interface that was operated on, if there was one.
    pub fn interface(&self) -> Option<&str> {
        self.interface.as_deref()
    }

    /// Whether the thing operated on does not exist (`ENODEV`, `ENOENT`, `ENXIO`).
    pub fn is_missing(&self) -> bool {
        matches!(self.errno(), Some(libc::ENODEV | libc::ENOENT | libc::ENXIO))
    }

    /// Returns true if the interface is down (`ENETDOWN`).
    pub fn is_down(&self) -> bool {
        self.errno() == Some(libc::ENETDOWN)
    }

    /// Whether privilege is what was missing (`EPERM`, `EACCES`).
    pub fn is_permission(&self) -> bool {
        matches!(self.errno(), Some(libc::EPERM | libc::EACCES))
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        io::Error::new(error.kind(), error)
    }
}

/// Prints a separator and a value where there is one.
struct Suffix<'a>(&'static str, &'a Option<String>);

impl std::fmt::Display for Suffix<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.1 {
            Some(value) => write!(f, "{}{value}", self.0),
            None => Ok(()),
        }
    }
}

/// The `errno` of the call just made when it returned a negative number, else its value.
pub(crate) fn check(value: libc::c_int) -> io::Result<libc::c_int> {
    if value < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}
