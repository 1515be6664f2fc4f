//! A test whether the wire's interface segments as wharf would, before segmentation is left to it, and whether the host's
//! kernel takes the aggregates that LRO makes.
//!
//! The first runs where the interface's frames can be received: at the other end of a veth, or on a card whose loopback
//! feature is on. A veth passes super-packets on whole. Received packets are therefore cut in software if they are
//! super-packets, and then compared.

mod probe;

use std::io;
use std::time::{Duration, Instant};

use sys::ethtool::Ethtool;
use sys::frames::FramePool;
use sys::interface::Interface;
use sys::packet::{BATCH, Config, Message, PacketSocket};
use sys::poll::{Interest, PollSet};
use wire::VirtioNetHdr;

use crate::port::hardware::Hardware;
use crate::port::{AggregateKind, AggregateKinds, Delivery, Host};

pub use probe::Shape;
use probe::{Arrived, DESTINATION, Probe, SOURCE};

/// How long a packet may take to arrive.
const PATIENCE: Duration = Duration::from_millis(100);

/// What became of a super-packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Its segments are right.
    Right,
    /// Its segments are wrong.
    Wrong,
    /// It was refused, with this error number.
    Refused(i32),
    /// Not all of it arrived, which proves nothing.
    Lost,
}

impl Verdict {
    fn of_error(error: &io::Error) -> Verdict {
        Verdict::Refused(error.raw_os_error().unwrap_or(0))
    }

    /// Whether it is a reason to do without.
    pub fn is_bad(self) -> bool {
        matches!(self, Verdict::Wrong | Verdict::Refused(_))
    }
}

/// Those of `hardware` that the interface does right. The others become notices.
pub(crate) fn passed(wire: &Interface, hardware: Hardware, notices: &mut Vec<String>) -> Hardware {
    let name = &wire.name;
    let Some(end) = where_it_is_seen(wire) else {
        tracing::info!("what {name} cuts cannot be seen from here: it is not tried");
        return hardware;
    };
    let verdicts = match segmentation(wire.index, end, |shape| wants(&hardware, shape)) {
        Ok(verdicts) => verdicts,
        Err(error) => {
            tracing::info!("what {name} cuts is not tried: {error}");
            return hardware;
        }
    };
    judge(name, hardware, &verdicts, notices)
}

/// The features by which `hardware` cuts a packet of this form.
fn wants(hardware: &Hardware, shape: Shape) -> bool {
    let tcp = if shape.v6 { hardware.tcp6 } else { hardware.tcp4 };
    if shape.udp { hardware.uso } else { tcp && (!shape.cwr || hardware.ecn) }
}

/// Returns true if a feature cuts packets of this form.
type IsOf = fn(&Shape) -> bool;
/// Returns the switch of a feature.
type Field = fn(&mut Hardware) -> &mut bool;

/// Takes away what is cut wrongly. A feature that cuts one form wrongly is not used for others.
fn judge(
    name: &str,
    hardware: Hardware,
    verdicts: &[(Shape, Verdict)],
    notices: &mut Vec<String>,
) -> Hardware {
    let mut passed = hardware;
    let features: [(_, IsOf, Field); 4] = [
        ("tx-tcp-segmentation", |s| !s.udp && !s.v6 && !s.cwr, |h| &mut h.tcp4),
        ("tx-tcp6-segmentation", |s| !s.udp && s.v6 && !s.cwr, |h| &mut h.tcp6),
        ("tx-tcp-ecn-segmentation", |s| s.cwr, |h| &mut h.ecn),
        ("tx-udp-segmentation", |s| s.udp, |h| &mut h.uso),
    ];
    for (feature, is_of, field) in features {
        let on = field(&mut passed);
        if !*on {
            tracing::debug!("{name} does not cut ({feature} is off): wharf cuts");
            continue;
        }
        let bad = verdicts.iter().find(|(shape, verdict)| is_of(shape) && verdict.is_bad());
        match bad {
            Some((shape, _)) => {
                *on = false;
                let words = shape.words();
                notices.push(format!(
                    "{name} cuts packets wrongly ({feature}: {words}): wharf cuts them itself"
                ));
            }
            None => tracing::info!("{name} cuts packets as it should ({feature})"),
        }
    }
    passed
}

