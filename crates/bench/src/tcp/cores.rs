//! A CPU for each of the two hosts, as if they were two machines.

/// The CPUs of the two hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cores {
    pub(super) server: usize,
    pub(super) client: usize,
}

impl Cores {
    /// Two of those that this process may use, if it may use two.
    pub(super) fn choose() -> Option<Cores> {
        match sys::affinity::cpus().ok()?[..] {
            [server, client, ..] => Some(Cores { server, client }),
            _ => None,
        }
    }
}

/// Puts the calling thread, and what it starts, on a CPU.
pub(super) fn enter(core: Option<usize>) -> std::io::Result<()> {
    core.map_or(Ok(()), sys::affinity::pin)
}
