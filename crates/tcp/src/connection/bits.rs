//! Yes-or-no state of a connection.

/// Yes-or-no state that nearly every segment needs.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Bits(u32);

macro_rules! bits {
    ($($(#[$doc:meta])* $name:ident, $set:ident = $bit:expr;)*) => {
        impl Bits {
            $(
                $(#[$doc])*
                #[inline]
                pub(crate) fn $name(self) -> bool {
                    self.0 & (1 << $bit) != 0
                }
                #[inline]
                pub(crate) fn $set(&mut self, yes: bool) {
                    self.0 = self.0 & !(1 << $bit) | u32::from(yes) << $bit;
                }
            )*
        }

        /// The names of those that are set.
        impl core::fmt::Debug for Bits {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                let all = [$((self.$name(), stringify!($name)),)*];
                let set = all.into_iter().filter_map(|(is_set, name)| is_set.then_some(name));
                f.debug_set().entries(set).finish()
            }
        }

        // A bit has one meaning.
        const _: () = assert!((0 $(+ (1_u64 << $bit))*) == (0 $(| (1_u64 << $bit))*));
    };
}

bits! {
    /// Timestamps were agreed to.
    timestamps, set_timestamps = 0;
    /// SACK was agreed to.
    sack, set_sack = 1;
    /// ECN was agreed to.
    ecn, set_ecn = 2;
    /// An acknowledgment is to go out at once.
    ack_now, set_ack_now = 3;
    /// The application has closed: a FIN follows the data.
    fin_queued, set_fin_queued = 4;
    /// The FIN was sent at least once.
    fin_sent, set_fin_sent = 5;
    /// Congestion marks are echoed until the peer sends CWR (RFC 3168 section 6.1.3).
    ecn_echo, set_ecn_echo = 6;
    /// The next new data carries CWR (RFC 3168 section 6.1.2).
    cwr_due, set_cwr_due = 7;
    /// Nagle's algorithm is off.
    no_delay, set_no_delay = 8;
    /// Part of a segment is held back (TCP_CORK).
    cork, set_cork = 9;
    /// A SYN, or a SYN with ACK, is to be sent.
    syn_due, set_syn_due = 10;
    /// A segment without data is to be sent that the peer must answer.
    probe_due, set_probe_due = 11;
    /// The window, not the application, bounded what was sent.
    cwnd_limited, set_cwnd_limited = 12;
    /// The exchange is interactive: acknowledgments wait for data (RFC 9293 section 3.8.6.3).
    interactive, set_interactive = 13;
    /// The application has released it.
    released, set_released = 14;
    /// A part of a segment goes out although more might come.
    push_small, set_push_small = 15;
    /// Something stands behind a hole, or the peer's FIN was seen.
    disordered, set_disordered = 16;
    /// SACK has something to report.
    reports, set_reports = 17;
    /// A reset is to be sent.
    reset_due, set_reset_due = 18;
    /// Stands in the stack's queue of those that may transmit.
    ready, set_ready = 19;
    /// Stands in the stack's queue of those that have events.
    eventful, set_eventful = 20;
    /// Stands in the stack's queue of acknowledgments that are held back.
    ack_queued, set_ack_queued = 21;
    /// The peer has sent urgent data that was not read.
    urgent, set_urgent = 22;
    /// Data was received since data was last sent.
    unanswered, set_unanswered = 24;
    /// It was opened by a SYN cookie: it is unknown when the SYN-ACK was sent.
    cookie, set_cookie = 25;
    /// Duplicate acknowledgments are to be sent.
    dup_acks_due, set_dup_acks_due = 26;
    /// The path MTU is known to be smaller than that of the first link.
    mtu_bounded, set_mtu_bounded = 27;
    /// No connection: a vacant place of the slots.
    vacant, set_vacant = 23;
    /// The application could queue nothing for lack of memory, and nothing is queued.
    starved, set_starved = 28;
    /// More was offered than the application has memory for: see [`Lent`](super::lent).
    tight, set_tight = 29;
    /// It is recorded: see [`Stack::trace`](crate::Stack::trace).
    traced, set_traced = 30;
    /// Each acknowledgment of data is an event.
    tells_acks, set_tells_acks = 31;
}
