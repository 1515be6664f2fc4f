//! The frames of the senders in memory: Ethernet, IPv4 and TCP with timestamps.

use std::net::Ipv4Addr;

use wire::checksum::{self, Sum};
use wire::{ETHERNET_LEN, EtherType, Flags, IPV4_MIN_LEN, MAC_LEN, Seq, TCP_MIN_LEN, protocol};

/// Where the senders are.
pub(super) const SENDER: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);
/// Where the receiver is.
pub(crate) const RECEIVER: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 2);
const SENDER_MAC: [u8; MAC_LEN] = [0x02, 0, 0, 0, 0x78, 1];
/// The MAC address of the receiver's interface.
pub(crate) const RECEIVER_MAC: [u8; MAC_LEN] = [0x02, 0, 0, 0, 0x78, 2];

const MTU: usize = 1500;
/// Two paddings and the timestamps (RFC 7323, appendix A).
const TIMESTAMPS_LEN: usize = 12;
const TCP_AT: usize = ETHERNET_LEN + IPV4_MIN_LEN;
/// Bytes in front of a segment's payload.
pub(super) const HEADER: usize = TCP_AT + TCP_MIN_LEN + TIMESTAMPS_LEN;
/// Most payload bytes of a segment.
pub(super) const MSS: usize = ETHERNET_LEN + MTU - HEADER;
/// The window of what the senders receive, which is nothing.
const WINDOW: u16 = 0xffff;

const TOTAL_LEN_AT: usize = ETHERNET_LEN + 2;
const ID_AT: usize = ETHERNET_LEN + 4;
const IP_CHECKSUM_AT: usize = ETHERNET_LEN + 10;
const SEQ_AT: usize = TCP_AT + 4;
const ACK_AT: usize = TCP_AT + 8;
const FLAGS_AT: usize = TCP_AT + 13;
const TCP_CHECKSUM_AT: usize = TCP_AT + 16;
const TSVAL_AT: usize = TCP_AT + TCP_MIN_LEN + 4;
const TSECR_AT: usize = TSVAL_AT + 4;

/// What differs from one segment of a connection to the next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) id: u16,
    pub(super) seq: Seq,
    pub(super) flags: Flags,
    /// Bytes of payload.
    pub(super) len: usize,
}

/// The header of a connection's segments, with what does not differ already summed: a segment's
/// checksums are those sums and the few words that are its own, which is what RFC 1624 does.
#[derive(Clone, Debug)]
pub(super) struct Template {
    bytes: [u8; HEADER],
    /// Of the IPv4 header without length, identification and checksum.
    ip: Sum,
    /// Of pseudo-header and TCP header without lengths, sequence number, flags and checksum.
    tcp: Sum,
}

impl Template {
    pub(super) fn new(source: u16, destination: u16) -> Self {
        let mut bytes = [0; HEADER];
        link(&mut bytes, EtherType::IPV4);
        let ip = &mut bytes[ETHERNET_LEN..TCP_AT];
        ip[0] = 0x45;
        ip[6] = 0x40; // do not fragment, as Linux's path MTU discovery asks
        ip[8] = 64;
        ip[9] = protocol::TCP;
        ip[12..16].copy_from_slice(&SENDER.octets());
        ip[16..20].copy_from_slice(&RECEIVER.octets());
        let tcp = &mut bytes[TCP_AT..];
        tcp[..2].copy_from_slice(&source.to_be_bytes());
        tcp[2..4].copy_from_slice(&destination.to_be_bytes());
        tcp[12] = ((TCP_MIN_LEN + TIMESTAMPS_LEN) as u8 / 4) << 4;
        tcp[14..16].copy_from_slice(&WINDOW.to_be_bytes());
        tcp[TCP_MIN_LEN..TCP_MIN_LEN + 4].copy_from_slice(&[1, 1, 8, 10]);
        let ip = checksum::sum(&bytes[ETHERNET_LEN..TCP_AT]);
        let mut template = Template { bytes, ip, tcp: Sum::default() };
        template.acknowledge(Seq(0), Seq(0), Seq(0));
        template
    }

