//! GRO in its plainest form: the kernel's rules, and wharf's where a [`Reason`] says so.

use testkit::gro::BUCKET;
use testkit::verify::{ones_complement_sum, pseudo_header};
use wire::{GsoType, VirtioNetHdr};

use super::packet::{Length, Packet, be16};
use super::reasons::{Reason, Reasons};

const FIN: u8 = 0x01;
const SYN_RST_URG: u8 = 0x26;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
const CWR: u8 = 0x80;
/// The largest IP packet.
const IP_MAX: usize = 65_535;
/// What wharf keeps of a header.
const HEADER_MAX: usize = 128;

/// What differs from kernel to kernel; [`probe`](super::check::Oracles) finds out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernel {
    /// In-band VLAN tags have a GRO of their own (802.1Q is there).
    pub(crate) vlan: bool,
    /// Segments join one with CWR (before Accurate ECN).
    pub(crate) cwr: bool,
    /// A fixed IPv4 ID needs no DF.
    pub(crate) fixed_id: bool,
}

/// One packet that came out.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Out {
    /// What is said of an aggregate; `None` for a packet as it came. `hdr_len` is a hint that the
    /// kernel fills in as it likes, so it is left 0.
    pub(crate) vnet: Option<VirtioNetHdr>,
    pub(crate) bytes: Vec<u8>,
    /// The frames that it was, where that is known.
    pub(crate) frames: Vec<usize>,
    /// One IPv4 ID for all, where that is known.
    pub(crate) fixed_id: bool,
}

/// What is held of a flow.
struct Entry {
    key: Vec<u8>,
    frames: Vec<usize>,
    next_seq: u32,
    gso_size: usize,
    ip_len: usize,
    /// `None` while there is one only.
    fixed_id: Option<bool>,
}

/// What arrives, frame by frame: read once, as several models ask.
pub(crate) struct Arrivals<'a> {
    frames: &'a [Vec<u8>],
    packets: Vec<Option<Packet<'a>>>,
}

impl<'a> Arrivals<'a> {
    pub(crate) fn new(frames: &'a [Vec<u8>]) -> Self {
        Arrivals { frames, packets: frames.iter().map(|frame| Packet::read(frame)).collect() }
    }

    /// The first of them, as many as the kernel takes without a flush of anything for want of
    /// room, a witness being held as well.
    pub(crate) fn within_the_bucket(mut self, kernel: Kernel) -> Self {
        let crowded_at = Model::new(&self, kernel, Reasons::NONE).crowded_at;
        let most = crowded_at.unwrap_or(self.frames.len());
        self.frames = &self.frames[..most];
        self.packets.truncate(most);
        self
    }

    pub(crate) fn frames(&self) -> &'a [Vec<u8>] {
        self.frames
    }

    /// A frame of which the model holds more than its bytes.
    fn packet(&self, n: usize) -> &Packet<'a> {
        self.packets[n].as_ref().expect("only packets are held")
    }
}

struct Model<'a> {
    kernel: Kernel,
    reasons: Reasons,
    arrivals: &'a Arrivals<'a>,
    /// Oldest first.
    held: Vec<Entry>,
    /// The first frame to be held when as many were as the kernel holds beside a witness.
    crowded_at: Option<usize>,
    out: Vec<Out>,
}

/// What comes out of frames, in order, everything held being flushed after the last.
pub(crate) fn run(arrivals: &Arrivals<'_>, kernel: Kernel, reasons: Reasons) -> Vec<Out> {
    let mut model = Model::new(arrivals, kernel, reasons);
    while !model.held.is_empty() {
        model.flush(0);
    }
    model.out
}

impl<'a> Model<'a> {
    /// All frames have arrived.
    fn new(arrivals: &'a Arrivals<'a>, kernel: Kernel, reasons: Reasons) -> Self {
        let (held, out) = (Vec::new(), Vec::with_capacity(arrivals.frames.len()));
        let mut model = Model { kernel, reasons, arrivals, held, crowded_at: None, out };
        for (n, packet) in arrivals.packets.iter().enumerate() {
            model.arrive(n, packet.as_ref());
        }
        model
    }

    fn wharf(&self, reason: Reason) -> bool {
        self.reasons.has(reason)
    }