/// Sends super-packets of the forms that `wants` selects by the interface `near`, and says of each what arrives at `far`.
///
/// # Errors
/// The packet sockets cannot be opened.
pub fn segmentation(
    near: u32,
    far: u32,
    wants: impl Fn(Shape) -> bool,
) -> io::Result<Vec<(Shape, Verdict)>> {
    let mut path = Path::open(near, far)?;
    let mut verdicts = Vec::new();
    for shape in Shape::all().filter(|shape| wants(*shape)) {
        let probe = Probe::new(shape);
        let verdict = match path.carry(&probe) {
            Err(error) => Verdict::of_error(&error),
            Ok(arrived) if !probe.is_all_of(&arrived) => Verdict::Lost,
            Ok(arrived) if probe.is_cut_right(&arrived) => Verdict::Right,
            Ok(_) => Verdict::Wrong,
        };
        verdicts.push((shape, verdict));
        if verdict == Verdict::Lost {
            // Nothing of the others would be seen either, each after a while.
            break;
        }
    }
    Ok(verdicts)
}

/// Hands super-packets of all forms over to a host's kernel, and returns those that it refuses. They are for an address that
/// no host has.
pub fn refused_by<H: Host>(host: &mut H) -> io::Result<Vec<(Shape, Verdict)>> {
    let pool = FramePool::new(2, sys::frames::MIN_CHUNK_SIZE)?;
    let mut refused = Vec::new();
    for shape in Shape::all() {
        let Probe { packet, vnet } = Probe::new(shape);
        let packet = Delivery { vnet, header: &packet, frames: &mut Vec::new(), rest: [&[]; 2] };
        match host.deliver(pool.reader(), packet) {
            Err(error) if crate::port::is_of_shape(&error) => {
                refused.push((shape, Verdict::of_error(&error)));
            }
            // An interface that is down or full says nothing about the form.
            _ => {}
        }
    }
    Ok(refused)
}

/// Kinds of aggregates of which the host's kernel refuses some, each with a notice.
pub(crate) fn refused_kinds<H: Host>(host: &mut H, notices: &mut Vec<String>) -> AggregateKinds {
    let mut kinds = AggregateKinds::NONE;
    for (shape, _) in refused_by(host).unwrap_or_default() {
        let kind = match (shape.udp, shape.v6) {
            (false, false) => AggregateKind::Tcp4,
            (false, true) => AggregateKind::Tcp6,
            (true, false) => AggregateKind::Udp4,
            (true, true) => AggregateKind::Udp6,
        };
        if !kinds.has(kind) {
            kinds.insert(kind);
            let words = shape.words();
            notices.push(format!("the host's kernel refuses {words}: such packets are not merged"));
        }
    }
    kinds
}

/// The index of the interface that receives the frames of `wire`, if one does.
fn where_it_is_seen(wire: &Interface) -> Option<u32> {
    let is_veth = wire.kind.as_deref() == Some("veth") && wire.link_netnsid.is_none();
    if let Some(peer) = wire.link.filter(|_| is_veth) {
        let peer = Interface::by_index(peer).ok()?;
        // The port of a bridge would forward the packets.
        return (peer.operational && peer.master.is_none()).then_some(peer.index);
    }
    let features = Ethtool::open(&wire.name).and_then(|ethtool| ethtool.features()).ok()?;
    (features.get("loopback") == Some(&true)).then_some(wire.index)
}

/// From an interface to the one that receives its frames.
struct Path {
    near: PacketSocket,
    far: PacketSocket,
    pool: FramePool,
}

impl Path {
    fn open(wire: u32, end: u32) -> io::Result<Path> {
        let send_only = Config { send_only: true, ..Config::default() };
        Ok(Path {
            near: PacketSocket::open(wire, send_only)?,
            far: PacketSocket::open(end, Config::default())?,
            pool: FramePool::new(2 * BATCH as u32, sys::frames::MIN_CHUNK_SIZE)?,
        })
    }

