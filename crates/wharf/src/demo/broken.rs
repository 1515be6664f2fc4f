//! A connection of the demo that did not get to its end: which, when and how.

use std::fmt::{self, Display, Formatter};
use std::io;
use std::time::{Duration, Instant};

/// What an end was doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// The client opened it.
    Opening,
    /// Its data was sent.
    Sending,
    /// Its data was received.
    Receiving,
}

impl Display for Phase {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Phase::Opening => "opening",
            Phase::Sending => "sending",
            Phase::Receiving => "receiving",
        })
    }
}

/// One end of a connection, from its first byte on.
#[derive(Debug)]
pub(super) struct Course {
    phase: Phase,
    bytes: u64,
    moved: Instant,
}

impl Course {
    pub(super) fn begin(phase: Phase) -> Self {
        Course { phase, bytes: 0, moved: Instant::now() }
    }

    pub(super) fn moved(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        self.moved = Instant::now();
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// It went no further.
    pub(super) fn broken(&self, cause: io::Error) -> Broken {
        Broken { phase: self.phase, bytes: self.bytes, stood: self.moved.elapsed(), cause }
    }
}

/// Where an end of a connection broke off.
#[derive(Debug)]
pub(crate) struct Broken {
    phase: Phase,
    /// How many had gone before.
    bytes: u64,
    /// Since the last of them.
    stood: Duration,
    cause: io::Error,
}

impl Display for Broken {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Broken { phase, bytes, stood, cause } = self;
        let stood = stood.as_secs_f64();
        match cause.kind() {
            // A socket's timeout is said as EAGAIN (socket(7), SO_RCVTIMEO).
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                write!(f, "stood still for {stood:.1} s while {phase}")?;
            }
            _ => write!(f, "failed while {phase} ({cause}), {stood:.1} s after it last moved")?,
        }
        match phase {
            Phase::Opening => Ok(()),
            Phase::Sending | Phase::Receiving => write!(f, ", after {bytes} B"),
        }
    }
}

/// The connections of a run that did not get to their end.
#[derive(Debug)]
pub(crate) struct Failure {
    /// Of how many.
    pub(super) connections: usize,
    /// Which, from 1, and how, in order; both ends of one may be among them.
    pub(super) broken: Vec<(usize, Broken)>,
    /// Which way the bytes went.
    pub(super) way: &'static str,
    /// What was dropped where, once that is known.
    pub(super) dropped: String,
}

impl Display for Failure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Failure { connections, broken, way, dropped } = self;
        // That which stood still the longest was the first to.
        let Some((number, first)) = broken.iter().max_by_key(|(_, broken)| broken.stood) else {
            return write!(f, "a connection of the demo failed; {dropped}");
        };
        write!(f, "connection {number} of {connections} of the demo, {way}, {first}")?;
        let mut others: Vec<usize> = broken.iter().map(|(number, _)| *number).collect();
        others.sort_unstable();
        others.dedup();
        match others.len() - 1 {
            0 => {}
            more => write!(f, " ({more} more did not end either)")?,
        }
        write!(f, "; {dropped}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(phase: Phase, bytes: u64, seconds: u64, kind: io::ErrorKind) -> Broken {
        Broken { phase, bytes, stood: Duration::from_secs(seconds), cause: kind.into() }
    }

    #[test]
    fn the_line_names_the_one_that_stood_still_first() {
        let failure = Failure {
            connections: 1000,
            broken: vec![
                (7, broken(Phase::Receiving, 12, 10, io::ErrorKind::WouldBlock)),
                (7, broken(Phase::Sending, 4096, 11, io::ErrorKind::WouldBlock)),
                (9, broken(Phase::Receiving, 0, 10, io::ErrorKind::WouldBlock)),
            ],
            way: "client to server",
            dropped: "nothing was counted as dropped".to_owned(),
        };
        assert_eq!(
            failure.to_string(),
            "connection 7 of 1000 of the demo, client to server, stood still for 11.0 s while \
             sending, after 4096 B (1 more did not end either); nothing was counted as dropped"
        );
    }

    #[test]
    fn another_failure_keeps_the_kernels_word() {
        let reset = broken(Phase::Receiving, 5, 2, io::ErrorKind::ConnectionReset);
        let text = reset.to_string();
        assert!(text.starts_with("failed while receiving (connection reset)"), "{text}");
        let opening = broken(Phase::Opening, 0, 10, io::ErrorKind::TimedOut).to_string();
        assert_eq!(opening, "stood still for 10.0 s while opening");
    }
}
