//! The host interface in the wire's place: it has the wire's addresses, routes, neighbours and settings, and
//! follows their changes.
//!
//! What is added to the wire meanwhile (by a DHCP client, a network manager, or the kernel because of a
//! router advertisement) is moved to the host interface, where an address that exists already gets the newer
//! lifetimes. The [`Latest`] state is what the host interface then has. The wire gets it back at the end, so
//! it is passed on whenever it changes.

mod sysctls;

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use sys::interface::Interface;
use sys::netlink::monitor::Monitor;
use sys::netlink::neighbour::Resolved;
use sys::netlink::saved::Saved;

pub use sysctls::Sysctls;

/// Time between two comparisons of settings: the kernel notifies of changes to few of them.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Least time between two looks at addresses and routes ...
const LEAST_REST: Duration = Duration::from_millis(20);
/// ... and least multiple of the duration of the last look, which is long with large routing tables.
const REST_FACTOR: u32 = 10;
/// How long moved addresses and routes stay on the wire, too, after the last of them came: the script of a
/// DHCP client adds an address, and then routes that the kernel accepts only beside it.
const STAY: Duration = Duration::from_secs(1);

/// State that the wire is to have when the host interface is deleted.
#[derive(Clone, Debug)]
pub struct Latest {
    /// Addresses, routes and neighbours, as the host interface has them.
    pub saved: Saved,
    /// Settings.
    pub sysctls: Sysctls,
}

/// Result of following changes.
#[derive(Debug, Default)]
pub struct Followed {
    /// Whether the [`Mirror::latest`] state has changed.
    pub changed: bool,
    /// What could not be moved, and why; reported once.
    pub notice: Option<String>,
}

/// The mirror of a wire on a host interface.
#[derive(Debug)]
pub struct Mirror {
    wire: u32,
    host: u32,
    monitor: Monitor,
    latest: Latest,
    /// Whether there are changes that have not been read.
    stale: bool,
    rested: Instant,
    settings_due: Instant,
    /// What is on the host interface and still on the wire, and when it is removed from the wire.
    moved: Option<(Saved, Instant)>,
    /// The last [`Followed::notice`].
    last_notice: Option<String>,
}

impl Mirror {
    /// Moves the wire's state `before` to the host interface, which must be up.
    ///
    /// # Errors
    /// Errors of the kernel. The wire may then lack a part of its state.
    pub fn start(before: &Latest, host: u32) -> sys::Result<Mirror> {
        let monitor = Monitor::open()?;
        let wire = before.saved.index;
        before.sysctls.move_to(&Interface::by_index(wire)?.name, &Interface::by_index(host)?.name);
        Resolved::of(wire).tell(host);
        before.saved.remove()?;
        before.saved.apply(host)?;
        tracing::info!(
            "moved {} from {} to interface {host}",
            counted(&before.saved),
            before.saved.name
        );
        let now = Instant::now();
        Ok(Mirror {
            wire,
            host,
            monitor,
            latest: Latest { saved: Saved::save(host)?, sysctls: before.sysctls.clone() },
            stale: true,
            rested: now,
            settings_due: now + LOOK_EVERY,
            moved: None,
            last_notice: None,
        })
    }

    /// The state to be given back to the wire.
    pub fn latest(&self) -> &Latest {
        &self.latest
    }

