//! What an observer on the wire can check of a side.

use wire::{Flags, Seq};

use tcp::Options;

use super::frame::{Arrival, ip_len};

/// What a side has sent and received so far.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// Initial sequence numbers that it has shown: several, if it answers SYNs with cookies, until it
    /// sends something else.
    shown: Vec<(Seq, Options)>,
    /// The one of the connection.
    iss: Option<Seq>,
    /// One after the last of what it sent.
    sent: Option<Seq>,
    /// Where its FIN ends.
    fin: Option<Seq>,
    /// Its SYN's options.
    syn: Option<Options>,
    /// Right edge of the window it has offered.
    offered: Option<Seq>,
    /// The peer's window that has reached it.
    reached: Option<Seq>,
    /// What the peer has acknowledged.
    acknowledged: Option<Seq>,
    /// The path MTU that it was sent by ICMP.
    reported_mtu: Option<u16>,
    /// It has sent something for the first time since this was last looked at.
    pub(crate) sent_new: bool,
    /// Its last timestamp.
    timestamp: Option<Seq>,
    pub(crate) packets: u64,
    pub(crate) payload: u64,
}

/// Bounds of its own settings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) mtu: u16,
    pub(crate) mss: u16,
    pub(crate) probes_mtu: bool,
}

impl Watch {
    /// Whether it is a segment of the connection, as far as can be seen.
    fn is_of_connection(&self, tcp_flags: Flags) -> bool {
        !self.shown.is_empty() && !tcp_flags.any(Flags::RST)
    }

    fn shift(&self, peer: &Watch) -> u8 {
        let offered = |watch: &Watch| watch.syn.and_then(|options| options.window_scale);
        match (offered(self), offered(peer)) {
            (Some(ours), Some(_)) => ours.min(14),
            _ => 0,
        }
    }

    /// It was sent a path MTU, by a message about what it sent at `seq`. If that is no longer in flight, it
    /// does not count (RFC 5927 section 4.1).
    pub(crate) fn reported_mtu(&mut self, mtu: u16, seq: Seq) {
        let acknowledged = self.acknowledged.is_some_and(|ack| seq.before(ack));
        if acknowledged || !self.sent.is_some_and(|sent| seq.before(sent)) {
            return;
        }
        self.reported_mtu = Some(self.reported_mtu.map_or(mtu, |before| before.min(mtu)));
    }

    /// `packet` has come to this side; `peer` sent it.
    pub(crate) fn receives(&mut self, packet: &Arrival, peer: &Watch) {
        let tcp = packet.tcp();
        let flags = tcp.flags();
        if !peer.is_of_connection(flags) || !flags.any(Flags::ACK) {
            return;
        }
        let later_ack = self.acknowledged.map_or(tcp.ack(), |before| before.max(tcp.ack()));
        self.acknowledged = Some(later_ack);
        let shift = if flags.any(Flags::SYN) { 0 } else { peer.shift(self) };
        let edge = tcp.ack() + (u32::from(tcp.window()) << shift);
        self.reached = Some(self.reached.map_or(edge, |reached| reached.max(edge)));
    }

    /// This side sends `packet` to `peer`.
    ///
    /// # Errors
    /// What it may not do, in words.
    pub(crate) fn sends(
        &mut self,
        packet: &Arrival,
        frame: &[u8],
        peer: &Watch,
        limits: Limits,
    ) -> Result<(), String> {
        let tcp = packet.tcp();
        let (flags, len) = (tcp.flags(), packet.payload().len() as u32);
        self.packets += 1;
        self.payload += u64::from(len);
        let options = Options::parse(tcp.option_bytes());
        if flags.any(Flags::SYN) && !self.shows(tcp.seq(), &options) {
            return Ok(());
        }
        if !self.is_of_connection(flags) {
            return Ok(());
        }
        if !flags.any(Flags::SYN) {
            self.settles(tcp.seq());
        }
        let end =
            tcp.seq() + len + u32::from(flags.any(Flags::SYN)) + u32::from(flags.any(Flags::FIN));
        self.sent_new |= len > 0 && self.sent.is_none_or(|sent| end.after(sent));
        self.sent = Some(self.sent.map_or(end, |sent| sent.max(end)));
        self.ends(flags, tcp.seq(), len, end)?;
        self.fits(frame, len, tcp.option_bytes().len(), peer, limits)?;
        self.keeps_to_the_window(flags, tcp.seq() + len, len)?;
        self.keeps_its_clock(flags, &options, peer)?;
        if flags.any(Flags::ACK) {
            self.acknowledges(&tcp, &options, peer)?;
        }
        Ok(())
    }

    /// Whether a SYN belongs to the connection.
    fn shows(&mut self, seq: Seq, options: &Options) -> bool {
        if self.iss.is_none() && !self.shown.iter().any(|(iss, _)| *iss == seq) {
            self.shown.push((seq, *options));
            self.syn = Some(*options);
            self.sent = Some(seq + 1);
        }
        self.iss.is_none_or(|iss| iss == seq)
    }

