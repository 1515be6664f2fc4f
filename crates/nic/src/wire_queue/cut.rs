//! Cutting a super-packet of the endpoint's own into frames of the wire: one copy, from the
//! connection's send buffer into the frame, and the sum over it while it is in the cache.
//!
//! The crate `gso` does the same for packets of others, which lie in one piece and may be anything. Here
//! the payload lies in two, and the headers are those that `output` writes: Ethernet without tags, IP
//! without options, TCP.

use wire::{ETHERNET_LEN, EtherType, Flags, Seq, checksum};

use super::Packet;

/// A packet and how it falls into frames.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frames<'a> {
    packet: Packet<'a>,
    /// Payload bytes of each frame but the last; all of them if there is one.
    size: usize,
    payload: usize,
}

impl<'a> Frames<'a> {
    /// Of this packet.
    pub(crate) fn of(packet: &Packet<'a>) -> Self {
        let payload = packet.payload[0].len() + packet.payload[1].len();
        let size = match usize::from(packet.vnet.gso_size) {
            0 => payload,
            size => size,
        };
        Frames { packet: *packet, size, payload }
    }

    /// The same in frames of the wire's MTU in bytes, if that is less than what the engine goes by: it has become
    /// smaller since the connection began. Each segment of TCP can be several.
    pub(crate) fn within(self, mtu: usize) -> Self {
        let headers = self.packet.header.len().saturating_sub(ETHERNET_LEN);
        match mtu.checked_sub(headers) {
            Some(room @ 1..) if room < self.size && self.packet.vnet.needs_csum => {
                Frames { size: room, ..self }
            }
            _ => self,
        }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.payload.div_ceil(self.size.max(1)).max(1)
    }

    /// Bytes of the longest.
    pub(crate) fn longest(&self) -> usize {
        self.packet.header.len() + self.size.min(self.payload)
    }

    /// Writes one of them, complete with its checksums, to the start of `into`, which is long enough.
    /// Returns how many bytes that are.
    pub(crate) fn write(&self, number: usize, into: &mut [u8]) -> usize {
        let header = self.packet.header.len();
        let from = (number * self.size).min(self.payload);
        let to = (from + self.size).min(self.payload);
        let frame = &mut into[..header + to - from];
        frame[..header].copy_from_slice(self.packet.header);
        self.copy(from, &mut frame[header..]);
        if self.packet.vnet.needs_csum {
            self.finish(number, from as u32, frame);
        }
        frame.len()
    }

    /// Payload bytes from `from` on.
    fn copy(&self, from: usize, into: &mut [u8]) {
        let [first, second] = self.packet.payload;
        let in_first = first.part(from, into.len());
        let (head, tail) = into.split_at_mut(in_first.len());
        in_first.copy_to(head);
        second.part(from.saturating_sub(first.len()), tail.len()).copy_to(tail);
    }

