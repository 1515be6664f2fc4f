//! BPF programs of control groups.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::os::fd::AsFd;
use std::time::Instant;

use sys::bpf;

use super::EVERY;
use super::kernel::Once;

/// The groups of connections, by the kernel's numbers.
#[derive(Debug, Default)]
pub(super) struct Groups {
    /// Where they are found; the inner one is `None` if there are none.
    tree: Option<Option<bpf::Groups>>,
    all: HashMap<u64, Group>,
    cannot_look: Once,
}

#[derive(Debug)]
struct Group {
    /// `None` for one that cannot be found, as from within a container.
    group: Option<bpf::Group>,
    has_programs: bool,
    looked: Instant,
    used: Instant,
}

/// A group that no connection has been looked at for so many times [`EVERY`] is forgotten.
const FORGOTTEN: u32 = 10;

impl Groups {
    /// Whether programs of a group see packets of its sockets, or follow its connections. `pid` is a process that is
    /// likely in it.
    pub(super) fn has_programs(&mut self, number: u64, pid: i32, now: Instant) -> bool {
        let looked = match self.all.get(&number) {
            Some(known) if now.saturating_duration_since(known.looked) < EVERY => {
                Ok(known.has_programs)
            }
            _ => self.look(number, pid, now),
        };
        if let Some(known) = self.all.get_mut(&number) {
            known.used = now;
        }
        looked.unwrap_or_else(|error| {
            self.cannot_look.warn(format_args!(
                "cannot look for BPF programs of control groups ({error}): there may be some"
            ));
            false
        })
    }

    fn look(&mut self, number: u64, pid: i32, now: Instant) -> io::Result<bool> {
        if self.tree.is_none() {
            self.tree = Some(bpf::Groups::find()?);
        }
        let Some(Some(tree)) = &self.tree else { return Ok(false) };
        let known = match self.all.entry(number) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let group = tree.group(number, pid.unsigned_abs())?;
                new.insert(Group { group, has_programs: false, looked: now, used: now })
            }
        };
        let Group { group, has_programs, looked, .. } = known;
        *looked = now;
        let Some(group) = group else {
            let missing = "its connections are of one that is not seen here";
            return Err(io::Error::new(io::ErrorKind::NotFound, missing));
        };
        *has_programs = bpf::at_group(group.as_fd())?;
        Ok(*has_programs)
    }

    /// Forgets those that no connection is of any more.
    pub(super) fn forget_unused(&mut self, now: Instant) {
        self.all.retain(|_, group| now.saturating_duration_since(group.used) < EVERY * FORGOTTEN);
    }
}
