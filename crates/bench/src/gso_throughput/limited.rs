//! A sender that is as fast as its CPU time lets it, and a receiver that costs it nothing.
//!
//! The sender's kernel and wharf's worker have one core and share a bound on their use of it. The
//! receiver has another core. A veth hands its frames over on the core of the sender, and its far
//! end would receive there: so a thread of the kernel receives at the far end (threaded NAPI), on the
//! receiver's core. It is not woken for each frame but looks every now and then, as a card's interrupt
//! is held back. What a veth with TSO hands over is moved to the receiver's core by RPS.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nic::Nic;
use nic::config::{Config, GsoHardware, WireMode};
use sys::cgroup::CpuGroup;
use sys::ethtool::{Ethtool, Offload};
use sys::interface;
use sys::netlink::address;
use sys::netns::Namespace;
use sys::sysfs::Sysfs;

use super::case::{Case, Protocol};
use crate::sink::io;
use crate::{Error, link};

/// The sender's end of the wire, and the interface that wharf makes for it.
const WIRE: &str = "wire0";
const HOST: &str = "host0";
/// How long the receiver's end waits until it looks again, in nanoseconds, and for how long it goes on
/// doing so. A veth's ring holds 256 frames.
const LOOK_AGAIN: &str = "50000";
const LOOKS: &str = "100000";
/// Packets that may wait in the host's interface: more than TCP's window and than
/// datagrams in flight have, so that nothing is lost there.
const HOST_QUEUE: &str = "8192";
/// `tcp_wmem`: send buffers as large as the receiver's window.
const SEND_BUFFERS: &str = "4096 1048576 8388608";
/// How long the kernel may take to start a thread.
const PATIENCE: Duration = Duration::from_secs(2);

/// The cores of the two hosts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cores {
    pub(super) sender: usize,
    pub(super) receiver: usize,
}

impl Cores {
    /// Two of those that this process may use.
    pub(super) fn choose() -> Result<Cores, Error> {
        match sys::affinity::cpus().map_err(io("list the CPUs"))?[..] {
            [sender, receiver, ..] => Ok(Cores { sender, receiver }),
            _ => Err(Error::Usage("it takes two CPUs, one for each host".to_owned())),
        }
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct LimitedSender {
    pub(super) sender: Namespace,
    pub(super) receiver: Namespace,
    pub(super) nic: Nic,
    /// The thread of the kernel that receives.
    pub(super) napi: u32,
}

impl LimitedSender {
    /// wharf runs on the sender's core and in `group`.
    pub(super) fn new(
        case: Case,
        protocol: Protocol,
        config: &Config,
        cores: Cores,
        group: Option<Arc<CpuGroup>>,
    ) -> Result<LimitedSender, Error> {
        let (sender, receiver) = (Namespace::new()?, Namespace::new()?);
        // Threads of the kernel are named after interfaces, and namespaces do not matter for that; those of
        // a namespace without a process stay for a while.
        static MADE: AtomicU32 = AtomicU32::new(0);
        let far = format!("w{:x}.{:x}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let (near_address, far_address, prefix_len) = protocol.addresses();
        link::veth((&receiver, &far), (&sender, WIRE))?;
        receiver.run(|| -> Result<(), Error> {
            let features = Ethtool::open(&far)?;
            features.set_offload(Offload::Tso, false)?;
            features.set_offload(Offload::TxChecksum, false)?;
            features.set_offload(Offload::Gro, true)?;
            // So that datagrams sent together are received together.
            let _ = features.set_feature("rx-udp-gro-forwarding", true);
            address::add(interface::index(&far)?, far_address, prefix_len, true)?;
            interface::set_up(&far)?;
            // These can be set once it is up.
            let sysfs = Sysfs::mount()?;
            let set = |name, value| {
                sysfs.setting(&far, name)?.set(value).map_err(io("set up the receiver"))
            };
            set("threaded", "1")?;
            set("gro_flush_timeout", LOOK_AGAIN)?;
            set("napi_defer_hard_irqs", LOOKS)?;
            if case == Case::Tso {
                let mask = link::cpu_mask(cores.receiver);
                let rps = sysfs.queue_setting(&far, 0, "rps_cpus")?;
                rps.set(&mask).map_err(io("receive on the receiver's core"))?;
            }
            // Of a datagram that has lost a fragment the rest soon goes.
            let _ = sys::sysctl::write(&["ipv4", "ipfrag_time"], "1");
            let _ = sys::sysctl::write(&["ipv6", "ip6frag_time"], "1");
            Ok(())
        })??;
        let config = configured(case, protocol, config);
        let nic = sender.run(move || -> Result<Nic, Error> {
            let features = Ethtool::open(WIRE)?;
            features.set_offload(Offload::Tso, case == Case::Tso)?;
            let _ = features.set_feature("tx-udp-segmentation", case == Case::Tso);
            features.set_offload(Offload::TxChecksum, case == Case::Tso)?;
            sys::sysctl::write(&["ipv4", "tcp_wmem"], SEND_BUFFERS)?;
            // What this thread starts is where it is.
            enter(cores.sender, group.as_deref())?;
            let nic = Nic::start(WIRE, HOST, config.for_a_host(false))?;
            if case == Case::None {
                Ethtool::open(HOST)?.set_offload(Offload::Gso, false)?;
            }
            let queue = Sysfs::mount()?.setting(HOST, "tx_queue_len")?;
            queue.set(HOST_QUEUE).map_err(io("set the host's queue"))?;
            address::add(nic.host().1, near_address, prefix_len, true)?;
            Ok(nic)
        })??;
        let napi = receiving_thread(&far)?;
        sys::affinity::pin_thread(napi, cores.receiver).map_err(io("pin the receiving thread"))?;
        // As an interrupt would, before the threads that read what it has received.
        sys::process::set_real_time(napi).map_err(io("let the kernel receive first"))?;
        Ok(LimitedSender { sender, receiver, nic, napi })
    }

    /// Ends wharf.
    pub(super) fn stop(self) -> Result<(), Error> {
        self.nic.stop().map_err(io("end wharf"))
    }
}

/// Puts the calling thread on a core and into a group.
pub(super) fn enter(core: usize, group: Option<&CpuGroup>) -> Result<(), Error> {
    sys::affinity::pin(core).map_err(io("pin a thread"))?;
    Ok(group.map_or(Ok(()), CpuGroup::join)?)
}

/// wharf's settings for a case.
fn configured(case: Case, protocol: Protocol, config: &Config) -> Config {
    let mut config = config.clone();
    config.gso.enable = matches!(case, Case::Gso | Case::Tso);
    config.gso.hardware = GsoHardware::Off;
    if case == Case::Tso {
        config.gso.hardware = GsoHardware::Auto;
        config.wire.mode = WireMode::Packet;
    }
    if protocol.is_fragmented() {
        // The host hands datagrams over whole where it may.
        config.host.mtu = 65_535;
    }
    config
}

/// The thread of the kernel that receives at the interface.
pub(crate) fn receiving_thread(interface: &str) -> Result<u32, Error> {
    let since = Instant::now();
    loop {
        match sys::process::find(&format!("napi/{interface}-")) {
            Some(id) => return Ok(id),
            None if since.elapsed() > PATIENCE => {
                let cause = io::Error::other("it has no thread for it");
                return Err(Error::Io { what: "find who receives in the kernel", cause });
            }
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}
