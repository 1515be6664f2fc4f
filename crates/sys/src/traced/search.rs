//! Which of some processes has a socket.

use std::collections::{HashSet, VecDeque};
use std::fs;
use std::os::fd::OwnedFd;

use super::Thread;
use crate::tcp::inode_of;

/// A search among the descriptors of processes, which ends when it has looked at so many.
#[derive(Debug)]
pub struct Search {
    left: usize,
}

impl Search {
    /// One that looks at so many descriptors, threads and processes at most.
    pub fn new(most: usize) -> Self {
        Search { left: most }
    }

    /// At how many more it may look.
    pub fn left(&self) -> usize {
        self.left
    }

    /// Another descriptor for the socket of this inode, which one of these processes has, or one that they have started, or
    /// that those have, and so on. `None` also where they may not be traced.
    pub fn socket(
        &mut self,
        inode: u64,
        processes: impl IntoIterator<Item = u32>,
    ) -> Option<OwnedFd> {
        let mut waiting: VecDeque<u32> = processes.into_iter().collect();
        let mut seen = HashSet::new();
        while let Some(process) = waiting.pop_front() {
            if !seen.insert(process) {
                continue;
            }
            let mut is_open = false;
            for thread in numbers(&format!("/proc/{process}/task")) {
                if !self.takes_one() {
                    return None;
                }
                if !is_open {
                    // All threads have the same, but for one that has ended and is known yet: it has none.
                    match self.socket_of(thread, inode) {
                        (_, Some(found)) => return Some(found),
                        (has_some, None) => is_open = has_some,
                    }
                }
                // Without CONFIG_PROC_CHILDREN there is no such file, and nothing is known of them.
                let path = format!("/proc/{process}/task/{thread}/children");
                let children = fs::read_to_string(path).unwrap_or_default();
                waiting
                    .extend(children.split_whitespace().filter_map(|one| one.parse::<u32>().ok()));
            }
        }
        None
    }

    /// Whether a thread has descriptors, and one for the socket.
    fn socket_of(&mut self, thread: u32, inode: u64) -> (bool, Option<OwnedFd>) {
        let name = format!("socket:[{inode}]");
        let mut has_some = false;
        for fd in numbers(&format!("/proc/{thread}/fd")) {
            has_some = true;
            if !self.takes_one() {
                break;
            }
            let link = fs::read_link(format!("/proc/{thread}/fd/{fd}"));
            if link.is_ok_and(|link| link.as_os_str() == name.as_str()) {
                // It may have been closed meanwhile, and another file may be there.
                let found = Thread::of_number(thread).descriptor(fd as i32).ok();
                let is_it = |found: &OwnedFd| inode_of(found).is_ok_and(|is| is == inode);
                if let Some(found) = found.filter(is_it) {
                    return (true, Some(found));
                }
            }
        }
        (has_some, None)
    }

    fn takes_one(&mut self) -> bool {
        let left = self.left.checked_sub(1);
        self.left = left.unwrap_or(0);
        left.is_some()
    }
}

/// The entries of a directory that are numbers.
fn numbers(path: &str) -> impl Iterator<Item = u32> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a failed unwrap is the failed test
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_socket_is_found_by_its_inode() {
        let (near, far) = UnixStream::pair().unwrap();
        let own = std::process::id();
        let inode = inode_of(&near).unwrap();
        assert!(inode != inode_of(&far).unwrap());
        let mut search = Search::new(100_000);
        let found = search.socket(inode, [0, own]).unwrap();
        assert_eq!(inode_of(&found).unwrap(), inode);
        assert!(search.left() < 100_000);
        assert!(Search::new(0).socket(inode, [own]).is_none());
        assert!(Search::new(100_000).socket(u64::MAX, [own]).is_none());
    }
}
