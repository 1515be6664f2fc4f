//! What the host has a say about: where a connection's packets go, and who would see them in the kernel.
//!
//! A connection is looked at when it is offered, and again when something has changed that may concern it. The kernel
//! tells of changes by netlink; what it does not tell of (iptables as before nftables, BPF that is linked) is looked at
//! every second. Nothing is listed for a single connection.

mod firewall;
mod groups;
mod hops;
mod kernel;
mod pending;
mod tracking;

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use ::tcp::FourTuple;
use handoff::{Refusal, RestoreReason};
use sys::interface::Interface;
use sys::netlink::changes::{Change, Changes};
use sys::netlink::route::{self, NextHop};
use sys::netlink::{diag, xfrm};
use sys::tcp::namespace_of;
use wire::Mac;

use self::firewall::Firewall;
use self::groups::Groups;
use self::hops::Hops;
use self::kernel::{Kernel, Once};
use self::pending::Pending;
use self::tracking::{Tracked, Tracking};

pub(super) use self::pending::News;

/// How often that is looked at of which the kernel does not tell.
const EVERY: Duration = Duration::from_secs(1);
/// Looks at connections take no more than one in so many parts of the agent's time.
const SHARE: u32 = 5;

/// The host that connections are of, as their agent sees it.
#[derive(Debug)]
pub(crate) struct Host {
    /// The network namespace, as [`namespace_of`] has it.
    pub(super) namespace: u64,
    /// Index of the host's interface.
    pub(super) interface: u32,
    kernel: Kernel,
    changes: Changes,
    firewall: Option<Firewall>,
    /// Policies of IPsec, as they were listed last.
    policies: Option<Vec<xfrm::Policy>>,
    groups: Groups,
    hops: Hops,
    tracking: Tracking,
    pending: Pending,
    /// When [`EVERY`] has passed.
    next: Instant,
    /// Until then connections are not looked at again.
    rests: Instant,
    cannot_list_policies: Once,
}

/// How a connection stood when it was looked at.
#[derive(Debug)]
pub(super) struct Standing {
    /// Where its segments go.
    pub(super) next_hop: Mac,
    hop: NextHop,
    user: u32,
    /// Its control group.
    group: Option<u64>,
    tracked: Option<Tracked>,
}

/// Who has a connection: the process, and the user that its socket is of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    pub(super) pid: i32,
    pub(super) user: u32,
}

/// What follows for a connection from what has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// It goes back.
    Back(RestoreReason),
    /// Its segments go to another Ethernet address.
    NextHop(Mac),
}

/// The ends of a connection on the wire behind this interface: link-local addresses with their scope.
fn scoped(path: &FourTuple, interface: u32) -> (SocketAddr, SocketAddr) {
    let scoped = |end: SocketAddr| match end {
        SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() => {
            SocketAddrV6::new(*v6.ip(), v6.port(), 0, interface).into()
        }
        end => end,
    };
    (scoped(path.local), scoped(path.remote))
}

impl Host {
    /// That of the calling thread's network namespace, with an interface of this index. With `bypass_firewall` neither
    /// the firewall nor tc are asked.
    ///
    /// # Errors
    /// What socket(2) says, and why changes cannot be heard of.
    pub(crate) fn new(interface: u32, bypass_firewall: bool) -> io::Result<Host> {
        let socket = std::net::UdpSocket::bind((std::net::Ipv4Addr::UNSPECIFIED, 0))?;
        let now = Instant::now();
        Ok(Host {
            namespace: namespace_of(&socket)?,
            interface,
            // Before anything is looked at, so that no change is missed.
            changes: Changes::open()?,
            kernel: Kernel::open()?,
            firewall: (!bypass_firewall).then(|| Firewall::new(interface)),
            policies: None,
            groups: Groups::default(),
            hops: Hops::new(interface),
            tracking: Tracking::default(),
            pending: Pending::new(interface, Interface::by_index(interface)?.mtu),
            next: now,
            rests: now,
            cannot_list_policies: Once::default(),
        })
    }