    /// What is different in each frame: lengths, sequence number, flags, sums.
    fn finish(&self, number: usize, offset: u32, frame: &mut [u8]) {
        let transport_at = usize::from(self.packet.vnet.csum_start);
        let transport_len = frame.len() - transport_at;
        let (network, transport) = frame[ETHERNET_LEN..].split_at_mut(transport_at - ETHERNET_LEN);
        let pseudo = if self.packet.header[12..ETHERNET_LEN] == EtherType::IPV4.0.to_be_bytes() {
            let total = (network.len() + transport_len) as u16;
            network[2..4].copy_from_slice(&total.to_be_bytes());
            network[10..12].fill(0);
            let sum = checksum::sum(network).complement();
            network[10..12].copy_from_slice(&sum.to_be_bytes());
            checksum::pseudo_v4(&network[12..20], network[9], transport_len)
        } else {
            network[4..6].copy_from_slice(&(transport_len as u16).to_be_bytes());
            checksum::pseudo_v6(&network[8..40], network[6], transport_len)
        };
        if self.count() > 1 {
            self.renumber(number, offset, transport);
        }
        let at = usize::from(self.packet.vnet.csum_offset);
        transport[at..at + 2].fill(0);
        let sum = pseudo.plus(checksum::sum(transport)).complement();
        transport[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }

    /// FIN and PSH are the last segment's, CWR the first's (RFC 3168 section 6.1.2).
    fn renumber(&self, number: usize, offset: u32, transport: &mut [u8]) {
        let Ok(mut tcp) = wire::Tcp::new(transport) else { return };
        let seq: Seq = tcp.seq() + offset;
        tcp.set_seq(seq);
        let mut flags = tcp.flags();
        if number + 1 < self.count() {
            flags = flags.without(Flags::FIN.with(Flags::PSH));
        }
        if number > 0 {
            flags = flags.without(Flags::CWR);
        }
        tcp.set_flags(flags);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gso::Segmenter;
    use proptest::prelude::*;
    use testkit::packet::PacketBuilder;
    use wire::Bytes;

    proptest! {
        /// `gso` is the oracle; it counts IPv4's ID up, which here is 0 in all.
        #[test]
        fn frames_are_those_that_gso_makes(
            v6: bool,
            len in 1..20_000usize,
            gso_size in 100..9_000u16,
            split in 0..20_000usize,
            flags: u8,
            options in 0..10usize,
        ) {
            let builder = if v6 { PacketBuilder::tcp6() } else { PacketBuilder::tcp4().id(0) };
            let flags = Flags(flags | Flags::ACK.0).without(Flags::SYN.with(Flags::RST));
            let builder = builder.flags(flags.without(Flags::URG)).options(&vec![1; options * 4]);
            let (bytes, vnet) = builder.payload_pattern(len).super_packet(gso_size);
            let header_len = bytes.len() - len;
            let (header, payload) = bytes.split_at(header_len);
            let (one, two) = payload.split_at(split.min(len));
            let frames = Frames::of(&Packet { vnet, header, payload: [one, two].map(Bytes::from) });
            let mut segments = Segmenter::new(&bytes, &vnet).unwrap().fixed_id();
            prop_assert_eq!(frames.count(), segments.gso_segs());
            let (mut ours, mut theirs) = (vec![0; 70_000], vec![0; 70_000]);
            for number in 0..frames.count() {
                let len = frames.write(number, &mut ours);
                prop_assert!(len <= frames.longest());
                let expected = segments.next_into(&mut theirs).unwrap().unwrap();
                prop_assert_eq!(&ours[..len], &theirs[..expected]);
                testkit::verify::checksums(&ours[..len]).unwrap();
            }
        }
    }

    proptest! {
        /// What does not fit a wire whose MTU has become smaller is cut smaller: nothing is lost of it.
        #[test]
        fn frames_fit_the_wire(
            v6: bool,
            len in 0..9_000usize,
            gso_size in 100..3_000u16,
            mtu in 600..4_000usize,
        ) {
            let builder = if v6 { PacketBuilder::tcp6() } else { PacketBuilder::tcp4().id(0) };
            let builder = builder.flags(Flags::ACK.with(Flags::PSH)).seq(0).payload_pattern(len);
            let (bytes, vnet) = builder.super_packet(gso_size);
            let (header, payload) = bytes.split_at(bytes.len() - len);
            let packet = Packet { vnet, header, payload: [payload.into(), Bytes::default()] };
            let frames = Frames::of(&packet).within(mtu);
            let (mut out, mut stream) = (vec![0; 10_000], Vec::new());
            for number in 0..frames.count() {
                let len = frames.write(number, &mut out);
                prop_assert!(len <= ETHERNET_LEN + mtu && len <= frames.longest());
                testkit::verify::checksums(&out[..len]).unwrap();
                let tcp = wire::Tcp::new(&out[usize::from(vnet.csum_start)..len]).unwrap();
                prop_assert_eq!(tcp.seq(), Seq(stream.len() as u32));
                let is_last = number + 1 == frames.count();
                prop_assert_eq!(tcp.flags().any(Flags::PSH), is_last);
                stream.extend_from_slice(&out[header.len()..len]);
            }
            prop_assert_eq!(stream, payload);
        }
    }

    #[test]
    fn a_frame_in_one_piece_stays_as_it_is() {
        let bytes = [7; 60];
        let frames = Frames::of(&Packet::frame(Default::default(), &bytes));
        let mut out = [0; 100];
        assert_eq!((frames.count(), frames.write(0, &mut out)), (1, 60));
        assert_eq!(out[..60], bytes);
    }
}
