//! Counters.

/// What an [`Rnic`](crate::Rnic) has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Counters {
    /// FPDUs received whole, with the right CRC.
    pub fpdus_in: u64,
    /// FPDUs that lay in more than one slice of the stream.
    pub fpdus_in_pieces: u64,
    /// FPDUs sent.
    pub fpdus_out: u64,
    /// Messages received whole.
    pub messages_in: u64,
    /// Messages sent whole.
    pub messages_out: u64,
    /// Bytes placed in registered memory.
    pub placed_bytes: u64,
    /// Calls of [`Memory::place`](crate::Memory::place).
    pub place_calls: u64,
    /// Bytes read from registered memory.
    pub gathered_bytes: u64,
    /// Calls of [`Memory::gather`](crate::Memory::gather).
    pub gather_calls: u64,
    /// Atomic operations done for peers.
    pub atomics: u64,
    /// Bytes of peers that came when the stream had ended.
    pub discarded_bytes: u64,
    /// Terminate messages sent.
    pub terminates_out: u64,
    /// Terminate messages received.
    pub terminates_in: u64,
    /// Of those sent: because of a CRC.
    pub crc_errors: u64,
    /// Of those sent: because of a marker or a length.
    pub framing_errors: u64,
    /// Of those sent: because of a segment's header.
    pub header_errors: u64,
    /// Of those sent: because an STag was of no memory.
    pub stag_errors: u64,
    /// Of those sent: because memory was reached for beyond its bounds.
    pub bounds_errors: u64,
    /// Of those sent: because memory does not grant what was asked of it.
    pub access_errors: u64,
    /// Of those sent: because memory is of another protection domain, or another stream.
    pub domain_errors: u64,
    /// Of those sent: because an STag cannot be invalidated by the peer.
    pub invalidate_errors: u64,
    /// Of those sent: because no receive was posted, or a queue of reads was full.
    pub no_buffer_errors: u64,
    /// Of those sent: because a message did not fit its receive.
    pub length_errors: u64,
    /// Of those sent: because of this side's own work, or memory that was gone.
    pub local_errors: u64,
    /// Times that a message has waited for a receive.
    pub receive_waits: u64,
    /// Times that a read or atomic has waited for ORD.
    pub ord_waits: u64,
    /// Times that work has waited for a fence.
    pub fence_waits: u64,
    /// Work that was flushed.
    pub flushed: u64,
    /// Completions that an overrun queue has lost.
    pub lost_completions: u64,
}