    /// Sets the acknowledgment number and the timestamps of the segments to come.
    pub(super) fn acknowledge(&mut self, ack: Seq, tsval: Seq, tsecr: Seq) {
        self.bytes[ACK_AT..ACK_AT + 4].copy_from_slice(&ack.0.to_be_bytes());
        self.bytes[TSVAL_AT..TSVAL_AT + 4].copy_from_slice(&tsval.0.to_be_bytes());
        self.bytes[TSECR_AT..TSECR_AT + 4].copy_from_slice(&tsecr.0.to_be_bytes());
        let pseudo = checksum::pseudo_v4(&self.bytes[ETHERNET_LEN + 12..TCP_AT], protocol::TCP, 0);
        self.tcp = checksum::sum(&self.bytes[TCP_AT..]).plus(pseudo);
    }

    /// Writes the header of `segment`, whose payload has the sum `payload`, to the first
    /// [`HEADER`] bytes of `to`.
    #[inline]
    pub(super) fn write(&self, to: &mut [u8], segment: Segment, payload: Sum) {
        let Some(to) = to.first_chunk_mut::<HEADER>() else { return };
        *to = self.bytes;
        let total_len = (HEADER - ETHERNET_LEN + segment.len) as u16;
        let ip = self.ip.plus_word(total_len).plus_word(segment.id).complement();
        to[TOTAL_LEN_AT..TOTAL_LEN_AT + 2].copy_from_slice(&total_len.to_be_bytes());
        to[ID_AT..ID_AT + 2].copy_from_slice(&segment.id.to_be_bytes());
        to[IP_CHECKSUM_AT..IP_CHECKSUM_AT + 2].copy_from_slice(&ip.to_be_bytes());
        let seq = segment.seq.0;
        let tcp = self.tcp.plus(payload).plus_word(total_len - IPV4_MIN_LEN as u16);
        let tcp = tcp.plus_word((seq >> 16) as u16).plus_word(seq as u16);
        let tcp = tcp.plus_word(segment.flags.0.into()).complement();
        to[SEQ_AT..SEQ_AT + 4].copy_from_slice(&seq.to_be_bytes());
        to[FLAGS_AT] = segment.flags.0;
        to[TCP_CHECKSUM_AT..TCP_CHECKSUM_AT + 2].copy_from_slice(&tcp.to_be_bytes());
    }

    /// The frame that opens the connection: largest segment, SACK and timestamps, window scale.
    pub(super) fn syn(&self, seq: Seq, tsval: Seq) -> Vec<u8> {
        let mss = (MTU - IPV4_MIN_LEN - TCP_MIN_LEN) as u16;
        let mut options = [2, 4, 0, 0, 4, 2, 8, 10, 0, 0, 0, 0, 0, 0, 0, 0, 1, 3, 3, 10];
        options[2..4].copy_from_slice(&mss.to_be_bytes());
        options[8..12].copy_from_slice(&tsval.0.to_be_bytes());
        let mut frame = self.bytes[..TCP_AT + TCP_MIN_LEN].to_vec();
        frame.extend(options);
        let total_len = (frame.len() - ETHERNET_LEN) as u16;
        let tcp_len = frame.len() - TCP_AT;
        frame[TOTAL_LEN_AT..TOTAL_LEN_AT + 2].copy_from_slice(&total_len.to_be_bytes());
        let ip = self.ip.plus_word(total_len).complement();
        frame[IP_CHECKSUM_AT..IP_CHECKSUM_AT + 2].copy_from_slice(&ip.to_be_bytes());
        frame[SEQ_AT..SEQ_AT + 4].copy_from_slice(&seq.0.to_be_bytes());
        frame[ACK_AT..ACK_AT + 4].fill(0);
        frame[TCP_AT + 12] = (tcp_len as u8 / 4) << 4;
        frame[FLAGS_AT] = Flags::SYN.0;
        let pseudo = checksum::pseudo_v4(&frame[ETHERNET_LEN + 12..TCP_AT], protocol::TCP, tcp_len);
        let tcp = checksum::sum(&frame[TCP_AT..]).plus(pseudo).complement();
        frame[TCP_CHECKSUM_AT..TCP_CHECKSUM_AT + 2].copy_from_slice(&tcp.to_be_bytes());
        frame
    }
}