    fn arrive(&mut self, n: usize, packet: Option<&Packet<'_>>) {
        let Some(packet) = packet else { return self.alone(n) };
        let key = self.key(packet);
        if self.goes_by(packet) {
            return self.alone(n);
        }
        let at = self.held.iter().position(|held| held.key == key);
        if self.keeps_its_own_packet(packet) {
            return self.alone_after(at, n);
        }
        let flags = packet.flags();
        if let Some(at) = at {
            if let Some(fixed_id) = self.joins(&self.held[at], packet) {
                return self.append(at, n, packet, fixed_id);
            }
            self.flush(at);
        }
        if flags & (PSH | FIN) != 0 {
            return self.alone(n);
        }
        if self.held.len() == BUCKET - 1 {
            self.crowded_at.get_or_insert(n);
        }
        if self.held.len() == BUCKET && !self.wharf(Reason::Bucket) {
            self.flush(0);
        }
        let (len, ip_len) = (packet.payload().len(), packet.end - packet.network_at);
        let next_seq = packet.seq().wrapping_add(len as u32);
        let frames = vec![n];
        self.held.push(Entry { key, frames, next_seq, gso_size: len, ip_len, fixed_id: None });
    }

    /// Whether the packet passes without a look at its flow.
    fn goes_by(&self, packet: &Packet<'_>) -> bool {
        let lying = packet.length == Length::Lying;
        let v4_options = !packet.v6 && packet.has_ip_extras();
        if packet.tags > 0 && !self.kernel.vlan && !self.wharf(Reason::Vlan) {
            return true;
        }
        if lying && self.wharf(Reason::Lying) {
            return true;
        }
        if v4_options {
            return !self.wharf(Reason::IpOptions);
        }
        if !packet.ip_checksum_ok() {
            return true;
        }
        if self.breaks_off(packet) || packet.tcp_checksum_ok {
            return false;
        }
        !(packet.v6 && packet.has_ip_extras() && self.wharf(Reason::ExtensionChecksum))
    }

    /// Whether the kernel gives up at the IP header, but looks for the flow all the same.
    fn breaks_off(&self, packet: &Packet<'_>) -> bool {
        match packet.length {
            Length::Lying => true,
            Length::Padded if !self.wharf(Reason::Padding) => true,
            _ => packet.has_reserved_bit() && !self.wharf(Reason::ReservedBit),
        }
    }

    /// Whether the packet passes as it came, after what is held of its flow.
    fn keeps_its_own_packet(&self, packet: &Packet<'_>) -> bool {
        let flags = packet.flags();
        self.breaks_off(packet)
            || !packet.v6 && packet.has_ip_extras()
            || !packet.tcp_checksum_ok
            || flags & SYN_RST_URG != 0
            || packet.payload().is_empty()
            || flags & ACK == 0 && self.wharf(Reason::NoAck)
            || !packet.options_ok() && self.wharf(Reason::TcpOptions)
            || packet.payload_at > HEADER_MAX && self.wharf(Reason::LongHeader)
    }

    /// What tells flows apart.
    fn key(&self, packet: &Packet<'_>) -> Vec<u8> {
        let ports = &packet.tcp()[..4];
        let connection = [&[u8::from(packet.v6)], packet.addresses(), ports].concat();
        if self.wharf(Reason::OneHeldPerConnection) {
            return connection;
        }
        let link = &packet.bytes[..packet.network_at];
        let ip = packet.ip();
        let label_and_extensions = match packet.v6 {
            true => [&[ip[1] & 0x0f, ip[2], ip[3], ip[6]], &ip[40..]].concat(),
            false => Vec::new(),
        };
        [connection.as_slice(), link, &label_and_extensions].concat()
    }

    /// Whether the packet may join what is held of its flow, and if so, whether with a fixed IPv4 ID.
    fn joins(&self, held: &Entry, packet: &Packet<'_>) -> Option<bool> {
        let first = self.arrivals.packet(held.frames[0]);
        let len = packet.payload().len();
        let fits = held.ip_len + len <= IP_MAX && len <= held.gso_size;
        let follows = packet.seq() == held.next_seq;
        let same = self.same_network(first, packet) && self.same_transport(first, packet);
        let fixed_id = self.id_step(held, first, packet)?;
        (fits && follows && same).then_some(fixed_id)
    }

    fn same_network(&self, first: &Packet<'_>, packet: &Packet<'_>) -> bool {
        let (a, b) = (first.ip(), packet.ip());
        let minus_zero = !first.v6
            && self.wharf(Reason::MinusZero)
            && [a, b].iter().any(|ip| be16(ip, 10) == 0xffff);
        let same = if first.v6 {
            // All but the payload length; addresses are the key's.
            a[..4] == b[..4] && a[6..8] == b[6..8] && a[40..] == b[40..]
        } else {
            a[1] == b[1] && a[6..10] == b[6..10]
        };
        let same_link = first.bytes[..first.network_at] == packet.bytes[..packet.network_at];
        same && same_link && !minus_zero
    }

