//! The host interface in the wire's place: it has the wire's addresses, routes, neighbours and
//! settings, and what changes while it has them is followed.
//!
//! What appears on the wire meanwhile (from a DHCP client, a network manager, or the kernel's answer
//! to a router advertisement) is moved to the host interface, where an address that is there
//! already gets the newer lifetimes. What the host interface then has is the [`Latest`] state: that
//! is what the wire gets back at the end, so it is handed on whenever it changes.

mod sysctls;

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use sys::interface::Interface;
use sys::netlink::monitor::Monitor;
use sys::netlink::saved::Saved;

pub use sysctls::Sysctls;

/// How often settings are compared: the kernel tells of changes to few of them.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Between looks at addresses and routes there is so much time at least ...
const LEAST_REST: Duration = Duration::from_millis(20);
/// ... and so many times what the last look took, which with large routing tables is long.
const REST_FACTOR: u32 = 10;
/// How long what has moved stays on the wire, too, after the last of it came: the script of a DHCP
/// client adds an address, and then routes that the kernel accepts only beside it.
const STAY: Duration = Duration::from_secs(1);

/// What the wire is to have when the host interface is gone.
#[derive(Clone, Debug)]
pub struct Latest {
    /// Addresses, routes and neighbours, as the host interface has them.
    pub saved: Saved,
    /// Settings.
    pub sysctls: Sysctls,
}

/// What one look has found.
#[derive(Debug, Default)]
pub struct Followed {
    /// The [`Mirror::latest`] state is another one than before.
    pub changed: bool,
    /// What could not be moved, and why, once.
    pub notice: Option<String>,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Mirror {
    wire: u32,
    host: u32,
    monitor: Monitor,
    latest: Latest,
    /// Something has changed that has not been looked at.
    stale: bool,
    rested: Instant,
    settings_due: Instant,
    /// What is on the host interface by now and still on the wire, and when it goes from there.
    moved: Option<(Saved, Instant)>,
    /// The last [`Followed::notice`].
    told: Option<String>,
}

impl Mirror {
    /// Moves what the wire had `before` to the host interface, which must be up.
    ///
    /// # Errors
    /// What the kernel refuses. The wire may lack some of what it had then.
    pub fn start(before: &Latest, host: u32) -> sys::Result<Mirror> {
        let monitor = Monitor::open()?;
        let wire = before.saved.index;
        before.sysctls.move_to(&Interface::by_index(wire)?.name, &Interface::by_index(host)?.name);
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
            told: None,
        })
    }

    /// The state to give back to the wire.
    pub fn latest(&self) -> &Latest {
        &self.latest
    }

    /// How long until [`follow`](Self::follow) has something to do that no event tells of, in
    /// nanoseconds.
    pub fn timeout(&self) -> u64 {
        let stale = self.stale.then_some(self.rested);
        // What is new is looked at before anything goes from the wire.
        let moved = self.moved.as_ref().filter(|_| !self.stale).map(|(_, when)| *when);
        let until = [stale, moved].into_iter().flatten().fold(self.settings_due, Instant::min);
        let left = until.saturating_duration_since(Instant::now());
        u64::try_from(left.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Follows what has changed, up to [`settle`](Self::settle). To be called when the descriptor is readable, and after
    /// [`timeout`](Self::timeout).
    pub fn follow(&mut self) -> Followed {
        let mut followed = Followed::default();
        let known = &self.latest.saved.neighbours;
        // A socket that fails tells of nothing more; looking each time is what is left.
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

    /// Takes off the wire what was moved some time ago. To be called when the
    /// [`latest`](Self::latest) state is known elsewhere, so that it is lost at no instant.
    pub fn settle(&mut self) {
        // With the last IPv4 address of the wire all its IPv4 routes go (`fib_disable_ip`), so none
        // may be there that has not been looked at.
        if self.stale {
            return;
        }
        if let Some((moved, _)) = self.moved.take_if(|(_, when)| Instant::now() >= *when) {
            tracing::debug!("taken off {}: {}, which has moved", moved.name, counted(&moved));
            // What cannot be removed is looked at again with the next change.
            let _ = moved.remove();
        }
    }

    /// Follows all that has changed, now: the host interface is about to go.
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
                    Some(error) => self.tell_once(&error, followed),
                    None => self.told = None,
                }
            }
            // It will have its routes, and the kernel tells of them, when it is up again.
            Ok((_, None)) => {}
            Err(_) if is_gone(self.host) => {}
            Err(error) => {
                least_rest = STAY;
                if let Ok(Some(saved)) = self.save() {
                    self.latest.saved = saved;
                    followed.changed = true;
                }
                // A wire that is gone is told of elsewhere, and has nothing to move.
                if !is_gone(self.wire) {
                    self.tell_once(&error, followed);
                }
            }
        }
        self.rested = Instant::now() + least_rest.max(since.elapsed() * REST_FACTOR);
    }

    fn tell_once(&mut self, error: &sys::Error, followed: &mut Followed) {
        let notice = format!("what is new on the wire cannot all be moved: {error}");
        if self.told.as_ref() != Some(&notice) {
            self.told = Some(notice.clone());
            followed.notice = Some(notice);
        }
    }

    fn host_is_up(&self) -> sys::Result<bool> {
        Interface::by_index(self.host).map(|host| host.up)
    }

    /// Gives the host interface what is on the wire. What is refused stays there, and is tried again
    /// with each look; returns why the first was.
    fn move_to_host(&mut self) -> sys::Result<Option<sys::Error>> {
        let on_wire = Saved::save(self.wire)?;
        let new = match &self.moved {
            // What has been taken off the host interface meanwhile is not to come back.
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
        // What has been taken is not given again: the kernel tells of each renewal of an address, so
        // that one refusal would have all the others renewed without end.
        if !new.without(&refused.saved).is_empty() {
            self.moved = Some((on_wire.without(&refused.saved), Instant::now() + STAY));
        }
        Ok(Some(refused.error))
    }

    /// What the host interface has. `None` while it is down: the kernel then takes its routes away
    /// and its IPv6 addresses, also when it is being deleted.
    fn save(&self) -> sys::Result<Option<Saved>> {
        if !self.host_is_up()? {
            return Ok(None);
        }
        let saved = Saved::save(self.host)?;
        Ok(self.host_is_up()?.then_some(saved))
    }
}

/// What is moved, for the log.
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
