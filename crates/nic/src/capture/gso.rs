//! GSO over a capture.

use ::gso::{Refusal, Segmenter};
use wire::{Flags, GsoType, Headers, Network, Tcp, Transport, VirtioNetHdr};

use super::{CaptureError, Counted, Output, Packet, Statistics, complete};
use crate::counters::Entry;

/// Cuts every TCP packet whose IP packet is longer than `mtu` bytes into segments that fit, with
/// complete checksums, as GSO would. Everything else is written as it came, its checksum completed
/// if it was left partial, and counted by reason; UDP is not cut, as a capture does not say whether it was one datagram or several.
///
/// # Errors
/// Those of `packets` and `out`.
pub fn gso(
    packets: impl IntoIterator<Item = Result<Packet, CaptureError>>,
    mtu: u16,
    out: &mut impl Output,
) -> Result<Statistics, CaptureError> {
    let mut out = Counted::new(out);
    let mut statistics = Statistics::default();
    let mut counts = Counts::default();
    let mut segment = Vec::new();
    for packet in packets {
        let mut packet = packet?;
        counts.completed += u64::from(complete(&mut packet));
        statistics.packets_in += 1;
        statistics.bytes_in += packet.data.len() as u64;
        let cut = ask(&packet, mtu)
            .and_then(|vnet| Segmenter::new(&packet.data, &vnet).map_err(Keep::Refused));
        match cut {
            Ok(mut segmenter) => {
                counts.cut += 1;
                segment.resize(segmenter.max_segment_len(), 0);
                // Its one error is a buffer that is too small, and this one is as long as asked.
                while let Ok(Some(len)) = segmenter.next_into(&mut segment) {
                    counts.segments += 1;
                    out.write_whole(packet.time, &segment[..len])?;
                }
            }
            Err(why) => {
                counts.count(why);
                out.write(packet.time, packet.original_len, &packet.data)?;
            }
        }
    }
    statistics.packets_out = out.packets;
    statistics.bytes_out = out.bytes;
    statistics.counters = counts.entries().collect();
    Ok(statistics)
}

/// Why a packet is not cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Keep {
    /// It fits.
    Fits,
    /// The capture holds only its beginning.
    CutShort,
    /// Neither IPv4 nor IPv6.
    NotIp,
    /// Too long, but a fragment of an IP datagram.
    Fragment,
    /// Too long, but UDP.
    Udp,
    /// Too long, but neither TCP nor UDP.
    NotTcp,
    /// Too long, and its headers alone are as long as the MTU.
    LongHeader,
    /// GSO cannot cut it.
    Refused(Refusal),
}

impl Keep {
    const PLAIN: [(Keep, &'static str); 7] = [
        (Keep::Fits, "fits"),
        (Keep::CutShort, "cut_short"),
        (Keep::NotIp, "not_ip"),
        (Keep::Fragment, "fragment"),
        (Keep::Udp, "udp"),
        (Keep::NotTcp, "not_tcp"),
        (Keep::LongHeader, "long_header"),
    ];
}

/// What was done, and why not.
struct Counts {
    /// Packets that came with the pseudo-header's sum only.
    completed: u64,
    cut: u64,
    segments: u64,
    kept: [u64; Keep::PLAIN.len()],
    refused: [u64; Refusal::COUNT],
}

impl Default for Counts {
    fn default() -> Self {
        Counts {
            completed: 0,
            cut: 0,
            segments: 0,
            kept: [0; Keep::PLAIN.len()],
            refused: [0; Refusal::COUNT],
        }
    }
}

impl Counts {
    fn count(&mut self, why: Keep) {
        match why {
            Keep::Refused(why) => self.refused[why.index()] += 1,
            plain => {
                for ((reason, _), count) in Keep::PLAIN.iter().zip(&mut self.kept) {
                    *count += u64::from(*reason == plain);
                }
            }
        }
    }

    fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        let own = [
            ("pcap", "completed", self.completed),
            ("gso", "super_packets", self.cut),
            ("gso", "segments", self.segments),
        ];
        let kept = Keep::PLAIN.iter().zip(self.kept);
        own.into_iter()
            .chain(kept.map(|((_, name), value)| ("gso_pass", *name, value)))
            .chain(
                Refusal::ALL
                    .into_iter()
                    .map(|r| ("gso_refused", r.name(), self.refused[r.index()])),
            )
            .map(|(group, name, value)| Entry { group, name, value })
    }
}

/// How the packet is to be cut, or why not.
fn ask(packet: &Packet, mtu: u16) -> Result<VirtioNetHdr, Keep> {
    if packet.is_cut_short() {
        return Err(Keep::CutShort);
    }
    let headers = Headers::parse(&packet.data).map_err(|why| Keep::Refused(why.into()))?;
    let gso_type = match headers.network {
        Network::Ipv4 { .. } => GsoType::Tcpv4,
        Network::Ipv6 { .. } => GsoType::Tcpv6,
        Network::Other(_) => return Err(Keep::NotIp),
    };
    if headers.end - headers.network_at <= usize::from(mtu) {
        return Err(Keep::Fits);
    }
    match headers.transport {
        Transport::Tcp => {}
        Transport::Udp => return Err(Keep::Udp),
        Transport::Fragment => return Err(Keep::Fragment),
        Transport::Other(_) | Transport::None => return Err(Keep::NotTcp),
    }
    let header_len = headers.payload_at - headers.network_at;
    let gso_size = usize::from(mtu).saturating_sub(header_len);
    if gso_size == 0 {
        return Err(Keep::LongHeader);
    }
    let cwr = Tcp::new(&packet.data[headers.transport_at..headers.end])
        .is_ok_and(|tcp| tcp.flags().any(Flags::CWR));
    Ok(VirtioNetHdr {
        gso_type,
        ecn: cwr,
        hdr_len: headers.payload_at as u16,
        gso_size: gso_size as u16,
        ..VirtioNetHdr::default()
    })
}