    /// Nanoseconds until [`follow`](Self::follow) is to be called without an event.
    pub fn timeout(&self) -> u64 {
        let stale = self.stale.then_some(self.rested);
        // Changes are read before anything is removed from the wire.
        let moved = self.moved.as_ref().filter(|_| !self.stale).map(|(_, when)| *when);
        let until = [stale, moved].into_iter().flatten().fold(self.settings_due, Instant::min);
        let left = until.saturating_duration_since(Instant::now());
        u64::try_from(left.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Follows all changes, up to [`settle`](Self::settle). To be called when the descriptor is readable, and
    /// after [`timeout`](Self::timeout).
    pub fn follow(&mut self) -> Followed {
        let mut followed = Followed::default();
        let known = &self.latest.saved.neighbours;
        // A socket that fails gives no more notifications; then each call looks.
        self.stale |= self.monitor.changed([self.wire, self.host], known).unwrap_or(true);
        if Instant::now() >= self.settings_due {
            followed.changed |= self.latest.sysctls.follow(self.wire, self.host);
            self.settings_due = Instant::now() + LOOK_EVERY;
        }
        if self.stale && Instant::now() >= self.rested {
            self.look(&mut followed);
        }
        followed
    }

    /// Removes from the wire what was moved some time ago. To be called when the [`latest`](Self::latest)
    /// state is stored elsewhere, so that it is never lost.
    pub fn settle(&mut self) {
        // With the last IPv4 address of the wire the kernel removes all its IPv4 routes (`fib_disable_ip`),
        // so there must be none that has not been read.
        if self.stale {
            return;
        }
        if let Some((moved, _)) = self.moved.take_if(|(_, when)| Instant::now() >= *when) {
            tracing::debug!("taken off {}: {}, which has moved", moved.name, counted(&moved));
            // What cannot be removed is read again with the next change.
            let _ = moved.remove();
        }
    }

    /// Follows all changes at once: the host interface is about to be deleted.
    pub fn finish(&mut self) -> Followed {
        let mut followed = Followed::default();
        followed.changed |= self.latest.sysctls.follow(self.wire, self.host);
        self.look(&mut followed);
        followed
    }

    fn look(&mut self, followed: &mut Followed) {
        let since = Instant::now();
        self.stale = false;
        let mut least_rest = LEAST_REST;
        let moved = self.move_to_host();
        match moved.and_then(|refused| Ok((refused, self.save()?))) {
            Ok((refused, Some(saved))) => {
                self.latest.saved = saved;
                followed.changed = true;
                match refused {
                    Some(error) => self.report_once(&error, followed),
                    None => self.last_notice = None,
                }
            }
            // Once it is up again it has its routes, and the kernel notifies of them.
            Ok((_, None)) => {}
            Err(_) if is_gone(self.host) => {}
            Err(error) => {
                least_rest = STAY;
                if let Ok(Some(saved)) = self.save() {
                    self.latest.saved = saved;
                    followed.changed = true;
                }
                // A wire that is gone is reported elsewhere, and has nothing to move.
                if !is_gone(self.wire) {
                    self.report_once(&error, followed);
                }
            }
        }
        self.rested = Instant::now() + least_rest.max(since.elapsed() * REST_FACTOR);
    }

    fn report_once(&mut self, error: &sys::Error, followed: &mut Followed) {
        let notice = format!("what is new on the wire cannot all be moved: {error}");
        if self.last_notice.as_ref() != Some(&notice) {
            self.last_notice = Some(notice.clone());
            followed.notice = Some(notice);
        }
    }

    fn host_is_up(&self) -> sys::Result<bool> {
        Interface::by_index(self.host).map(|host| host.up)
    }

    /// Moves the wire's state to the host interface. Parts that are refused stay on the wire, and are tried
    /// again at each look. Returns the first refusal.
    fn move_to_host(&mut self) -> sys::Result<Option<sys::Error>> {
        let on_wire = Saved::save(self.wire)?;
        let new = match &self.moved {
            // What has been removed from the host interface meanwhile must not return.
            Some((moved, _)) => on_wire.without(moved),
            None => on_wire.clone(),
        };
        if new.is_empty() || !self.host_is_up()? {
            tracing::trace!("nothing to move from {}", on_wire.name);
            return Ok(None);
        }
        tracing::info!("moving {} from {} to interface {}", counted(&new), new.name, self.host);
        let there = sys::netlink::address::list(self.host)?;
        let Some(refused) = new.refresh(self.host, &there)? else {
            self.moved = Some((on_wire, Instant::now() + STAY));
            return Ok(None);
        };
        // What was moved is not moved again: the kernel notifies of each renewal of an address, so that one
        // refusal would renew all the others without end.
        if !new.without(&refused.saved).is_empty() {
            self.moved = Some((on_wire.without(&refused.saved), Instant::now() + STAY));
        }
        Ok(Some(refused.error))
    }

    /// The state of the host interface. `None` while it is down: the kernel then removes its routes and its
    /// IPv6 addresses, also when it is being deleted.
    fn save(&self) -> sys::Result<Option<Saved>> {
        if !self.host_is_up()? {
            return Ok(None);
        }
        let saved = Saved::save(self.host)?;
        Ok(self.host_is_up()?.then_some(saved))
    }
}

/// What is moved, as text for the log.
fn counted(saved: &Saved) -> String {
    let Saved { addresses, routes, neighbours, .. } = saved;
    format!(
        "{} addresses, {} routes and {} neighbours",
        addresses.len(),
        routes.len(),
        neighbours.len()
    )
}

fn is_gone(index: u32) -> bool {
    Interface::by_index(index).is_err_and(|error| error.is_missing())
}

impl AsFd for Mirror {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.monitor.as_fd()
    }
}