    /// Something else than a SYN: it shows which of the numbers is the connection's.
    fn settles(&mut self, seq: Seq) {
        if self.iss.is_none()
            && let Some((iss, options)) = self.shown.iter().min_by_key(|(iss, _)| seq - *iss)
        {
            (self.iss, self.syn) = (Some(*iss), Some(*options));
            self.sent = Some(*iss + 1);
        }
    }

    fn ends(&mut self, flags: Flags, seq: Seq, len: u32, end: Seq) -> Result<(), String> {
        match self.fin {
            Some(fin) if end.after(fin) => {
                return Err(format!("{seq:?}+{len} lies behind its FIN"));
            }
            Some(fin) if flags.any(Flags::FIN) && end != fin => {
                return Err(format!("a FIN at {end:?}, not at {fin:?}"));
            }
            _ => {}
        }
        if flags.any(Flags::FIN) {
            self.fin = Some(end);
        }
        Ok(())
    }

    fn fits(
        &self,
        frame: &[u8],
        len: u32,
        options: usize,
        peer: &Watch,
        limits: Limits,
    ) -> Result<(), String> {
        let whole = ip_len(frame);
        if whole > usize::from(limits.mtu) {
            return Err(format!("{whole} bytes over an MTU of {}", limits.mtu));
        }
        if let Some(reported) = self.reported_mtu
            && whole > usize::from(reported)
            && !limits.probes_mtu
        {
            return Err(format!("{whole} bytes, and the path takes {reported}"));
        }
        // RFC 9293 section 3.7.1: without an announcement, 536 or 1220.
        let announced = peer.syn.and_then(|options| options.mss).unwrap_or(536);
        let most = usize::from(announced).max(usize::from(limits.mss.min(88)));
        if len as usize + options > most && len > 0 {
            return Err(format!(
                "{len} bytes and {options} of options, and the MSS is {announced}"
            ));
        }
        if limits.mss != 0 && len as usize + options > usize::from(limits.mss) && len > 0 {
            return Err(format!("{len} bytes with an own MSS of {}", limits.mss));
        }
        Ok(())
    }

    fn keeps_to_the_window(&self, flags: Flags, end: Seq, len: u32) -> Result<(), String> {
        let Some(reached) = self.reached else {
            if len > 0 {
                return Err(format!("{len} bytes before it has a window"));
            }
            return Ok(());
        };
        // A window probe may hold the byte behind a window (RFC 9293 section 3.8.6.1).
        let probe = u32::from(len == 1);
        if len > 0 && end.after(reached + probe) {
            return Err(format!("{flags:?} up to {end:?}, and the window ends at {reached:?}"));
        }
        Ok(())
    }

    fn keeps_its_clock(
        &mut self,
        flags: Flags,
        options: &Options,
        peer: &Watch,
    ) -> Result<(), String> {
        let agreed = |watch: &Watch| watch.syn.is_some_and(|options| options.timestamps.is_some());
        let both = agreed(self) && agreed(peer);
        match options.timestamps {
            Some(timestamps) => {
                if let Some(before) = self.timestamp
                    && timestamps.value.before(before)
                {
                    return Err(format!("timestamp {:?} after {before:?}", timestamps.value));
                }
                self.timestamp = Some(timestamps.value);
                let agreed = both || flags.any(Flags::SYN);
                if agreed { Ok(()) } else { Err("timestamps that were not agreed to".to_owned()) }
            }
            // RFC 7323 section 3.2: every segment has them then.
            None if both && !flags.any(Flags::SYN) => Err("no timestamps".to_owned()),
            None => Ok(()),
        }
    }

    fn acknowledges(
        &mut self,
        tcp: &wire::Tcp<&[u8]>,
        options: &Options,
        peer: &Watch,
    ) -> Result<(), String> {
        let Some(sent) = peer.sent else {
            return Err(format!("ack {:?} of nothing", tcp.ack()));
        };
        let shown = peer.iss.is_none() && peer.shown.iter().any(|(iss, _)| *iss + 1 == tcp.ack());
        if tcp.ack().after(sent) && !shown {
            return Err(format!("ack {:?} of {sent:?}", tcp.ack()));
        }
        for block in options.sack.as_slice() {
            let sack = |watch: &Watch| watch.syn.is_some_and(|options| options.sack_permitted);
            if !sack(self) || !sack(peer) {
                return Err("SACK that was not agreed to".to_owned());
            }
            if !block.start.before(block.end) || block.end.after(sent) {
                return Err(format!("SACK {block:?} of {sent:?}"));
            }
        }
        let shift = if tcp.flags().any(Flags::SYN) { 0 } else { self.shift(peer) };
        let edge = tcp.ack() + (u32::from(tcp.window()) << shift);
        // What the scale cannot express may be missing (RFC 7323 section 2.4).
        if let Some(offered) = self.offered
            && (edge + ((1 << shift) - 1)).before(offered)
        {
            let less = offered - edge;
            return Err(format!("the window shrinks by {less} (shift {shift}) to {edge:?}"));
        }
        self.offered = Some(self.offered.map_or(edge, |offered| offered.max(edge)));
        Ok(())
    }
}
