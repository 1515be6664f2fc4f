//! SYNs, and whether one begins another connection where there has been data of one already.
//!
//! A SYN of the wire tells where data begins, and of SACK. But who knows the ports of a connection may
//! send one, which its host does no more than challenge (RFC 5961 section 4.2). So it changes nothing of
//! a flow that has had data; it is remembered. The ports are in use again, and all that was known of the
//! flow is over,
//!
//! - if the host had sent a SYN itself, which this one answers;
//! - if the host answers it with a SYN of its own, and data comes from there;
//! - or, where nothing is heard of the host here, if data comes from just there, outside of what the
//!   flow has had. So a forger needs two packets, and a host whose packets go by another worker.
//!
//! Otherwise data of another connection is far from where the flow was, as a rule (RFC 6528), and the
//! flow goes on there with what it has learnt of the path.

use wire::{Flags, Seq, Tcp, TcpOption};

use crate::Lro;
use crate::descriptor::Descriptor;
use crate::filter::Segment;
use crate::hole::Holes;
use crate::link::Link;
use crate::reorder::WINDOW;
use crate::syn::{PendingSyn, SynState};

/// Option kind: SACK permitted (RFC 2018).
const SACK_PERMITTED: u8 = 4;

fn permits_sack<T: AsRef<[u8]>>(syn: &Tcp<T>) -> bool {
    let permits = |option| matches!(option, Ok(TcpOption::Other { kind: SACK_PERMITTED, .. }));
    syn.options().any(permits)
}

impl Holes {
    /// A SYN of the wire, of which the flow has been told: the second one permits SACK only if the
    /// first has, so the last one tells.
    fn note_wire_syn<T: AsRef<[u8]>>(&mut self, syn: &Tcp<T>) {
        let without_sack = !permits_sack(syn);
        match self.syn.state {
            SynState::None => self.without_sack = without_sack,
            SynState::FromWire => self.syn.without_sack = without_sack,
            SynState::FromHost | SynState::Answered => {}
        }
    }

    /// One of the host; `true` if the flow has had data.
    pub(crate) fn note_host_syn<T: AsRef<[u8]>>(&mut self, syn: &Tcp<T>, has_data: bool) {
        let without_sack = !permits_sack(syn);
        if !has_data {
            self.without_sack = without_sack;
        } else if !syn.flags().any(Flags::ACK) {
            self.syn = PendingSyn { state: SynState::FromHost, ..PendingSyn::default() };
        } else if self.syn.state == SynState::FromWire
            // It acknowledges data on the SYN, or leaves it out (RFC 7413 section 4.2).
            && self.syn.data_at - syn.ack() <= u16::MAX.into()
        {
            self.syn.state = SynState::Answered;
            self.syn.without_sack = without_sack;
        }
    }
}

impl Descriptor {
    /// A connection is being established (the paper, section IV.A): its data begins at `seq`.
    fn starts_at(&mut self, seq: Seq, epoch: u32) {
        self.has_data = false;
        self.holes = Holes::default();
        self.next_seq = seq;
        self.frontier = seq;
        self.epoch = epoch;
        self.begun = true;
        self.send.lose_sight();
    }

    /// Whether the segment shows that another connection has begun.
    fn is_begun_anew_by(&self, segment: &Segment, epoch: u32) -> bool {
        let PendingSyn { data_at, state, .. } = self.holes.syn;
        if self.is_holding() {
            return false;
        }
        match state {
            SynState::None | SynState::FromHost => false,
            SynState::Answered => segment.seq - data_at < WINDOW,
            SynState::FromWire => {
                let ahead = data_at.distance(self.frontier);
                let is_known = self.begun && self.epoch == epoch;
                let is_outside = !is_known || ahead > 0 || ahead.unsigned_abs() > WINDOW;
                segment.seq == data_at && is_outside && self.send.next_seq().is_none()
            }
        }
    }
}

impl<F, L: Link> Lro<F, L> {
    /// A SYN has come by from the wire: the data of its connection begins at `seq`.
    pub(crate) fn begins_at(&mut self, index: u32, seq: Seq) {
        let flow = &mut self.table[index];
        match flow.holes.syn.state {
            SynState::None | SynState::FromWire if flow.has_data => {
                flow.holes.syn =
                    PendingSyn { data_at: seq, without_sack: false, state: SynState::FromWire };
            }
            SynState::Answered => {}
            _ => flow.starts_at(seq, self.epoch),
        }
    }

    /// The same SYN, and its options.
    pub(crate) fn note_wire_syn_options(&mut self, index: u32, bytes: &[u8]) {
        if let Some(syn) = syn::<L>(bytes) {
            self.table[index].holes.note_wire_syn(&syn);
        }
    }

    /// One of the host.
    #[cold]
    pub(crate) fn note_host_syn(&mut self, index: u32, bytes: &[u8]) {
        if let Some(syn) = syn::<L>(bytes) {
            let flow = &mut self.table[index];
            flow.holes.note_host_syn(&syn, flow.has_data);
        }
    }

    /// Begins anew if the segment shows that the flow has.
    #[inline]
    pub(crate) fn may_begin_anew(&mut self, index: u32, segment: &Segment) {
        let flow = &mut self.table[index];
        if flow.holes.syn.is_open() && flow.is_begun_anew_by(segment, self.epoch) {
            let PendingSyn { data_at, without_sack, .. } = flow.holes.syn;
            flow.starts_at(data_at, self.epoch);
            flow.holes.without_sack = without_sack;
        }
    }
}

fn syn<L: Link>(bytes: &[u8]) -> Option<Tcp<&[u8]>> {
    L::packet(bytes).ok()?.tcp().map(|packet| packet.tcp())
}
