//! What a service counts.

/// What a service counts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct ServiceCounters {
    /// Connections there are now.
    pub(crate) connections: u64,
    /// Those that came to the service, or were opened by it.
    pub(crate) begun: u64,
    /// Those that ended.
    pub(crate) ended: u64,
    /// Those of them that did not end in order.
    pub(crate) failed: u64,
    /// Bytes that the service has read.
    pub(crate) bytes_read: u64,
    /// Bytes that it has written.
    pub(crate) bytes_written: u64,
    /// Connections on which something else came than was sent, where that is looked at.
    pub(crate) mismatches: u64,
}
