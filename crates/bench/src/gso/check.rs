//! Whether what came out is what was to come out.

use wire::checksum::{self, Sum};
use wire::{ETHERNET_LEN, Ipv4, UDP_LEN, protocol};

use super::workload::Workload;
use crate::packet::Ip;

impl Workload {
    /// Whether these IP packets are the super-packet's segments, with all of its bytes in order.
    pub(super) fn check(&self, segments: &[&[u8]]) -> Result<(), String> {
        if segments.len() != self.segments {
            return Err(format!("{} segments instead of {}", segments.len(), self.segments));
        }
        let cut = self.cut(segments);
        // The first fragment has the datagram's checksum, which may have been completed.
        let from = if self.case.is_fragmented() { UDP_LEN } else { 0 };
        if cut.get(from..) == self.packet.get(self.cut_at + from..) {
            Ok(())
        } else {
            Err("what came out is not what was to be cut".to_owned())
        }
    }

    /// Whether all checksums of these IP packets are right. That of a datagram covers its fragments.
    pub(super) fn check_sums(&self, segments: &[&[u8]]) -> Result<(), String> {
        let is_v4 = self.case.ip() == Ip::V4;
        if is_v4 && !segments.iter().all(|ip| Ipv4::new(ip).is_ok_and(|ip| ip.checksum_ok())) {
            return Err("an IPv4 checksum is wrong".to_owned());
        }
        let at = self.transport_at - ETHERNET_LEN;
        let datagram = self.cut(segments);
        let is_right = if self.case.is_fragmented() {
            self.is_right(&datagram)
        } else {
            segments.iter().all(|ip| self.is_right(ip.get(at..).unwrap_or_default()))
        };
        if is_right { Ok(()) } else { Err("a transport checksum is wrong".to_owned()) }
    }

    /// Of a transport header and its payload.
    fn is_right(&self, l4: &[u8]) -> bool {
        checksum::sum(l4).plus(self.pseudo_header(l4.len())).fold() == 0xffff
    }

    fn pseudo_header(&self, l4_len: usize) -> Sum {
        let number = if self.case.is_tcp() { protocol::TCP } else { protocol::UDP };
        let addresses = &self.packet[ETHERNET_LEN..];
        match self.case.ip() {
            Ip::V4 => checksum::pseudo_v4(&addresses[12..20], number, l4_len),
            Ip::V6 => checksum::pseudo_v6(&addresses[8..40], number, l4_len),
        }
    }

    /// What was cut, put together again.
    fn cut(&self, segments: &[&[u8]]) -> Vec<u8> {
        let header_len = self.mtu - self.size;
        segments.iter().flat_map(|ip| ip.iter().skip(header_len)).copied().collect()
    }
}
