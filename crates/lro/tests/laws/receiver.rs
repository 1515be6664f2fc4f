//! A host's TCP as the RFCs have it, as far as what comes in goes: RFC 9293 section 3.10.7.4 with
//! RFC 5961 for RST and SYN, and PAWS by RFC 7323 sections 4.3 and 5.3. It acknowledges every
//! segment at once, and its application reads at once, so that its window is always as large. If it is
//! said what it has sent, it drops what acknowledges more, or what is too old, as Linux's `tcp_ack` does
//! (RFC 5961 section 5.2).

use super::naive::{ACK, FIN, RST, SYN, Tcp, URG};
use super::rules::is_before;
use super::run::Step;

/// A segment, one byte of payload after the other with the frame that brought it.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) packet: Tcp,
    /// Frames and how many bytes of each.
    pub(crate) from: Vec<(usize, usize)>,
    /// The step that brought it to the host.
    pub(crate) step: usize,
}

/// What became of a segment's data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// Taken, as far as it was new.
    Taken,
    /// Not in the window.
    Outside,
    /// An old duplicate by its TSval.
    Paws,
    /// Its acknowledgment is of nothing that was sent, or too old.
    Unacceptable,
    /// The connection is over, or the segment no data's.
    Ignored,
}

#[derive(Clone, Debug)]
pub(crate) struct Receiver {
    window: u32,
    /// Where the stream begins.
    first: u32,
    rcv_nxt: u32,
    /// The stream, in order or not: each byte with the frame that brought it first.
    pub(crate) stream: Vec<Option<(u8, usize)>>,
    fin_at: Option<u32>,
    pub(crate) finished: bool,
    pub(crate) reset: bool,
    /// Where urgent data ends, each time that it was told.
    pub(crate) urgent: Vec<u32>,
    pub(crate) ts_recent: Option<u32>,
    last_ack_sent: u32,
    pub(crate) snd_una: u32,
    pub(crate) snd_wnd: usize,
    snd_wl1: u32,
    snd_wl2: u32,
    /// SND.NXT and MAX.SND.WND; as much has been acknowledged as the latter is.
    sent: Option<(u32, u32)>,
}

impl Receiver {
    /// A host whose peer continues, or begins, with this packet.
    pub(crate) fn expecting(first: &Tcp, window: u32) -> Receiver {
        let syn = first.has(SYN);
        let at = first.seq().wrapping_add(syn.into());
        Receiver {
            window,
            first: at,
            rcv_nxt: at,
            stream: Vec::new(),
            fin_at: None,
            finished: false,
            reset: false,
            urgent: Vec::new(),
            ts_recent: first.timestamps().filter(|_| syn).map(|(value, _)| value),
            last_ack_sent: at,
            snd_una: first.ack(),
            snd_wnd: first.window(),
            snd_wl1: first.seq(),
            snd_wl2: first.ack(),
            sent: None,
        }
    }

    /// It has sent all before `next_seq`, to a peer whose window was this.
    pub(crate) fn having_sent(self, next_seq: u32, window: u32) -> Receiver {
        Receiver { sent: Some((next_seq, window)), ..self }
    }

    /// It sends what is among these.
    pub(crate) fn sends(&mut self, steps: &[Step]) {
        for step in steps {
            if let (Step::Host(frame), Some((next_seq, _))) = (step, &mut self.sent) {
                let packet = Tcp::read(&frame.bytes).unwrap();
                *next_seq = packet.seq().wrapping_add(packet.payload.len() as u32);
            }
        }
    }

    pub(crate) fn receive(&mut self, segment: &Segment) -> Fate {
        if self.reset || self.finished {
            return Fate::Ignored;
        }
        let packet = &segment.packet;
        let fate = self.judge(packet);
        if fate == Fate::Taken {
            self.take(segment);
        }
        self.last_ack_sent = self.rcv_nxt;
        fate
    }

