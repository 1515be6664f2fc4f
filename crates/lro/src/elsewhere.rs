//! Packets that do not come by here: merged elsewhere already, or not seen at all.

use wire::protocol;
use wire::{FlowKey, Headers, IPV4_MIN_LEN, IPV6_LEN, Network, Transport};

use crate::link::Link;
use crate::{Flush, Lro, Sink};

/// Of IPv4's flags and fragment offset: what tells a fragment.
const OFFSET_AND_MORE: u16 = 0x3fff;

/// Which flow a packet is of.
enum Whose {
    Flow(FlowKey),
    /// Of none that is held.
    None,
    Unknown,
}

impl<F, L: Link> Lro<F, L> {
    /// Packets are about to come, or have come, that this LRO does not see: what is held goes, and
    /// each flow is picked up anew by its next packet.
    pub fn interrupt(&mut self, sink: &mut impl Sink<F>) {
        self.flush_all(sink);
        self.epoch = self.epoch.wrapping_add(1);
    }

    /// One packet is about to be handed on that this LRO does not take, such as a super-packet, which
    /// was merged elsewhere: it must not overtake what is held of its flow, and moves that on by bytes
    /// that are not seen. So what is held of this flow goes, and its next packet picks it up anew;
    /// others notice nothing.
    ///
    /// `bytes` are the packet's first, from its Ethernet header on; the headers are enough. A packet
    /// whose headers do not tell the flow may be of any, and interrupts [all](Self::interrupt).
    pub fn interrupt_flow(&mut self, bytes: &[u8], sink: &mut impl Sink<F>) {
        match whose::<L>(bytes) {
            Whose::Flow(key) => {
                if let Some(index) = self.table.find(&key) {
                    self.pick_up_anew(index, sink);
                }
            }
            Whose::None => {}
            Whose::Unknown => self.interrupt(sink),
        }
    }

    /// What is held of a flow goes, and where it is will be learnt from its next packet.
    pub(crate) fn pick_up_anew(&mut self, index: u32, sink: &mut impl Sink<F>) {
        self.flush(index, Flush::Order, sink);
        let flow = &mut self.table[index];
        flow.begun = false;
        flow.send.lose_sight();
    }
}

fn whose<L: Link>(bytes: &[u8]) -> Whose {
    match L::parse(bytes) {
        Ok(headers) => match headers.transport {
            Transport::Tcp | Transport::Udp => Whose::Flow(FlowKey::of(bytes, &headers)),
            // It tells no ports.
            Transport::Fragment => Whose::Unknown,
            Transport::Other(_) | Transport::None => Whose::None,
        },
        // Most likely there is more of the packet than these bytes.
        Err(_) => first_bytes_of::<L>(bytes).map_or(Whose::Unknown, Whose::Flow),
    }
}

/// The flow of a packet of TCP or UDP of which only the first bytes are here.
fn first_bytes_of<L: Link>(bytes: &[u8]) -> Option<FlowKey> {
    let be16 = |at: usize| Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?));
    let (network_at, version) = L::network(bytes)?;
    let first = *bytes.get(network_at)?;
    let (network, header, upper) = match version {
        4 if first >> 4 == 4 && be16(network_at + 6)? & OFFSET_AND_MORE == 0 => {
            let header = usize::from(first & 0xf) * 4;
            let options = header > IPV4_MIN_LEN;
            (Network::Ipv4 { options }, header, *bytes.get(network_at + 9)?)
        }
        6 if first >> 4 == 6 => {
            (Network::Ipv6 { extensions: false }, IPV6_LEN, *bytes.get(network_at + 6)?)
        }
        _ => return None,
    };
    let transport = match upper {
        protocol::TCP => Transport::Tcp,
        protocol::UDP => Transport::Udp,
        _ => return None,
    };
    let transport_at = network_at + header;
    // The ports are there.
    if header < IPV4_MIN_LEN || bytes.len() < transport_at + 4 {
        return None;
    }
    let (payload_at, end) = (transport_at, bytes.len());
    let headers = Headers { network, transport, network_at, transport_at, payload_at, end };
    Some(FlowKey::of(bytes, &headers))
}
