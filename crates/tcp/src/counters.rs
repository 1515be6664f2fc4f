//! Counters of a stack.

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What happened since the stack was made.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            /// All of them, with their names.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Segments received.
    segments_in,
    /// Segments handed out to be sent; a super-packet counts as one.
    segments_out,
    /// Connections that we opened.
    active_opens,
    /// Connections that peers opened.
    passive_opens,
    /// Connections that ended without both having closed.
    failures,
    /// Connections taken away as a snapshot.
    frozen,
    /// Connections made of a snapshot.
    thawed,
    /// Segments sent again.
    retransmissions,
    /// Bytes of them.
    retransmitted_bytes,
    /// Retransmission time-outs.
    timeouts,
    /// Time-outs that were spurious (RFC 5682, RFC 3522).
    spurious_timeouts,
    /// Fast recoveries.
    recoveries,
    /// Fast recoveries that were undone.
    undone,
    /// Tail loss probes (RFC 8985).
    tail_probes,
    /// Zero-window probes.
    window_probes,
    /// Acknowledgments sent by themselves.
    pure_acks,
    /// Of these, duplicates for segments out of order (RFC 5681 section 4.2).
    duplicate_acks,
    /// Acknowledgments sent by the delayed acknowledgment timer.
    delayed_acks,
    /// Segments that came out of order.
    out_of_order,
    /// Segments not kept because there were too many holes already.
    ofo_full,
    /// Segments outside of the window.
    out_of_window,
    /// Segments with an old timestamp (PAWS).
    old_timestamps,
    /// Segments without the timestamp that was agreed to; they are taken.
    without_timestamp,
    /// Segments without ACK where there must be one.
    without_ack,
    /// Acknowledgments of what was never sent, or long ago (RFC 5961).
    bad_acks,
    /// Resets that were ignored.
    bad_resets,
    /// Resets answered by a challenge (RFC 5961).
    challenged_resets,
    /// SYNs answered by a challenge (RFC 5961).
    challenged_syns,
    /// Urgent pointers.
    urgent,
    /// ICMP messages about nothing that is in flight (RFC 5927).
    bad_icmp,
    /// ICMP messages without effect, as the connection is established.
    soft_icmp,
    /// Black holes: paths that drop large segments without an ICMP message.
    black_holes,
    /// Segments for which there is no connection and no listener: answered by a reset.
    resets,
    /// Answers that were not sent because too many waited.
    answers_dropped,
    /// SYN cookies sent.
    cookies_sent,
    /// Connections made from a SYN cookie.
    cookies_accepted,
    /// SYNs dropped because there are as many connections as there may be.
    table_full,
    /// SYNs, and answers to cookies, refused because memory was short.
    syns_refused,
    /// Windows that were made smaller, or grew less, because memory was short.
    windows_short,
    /// Writes of which less was taken because memory was short.
    writes_short,
    /// Blocks out of order that were forgotten, or not kept, because memory was short.
    pruned,
}