    fn same_transport(&self, first: &Packet<'_>, packet: &Packet<'_>) -> bool {
        let (a, b) = (first.tcp(), packet.tcp());
        let cwr_on_first = self.kernel.cwr && !self.wharf(Reason::Cwr);
        let free = FIN | PSH | if cwr_on_first { CWR } else { 0 };
        let differs = (a[13] ^ b[13]) & !free != 0 || b[13] & CWR != 0;
        let minus_zero =
            self.wharf(Reason::MinusZero) && [a, b].iter().any(|tcp| be16(tcp, 16) == 0xffff);
        let urgent = self.wharf(Reason::Urgent) && a[18..20] != b[18..20];
        // Acknowledgment and data offset; window; options.
        let same = a[8..13] == b[8..13] && a[14..16] == b[14..16] && a[20..] == b[20..];
        same && !differs && !minus_zero && !urgent
    }

    /// Whether the IPv4 ID is the next one (`false`), or the same (`true`), as for all before.
    fn id_step(&self, held: &Entry, first: &Packet<'_>, packet: &Packet<'_>) -> Option<bool> {
        if packet.v6 {
            return Some(false);
        }
        let any_df = self.kernel.fixed_id || self.wharf(Reason::FixedId);
        let fixed = packet.id() == first.id() && (any_df || packet.ip()[6] & 0x40 != 0);
        let next = packet.id() == first.id().wrapping_add(held.frames.len() as u16);
        match held.fixed_id {
            None | Some(true) if fixed => Some(true),
            None | Some(false) if next => Some(false),
            _ => None,
        }
    }

    fn append(&mut self, at: usize, n: usize, packet: &Packet<'_>, fixed_id: bool) {
        let len = packet.payload().len();
        let held = &mut self.held[at];
        held.frames.push(n);
        held.next_seq = held.next_seq.wrapping_add(len as u32);
        held.ip_len += len;
        held.fixed_id = Some(fixed_id);
        let last = len < held.gso_size || packet.flags() & (PSH | FIN) != 0;
        if last {
            self.flush(at);
        }
    }

    fn alone_after(&mut self, held: Option<usize>, n: usize) {
        if let Some(at) = held {
            self.flush(at);
        }
        self.alone(n);
    }

    fn alone(&mut self, n: usize) {
        let bytes = self.arrivals.frames[n].clone();
        self.out.push(Out { vnet: None, bytes, frames: vec![n], fixed_id: false });
    }

    fn flush(&mut self, at: usize) {
        let held = self.held.remove(at);
        match held.frames[..] {
            [only] => self.alone(only),
            _ => self.out.push(join(self.arrivals, held)),
        }
    }
}

/// Several segments as one packet: the first's header with the length of all, FIN and PSH of any,
/// and a checksum to be completed.
fn join(arrivals: &Arrivals<'_>, held: Entry) -> Out {
    let packets: Vec<&Packet<'_>> = held.frames.iter().map(|n| arrivals.packet(*n)).collect();
    let first = packets[0];
    let mut bytes = first.bytes[..first.payload_at].to_vec();
    packets.iter().for_each(|packet| bytes.extend(packet.payload()));
    let ip_len = bytes.len() - first.network_at;
    let (ip, tcp) = bytes[first.network_at..].split_at_mut(first.ip().len());
    if first.v6 {
        ip[4..6].copy_from_slice(&(ip_len as u16 - 40).to_be_bytes());
    } else {
        ip[2..4].copy_from_slice(&(ip_len as u16).to_be_bytes());
        ip[10..12].fill(0);
        let checksum = !ones_complement_sum(ip);
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
    tcp[13] |= packets.iter().fold(0, |flags, packet| flags | packet.flags() & (FIN | PSH));
    let pseudo = ones_complement_sum(&pseudo_header(first.addresses(), 6, tcp.len()));
    tcp[16..18].copy_from_slice(&pseudo.to_be_bytes());
    let vnet = VirtioNetHdr {
        needs_csum: true,
        data_valid: false,
        gso_type: if first.v6 { GsoType::Tcpv6 } else { GsoType::Tcpv4 },
        ecn: first.flags() & CWR != 0,
        hdr_len: 0,
        gso_size: held.gso_size as u16,
        csum_start: first.transport_at as u16,
        csum_offset: 16,
        tunnel: None,
    };
    let fixed_id = held.fixed_id == Some(true);
    Out { vnet: Some(vnet), bytes, frames: held.frames, fixed_id }
}