    /// Sends a packet, and returns what arrives.
    fn carry(&mut self, probe: &Probe) -> io::Result<Vec<Arrived>> {
        let vnet = probe.vnet.encode_legacy();
        self.near.send(&[Message { vnet, header: &probe.packet, payload: &[] }])?;
        let end = Instant::now() + PATIENCE;
        let mut arrived: Vec<Arrived> = Vec::new();
        while !probe.is_all_of(&arrived) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let mut set = PollSet::new();
            set.add(std::os::fd::AsFd::as_fd(&self.far), Interest::Read)?;
            set.wait(Some(left.as_nanos() as u64))?;
            self.receive(&mut arrived)?;
        }
        Ok(arrived)
    }

    fn receive(&mut self, arrived: &mut Vec<Arrived>) -> io::Result<()> {
        let mut received = Vec::new();
        self.far.receive(&mut self.pool, &mut received, BATCH)?;
        for packet in received {
            let rest = self.far.overflow(packet.slot, packet.overflow);
            let bytes = [self.pool.bytes(&packet.frame), rest].concat();
            self.pool.free(packet.frame);
            let is_probe = bytes.get(..12) == Some(&[DESTINATION, SOURCE].concat());
            if let (true, Ok(vnet)) = (is_probe, VirtioNetHdr::decode_legacy(&packet.vnet)) {
                arrived.push((vnet, bytes));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::memory::MemoryHost;
    use crate::port::{Delivered, FromHost, HostPacket};
    use std::os::fd::BorrowedFd;
    use sys::frames::FrameReader;

    const EINVAL: i32 = 22;

    /// A veth is a path, and cuts right; behind the port of a bridge nothing can be received.
    #[test]
    fn a_veth_is_tried() {
        use sys::netlink::link::{VethEnd, create_veth};
        let Ok(namespace) = sys::netns::Namespace::new() else { return };
        let made = namespace.run(|| -> sys::Result<()> {
            create_veth(&VethEnd::new("near"), &VethEnd::new("far"))?;
            sys::interface::set_up("near")?;
            sys::interface::set_up("far")?;
            let since = Instant::now();
            while !Interface::by_name("far")?.operational {
                assert!(since.elapsed() < Duration::from_secs(60), "it does not come up");
                std::thread::sleep(Duration::from_millis(1));
            }
            let near = Interface::by_name("near")?;
            let far = where_it_is_seen(&near).unwrap();
            let tried = segmentation(near.index, far, |_| true).unwrap();
            assert_eq!(tried.len(), 12);
            assert!(tried.iter().all(|(_, verdict)| *verdict == Verdict::Right), "{tried:?}");
            let mut notices = Vec::new();
            let hardware = Hardware::read("near");
            assert_eq!(passed(&near, hardware, &mut notices), hardware);
            assert!(hardware.tcp4 && notices.is_empty());
            Ok(())
        });
        made.unwrap().unwrap();
    }

    /// One form that is cut wrongly takes its feature away, and no other.
    #[test]
    fn each_form_counts_for_its_feature() {
        let all = Hardware::KERNEL;
        for wrong in Shape::all() {
            let verdict = |shape| if shape == wrong { Verdict::Wrong } else { Verdict::Right };
            let verdicts: Vec<_> = Shape::all().map(|shape| (shape, verdict(shape))).collect();
            let mut notices = Vec::new();
            let passed = judge("eth0", all, &verdicts, &mut notices);
            let expected = match wrong {
                Shape { cwr: true, .. } => Hardware { ecn: false, ..all },
                Shape { udp: true, .. } => Hardware { uso: false, ..all },
                Shape { v6: true, .. } => Hardware { tcp6: false, ..all },
                _ => Hardware { tcp4: false, ..all },
            };
            assert_eq!(passed, expected, "{}", wrong.words());
            assert!(notices.len() == 1 && notices[0].contains(&wrong.words()), "{notices:?}");
        }
        let lost = [(Shape { udp: false, v6: false, cwr: false, full: false }, Verdict::Lost)];
        assert_eq!(judge("eth0", all, &lost, &mut Vec::new()), all, "a loss proves nothing");
    }

    /// A host whose kernel refuses one form.
    #[derive(Debug)]
    struct Fault(MemoryHost, Shape);

    impl Host for Fault {
        fn deliver(&mut self, memory: &FrameReader, packet: Delivery<'_>) -> io::Result<Delivered> {
            match packet.header == Probe::new(self.1).packet {
                true => Err(io::Error::from_raw_os_error(EINVAL)),
                false => self.0.deliver(memory, packet),
            }
        }

        fn receive(&mut self) -> io::Result<FromHost<'_>> {
            self.0.receive()
        }

        fn again(&mut self) -> Option<HostPacket<'_>> {
            self.0.again()
        }

        fn last(&self) -> &[u8] {
            self.0.last()
        }

        fn fd(&self) -> Option<BorrowedFd<'_>> {
            None
        }
    }

    #[test]
    fn a_kernel_that_refuses_one_form_is_given_none_of_its_kind() {
        for shape in Shape::all() {
            let mut host = Fault(MemoryHost::new().0, shape);
            let refused = refused_by(&mut host).unwrap();
            assert_eq!(refused, [(shape, Verdict::Refused(EINVAL))]);
            let mut notices = Vec::new();
            let kinds = refused_kinds(&mut host, &mut notices);
            let kind = AggregateKind::of_frame(&Probe::new(shape).packet);
            assert!(kinds.has(kind) && kinds.count() == 1, "{kinds:?} for {}", shape.words());
            assert!(notices[0].contains(&shape.words()), "{notices:?}");
        }
        assert_eq!(refused_by(&mut MemoryHost::new().0).unwrap(), []);
    }
}