    fn judge(&mut self, packet: &Tcp) -> Fate {
        // RFC 7323 section 5.3: R1, then R2, then R3.
        let value = packet.timestamps().map(|(value, _)| value).filter(|_| !packet.has(RST));
        let older = |(value, recent): (u32, u32)| is_before(value, recent);
        if value.zip(self.ts_recent).is_some_and(older) {
            return Fate::Paws;
        }
        if !self.is_acceptable(packet) {
            return Fate::Outside;
        }
        if packet.has(ACK) && !packet.has(RST | SYN) && !self.is_acceptable_ack(packet.ack()) {
            return Fate::Unacceptable;
        }
        if value.is_some() && !is_before(self.last_ack_sent, packet.seq()) {
            self.ts_recent = value;
        }
        if packet.has(RST) {
            self.reset = packet.seq() == self.rcv_nxt;
            return Fate::Ignored;
        }
        if packet.has(SYN) || !packet.has(ACK) {
            return Fate::Ignored;
        }
        Fate::Taken
    }

    /// RFC 9293 section 3.4, the four cases; this window is never 0.
    fn is_acceptable(&self, packet: &Tcp) -> bool {
        let len =
            packet.payload.len() as u32 + u32::from(packet.has(FIN)) + u32::from(packet.has(SYN));
        let inside = |seq: u32| seq.wrapping_sub(self.rcv_nxt) < self.window;
        inside(packet.seq())
            || len > 0 && inside(packet.seq().wrapping_add(len - 1))
            || len > 0 && self.rcv_nxt.wrapping_sub(packet.seq()) < len
    }

    fn is_acceptable_ack(&self, ack: u32) -> bool {
        self.sent.is_none_or(|(next_seq, window)| {
            !is_before(ack, self.snd_una.wrapping_sub(window)) && !is_before(next_seq, ack)
        })
    }

    fn take(&mut self, segment: &Segment) {
        let packet = &segment.packet;
        self.acknowledged(packet);
        if packet.has(URG) {
            self.urgent.push(packet.seq().wrapping_add(packet.urgent() as u32));
        }
        let owners = segment.from.iter().flat_map(|(frame, len)| std::iter::repeat_n(*frame, *len));
        for ((at, byte), owner) in (0..).zip(&packet.payload).zip(owners) {
            let seq = packet.seq().wrapping_add(at);
            if seq.wrapping_sub(self.rcv_nxt) < self.window {
                let at = seq.wrapping_sub(self.first) as usize;
                self.stream.resize(self.stream.len().max(at + 1), None);
                self.stream[at].get_or_insert((*byte, owner));
            }
        }
        if packet.has(FIN) {
            self.fin_at = Some(packet.seq().wrapping_add(packet.payload.len() as u32));
        }
        while self.byte_at(self.rcv_nxt).is_some() {
            self.rcv_nxt = self.rcv_nxt.wrapping_add(1);
        }
        self.finished = self.fin_at == Some(self.rcv_nxt);
        if self.finished {
            self.stream.truncate(self.rcv_nxt.wrapping_sub(self.first) as usize); // no data behind it
        }
    }

    fn byte_at(&self, seq: u32) -> Option<(u8, usize)> {
        self.stream.get(seq.wrapping_sub(self.first) as usize).copied().flatten()
    }

    /// RFC 9293 section 3.10.7.4, fifth; nothing says that the host has not sent so much.
    fn acknowledged(&mut self, packet: &Tcp) {
        let (ack, seq) = (packet.ack(), packet.seq());
        if is_before(ack, self.snd_una) {
            return;
        }
        self.snd_una = ack;
        let newer = is_before(self.snd_wl1, seq);
        if newer || self.snd_wl1 == seq && !is_before(ack, self.snd_wl2) {
            (self.snd_wnd, self.snd_wl1, self.snd_wl2) = (packet.window(), seq, ack);
        }
    }
}