    /// What becomes readable when something has changed.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.changes.descriptors()
    }

    /// Whether a connection may be handed off, and how it stands then. One that is admitted is to be
    /// [released](Self::release).
    pub(super) fn admit(&mut self, path: &FourTuple, owner: Owner) -> Result<Standing, Refusal> {
        self.hear();
        let now = Instant::now();
        if let Some(firewall) = &mut self.firewall {
            let decides = firewall.look(&mut self.kernel, now);
            if decides.rules.has(path.local.ip()) {
                return Err(Refusal::Firewall);
            }
            if decides.traffic {
                return Err(Refusal::TrafficControl);
            }
        }
        if self.is_secured(path) {
            return Err(Refusal::Ipsec);
        }
        let shown = match &mut self.kernel.diag {
            Some(diag) => {
                let (local, remote) = scoped(path, self.interface);
                diag::show(diag, local, remote).ok().flatten()
            }
            None => None,
        };
        let shown = shown.unwrap_or_default();
        if shown.has_md5 {
            return Err(Refusal::Md5);
        }
        if shown.control_group.is_some_and(|group| self.groups.has_programs(group, owner.pid, now))
        {
            return Err(Refusal::CgroupBpf);
        }
        let tracked = self.tracking.look(&mut self.kernel, path)?;
        let Owner { user, .. } = owner;
        let hop = self.route(path, user).map_err(|_| Refusal::Route)?;
        if hop.interface != self.interface {
            return Err(Refusal::Route);
        }
        let next_hop = self.hops.take(&mut self.kernel, hop.neighbour, now);
        let next_hop = next_hop.ok_or(Refusal::Route)?;
        Ok(Standing { next_hop, hop, user, group: shown.control_group, tracked })
    }

    fn route(&mut self, path: &FourTuple, user: u32) -> sys::Result<NextHop> {
        let (local, remote) = scoped(path, self.interface);
        route::next_hop(&mut self.kernel.route, local, remote, user)
    }

    /// Whether a policy of IPsec may apply to a connection.
    fn is_secured(&mut self, path: &FourTuple) -> bool {
        let Some(netlink) = &mut self.kernel.xfrm else { return false };
        if self.policies.is_none() {
            match xfrm::policies(netlink) {
                Ok(policies) => self.policies = Some(policies),
                Err(error) => {
                    self.cannot_list_policies.warn(format_args!("{error}: nothing is handed off"));
                    return true;
                }
            }
        }
        let concerns = |policy: &xfrm::Policy| policy.concerns(path.local, path.remote);
        self.policies.iter().flatten().any(concerns)
    }

    /// Hears what has changed.
    pub(super) fn hear(&mut self) {
        let Host { changes, firewall, policies, hops, pending, kernel, .. } = self;
        let heard = changes.read(|change| {
            if let Some(firewall) = firewall {
                firewall.hear(&change);
            }
            if matches!(change, Change::Policies | Change::Overrun) {
                *policies = None;
            }
            pending.hear(&change, |ip, mac| hops.hear(kernel, ip, mac));
        });
        if let Err(error) = heard {
            tracing::error!("changes around connections are not heard of any more: {error}");
            pending.hear(&Change::Overrun, |_, _| None);
        }
    }

    /// What has changed since the last call, if that may concern connections, and if it is time to look at them.
    /// `has_connections` says whether there are any.
    pub(super) fn news(&mut self, has_connections: bool) -> Option<News> {
        let now = Instant::now();
        if !has_connections {
            self.pending.clear();
            return None;
        }
        if now < self.rests {
            return None;
        }
        let is_time = now >= self.next;
        if is_time {
            self.next = now + EVERY;
            self.groups.forget_unused(now);
            self.hops.keep_fresh(&mut self.kernel, now);
        }
        let mut news = self.pending.take(is_time)?;
        if news.is_everything {
            news.hops.extend(self.hops.look_again(&mut self.kernel));
        }
        if let Some(firewall) = &mut self.firewall {
            let decides = firewall.look(&mut self.kernel, now);
            news.sees = decides.all();
        }
        Some(news)
    }

    /// How long until there may be [news](Self::news).
    pub(super) fn due(&self) -> Duration {
        let next = if self.pending.is_empty() { self.next.max(self.rests) } else { self.rests };
        next.saturating_duration_since(Instant::now())
    }

    /// Connections were looked at, which took so long.
    pub(super) fn looked(&mut self, took: Duration) {
        self.rests = Instant::now() + took * (SHARE - 1);
    }

    /// What follows for a connection.
    pub(super) fn verdict(
        &mut self,
        path: &FourTuple,
        standing: &mut Standing,
        pid: i32,
        news: &News,
    ) -> Option<Verdict> {
        let back = |reason| Some(Verdict::Back(reason));
        if let Some(reason) = news.all {
            return back(reason);
        }
        if news.sees.has(path.local.ip()) || news.policies && self.is_secured(path) {
            return back(RestoreReason::Firewall);
        }
        if news.is_time {
            let now = Instant::now();
            let has = |host: &mut Host, group| host.groups.has_programs(group, pid, now);
            if standing.group.is_some_and(|group| has(self, group)) {
                return back(RestoreReason::Firewall);
            }
            if let Some(tracked) = &mut standing.tracked {
                self.tracking.keep_fresh(&mut self.kernel, path, tracked, now);
            }
        }
        if news.has_lost(path.local.ip()) && !self.is_own(path.local.ip()) {
            return back(RestoreReason::Address);
        }
        if news.may_reroute(path.remote.ip())
            && self.route(path, standing.user).ok() != Some(standing.hop)
        {
            return back(RestoreReason::Route);
        }
        match news.moved(standing.hop.neighbour)? {
            Some(mac) if mac != standing.next_hop => {
                standing.next_hop = mac;
                Some(Verdict::NextHop(mac))
            }
            Some(_) => None,
            // The kernel asks for it again when it has a packet for it, and tells applications if nobody answers.
            None => back(RestoreReason::Route),
        }
    }

    /// Whether an address is still one of this machine's.
    fn is_own(&mut self, ip: IpAddr) -> bool {
        route::is_own(&mut self.kernel.route, ip).unwrap_or(true)
    }

    /// A connection was handed off: what it sends and receives from now on passes the kernel by.
    pub(super) fn handed_off(&mut self, path: &FourTuple, standing: &mut Standing) {
        if let Some(tracked) = &mut standing.tracked {
            self.tracking.begin(&mut self.kernel, path, tracked, Instant::now());
        }
    }

    /// A connection is not the NIC's any more. `is_over` says that it has ended there.
    pub(super) fn release(&mut self, path: &FourTuple, standing: Standing, is_over: bool) {
        self.hops.leave(standing.hop.neighbour);
        if let Some(tracked) = standing.tracked {
            self.tracking.end(&mut self.kernel, path, &tracked, is_over);
        }
    }
}