/// The answer to an ARP request (RFC 826) that the receiver's kernel asks the senders' address
/// with; `None` for other packets.
pub(super) fn arp_reply(frame: &[u8]) -> Option<Vec<u8>> {
    const REQUEST: [u8; 8] = [0, 1, 8, 0, 6, 4, 0, 1];
    let arp = frame.get(ETHERNET_LEN..ETHERNET_LEN + 28)?;
    if frame[12..14] != EtherType::ARP.0.to_be_bytes()
        || arp[..8] != REQUEST
        || arp[24..28] != SENDER.octets()
    {
        return None;
    }
    let mut reply = vec![0; ETHERNET_LEN];
    link(&mut reply, EtherType::ARP);
    reply.extend([0, 1, 8, 0, 6, 4, 0, 2]);
    reply.extend(SENDER_MAC);
    reply.extend(SENDER.octets());
    reply.extend(&arp[8..18]);
    Some(reply)
}

/// The Ethernet header.
fn link(frame: &mut [u8], kind: EtherType) {
    frame[..6].copy_from_slice(&RECEIVER_MAC);
    frame[6..12].copy_from_slice(&SENDER_MAC);
    frame[12..14].copy_from_slice(&kind.0.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::{Headers, Ipv4, Transport};

    fn sums_are_right(frame: &[u8]) {
        let headers = Headers::parse(frame).unwrap();
        assert_eq!(headers.transport, Transport::Tcp);
        let ip = Ipv4::new(&frame[headers.network_at..]).unwrap();
        assert!(ip.checksum_ok());
        let tcp = &frame[headers.transport_at..headers.end];
        let all = checksum::sum(tcp).plus(ip.pseudo_header(tcp.len()));
        assert_eq!(all.fold(), 0xffff);
    }

    #[test]
    fn checksums_made_of_what_is_known_and_what_is_new_verify() {
        let mut template = Template::new(40_001, 5001);
        for turn in 0..200u32 {
            let spread = turn.wrapping_mul(0x9e37_79b9);
            template.acknowledge(Seq(spread ^ 77), Seq(turn), Seq(!spread));
            let len = if turn % 3 == 0 { MSS } else { (spread as usize) % MSS };
            let mut frame = vec![0; HEADER + len];
            frame[HEADER..].iter_mut().enumerate().for_each(|(i, b)| *b = (i as u32 ^ turn) as u8);
            let payload = checksum::sum(&frame[HEADER..]);
            let flags = if turn % 2 == 0 { Flags::ACK } else { Flags::ACK.with(Flags::PSH) };
            let segment = Segment { id: spread as u16, seq: Seq(spread), flags, len };
            template.write(&mut frame, segment, payload);
            sums_are_right(&frame);
        }
        sums_are_right(&template.syn(Seq(9), Seq(1)));
    }

    #[test]
    fn only_questions_for_the_senders_address_are_answered() {
        let mut request = vec![0xff; 12];
        request.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 1, 2, 3, 4, 5, 6, 10, 78, 0, 2]);
        request.extend([0, 0, 0, 0, 0, 0, 10, 78, 0, 1]);
        let reply = arp_reply(&request).unwrap();
        assert_eq!(reply.len(), 42);
        assert_eq!(reply[32..38], [1, 2, 3, 4, 5, 6]);
        request[41] = 9;
        assert_eq!(arp_reply(&request), None);
        assert_eq!(arp_reply(&request[..30]), None);
    }
}
