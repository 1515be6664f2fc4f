//! What is being sent.

/// A message of which the first part is in the stream, or about to be.
#[derive(Clone, Copy, Debug)]
pub(super) enum Current {
    /// The response at the head of the queue.
    Response {
        /// Bytes that are in the stream.
        sent: u32,
    },
    /// A piece of work.
    Work(Sending),
}

/// How much of a piece of work is in the stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sending {
    pub(super) place: u32,
    /// Bytes of the message.
    pub(super) sent: u32,
    /// The element that is read, and how far.
    pub(super) sge: usize,
    pub(super) sge_offset: u32,
    /// The write is in the stream, its immediate data are not.
    pub(super) immediate: bool,
}

impl Current {
    /// Whether it is this work, and a part of it is in the stream.
    pub(super) fn has_begun(&self, place: u32) -> bool {
        match self {
            Current::Work(sending) => {
                sending.place == place && (sending.sent > 0 || sending.immediate)
            }
            Current::Response { .. } => false,
        }
    }
}
