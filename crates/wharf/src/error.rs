//! Why a command failed: one line that says what is wrong and what to do about it.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use nic::capture::CaptureError;
use nic::config::ConfigError;
use nic::control::ClientError;
use nic::degen::SettingError;
use sys::tap::TapError;

/// See the module's documentation.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// What was asked for cannot be.
    #[error("{0}")]
    Usage(String),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Degen(#[from] SettingError),
    #[error("cannot read the configuration file {}: {cause}", path.display())]
    ReadConfig { path: PathBuf, cause: io::Error },
    #[error("cannot read {}: {cause}", path.display())]
    Input { path: PathBuf, cause: CaptureError },
    #[error("cannot create {}: {cause}", path.display())]
    Create { path: PathBuf, cause: io::Error },
    #[error("cannot write {}: {cause}", path.display())]
    Output { path: PathBuf, cause: CaptureError },
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Nic(#[from] nic::Error),
    #[error(transparent)]
    Rdma(#[from] device::ServeError),
    #[error(transparent)]
    Bench(#[from] bench::Error),
    #[error("{error}{hint}", error = .0, hint = privilege_hint(.0))]
    Sys(#[from] sys::Error),
    /// The demo's connections.
    #[error("{0}")]
    Traffic(String),
    #[error("connection {connection} of the demo did not carry the bytes that were sent")]
    Corrupt { connection: usize },
    #[error("cannot write to standard output: {0}")]
    Stdout(#[source] io::Error),
    #[error("the host interface {0} was deleted, so wharf has ended")]
    HostGone(String),
    /// The process that puts the wire back.
    #[error("cannot run the guard, which would put everything back (it needs /proc): {0}")]
    Guard(#[source] io::Error),
    /// The guard's, which wharf puts right or reports.
    #[error("{0}")]
    LeftToOthers(#[source] Box<Error>),
    /// What was measured could not be kept.
    #[error(transparent)]
    Results(bench::paper::StoreError),
    /// Some of what was asked for could not be measured, for these reasons.
    #[error("not all could be measured: {0}")]
    Incomplete(String),
    /// What a service was to do was not done.
    #[error("{0}")]
    Service(String),
    #[error("{0}")]
    Io(#[source] io::Error),
}

impl Error {
    /// The output is not read any more.
    pub(crate) fn is_broken_pipe(&self) -> bool {
        matches!(self, Error::Stdout(cause) if cause.kind() == io::ErrorKind::BrokenPipe)
    }

    /// 2 for what the caller can put right (bad input, missing privilege), 1 for what failed
    /// on the way.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(if self.is_the_callers() { 2 } else { 1 })
    }

    fn is_the_callers(&self) -> bool {
        match self {
            Error::Usage(_)
            | Error::Config(_)
            | Error::Degen(_)
            | Error::ReadConfig { .. }
            | Error::Input { .. }
            | Error::Create { .. } => true,
            Error::Client(error) => !matches!(error, ClientError::Lost { .. }),
            Error::Nic(error) => match error {
                nic::Error::NoWire { .. }
                | nic::Error::NotEthernet { .. }
                | nic::Error::Duplicate { .. }
                | nic::Error::Permission { .. }
                | nic::Error::XdpBusy { .. }
                | nic::Error::Memory { .. }
                | nic::Error::Workers { .. }
                | nic::Error::SeveralWans { .. } => true,
                nic::Error::Tap(error) => !matches!(error, TapError::Os { .. }),
                nic::Error::Sys(error) => error.is_permission(),
                _ => false,
            },
            Error::Rdma(error) => !matches!(error, device::ServeError::Os(_)),
            Error::Bench(bench::Error::Usage(_)) => true,
            Error::Bench(bench::Error::Sys(error)) => error.is_permission(),
            Error::Sys(error) => error.is_permission(),
            Error::Bench(_)
            | Error::Output { .. }
            | Error::Traffic(_)
            | Error::Corrupt { .. }
            | Error::Stdout(_)
            | Error::HostGone(_)
            | Error::Guard(_)
            | Error::LeftToOthers(_)
            | Error::Results(_)
            | Error::Incomplete(_)
            | Error::Service(_)
            | Error::Io(_) => false,
        }
    }
}

fn privilege_hint(error: &sys::Error) -> &'static str {
    if error.is_permission() { "; run as root" } else { "" }
}
