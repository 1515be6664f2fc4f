//! Regions whose memory is a file's: the process has sent a descriptor of it.
//!
//! A region's handle is a number of its own here, above all addresses, and its bytes lie behind that as behind an address:
//! what is aligned in the file has a place that is aligned.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use rdma::Handle;
use sys::memory_file::{Id, MemoryFile};

use super::atomic::Locks;

/// Most files of a process at once: each is a descriptor of the device's.
const FILES_MAX: usize = 256;
/// What tells a region's bytes from addresses of the process.
const OF_FILE: u64 = 1 << 63;
/// The bits of an offset. All regions of a process together have fewer bytes.
const OFFSET_BITS: u32 = 41;
const OFFSET_MAX: u64 = (1 << OFFSET_BITS) - 1;
/// Divisor by which the place of a region's first byte and its offset in the file have the same remainder.
const ALIGNMENT: u64 = 8;
/// Most regions.
const REGIONS_MAX: usize = 1 << 22;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Files {
    regions: Vec<Option<Region>>,
    free: Vec<usize>,
    /// Each file that a region has.
    files: BTreeMap<Id, Rc<Shared>>,
}

/// A file, and its locks.
#[derive(Debug)]
struct Shared {
    file: MemoryFile,
    locks: Locks,
    /// Bytes that were found to be in memory last.
    there: RefCell<Range<u64>>,
}

/// Its first byte is at `begin`, or up to seven bytes behind that: `begin` is aligned.
#[derive(Debug)]
struct Region {
    of: Rc<Shared>,
    begin: u64,
}

/// Whether this is a byte of a file's region.
#[inline]
pub(super) fn is_of_file(place: u64) -> bool {
    place & OF_FILE != 0
}

impl Files {
    /// A region of so many bytes of this file, which is to be written or only read; `None` if there are too many files or
    /// regions, if the file does not have all of its bytes, or if a write would bring a page that is not there.
    pub(super) fn add(
        &mut self,
        file: MemoryFile,
        begin: u64,
        len: u64,
        writes: bool,
    ) -> Option<Handle> {
        if len > OFFSET_MAX - ALIGNMENT || !file.has(begin, len) {
            return None;
        }
        let id = file.id();
        let is_known = self.files.contains_key(&id);
        let has_room = !self.free.is_empty() || self.regions.len() < REGIONS_MAX;
        if !has_room || (!is_known && self.files.len() >= FILES_MAX) {
            return None;
        }
        let known = self.files.get(&id).map_or(0..0, |of| of.there.borrow().clone());
        // Reading brings no pages in. A hole that is made later is not seen: nor is one that is made after this.
        let there = match begin..begin.saturating_add(len) {
            new if !writes || known.start <= new.start && new.end <= known.end => known,
            new => {
                let there = new.start..file.is_there_to(new.start);
                if there.end < new.end {
                    return None;
                }
                there
            }
        };
        let new = || Rc::new(Shared { file, locks: Locks::default(), there: RefCell::default() });
        let of = Rc::clone(self.files.entry(id).or_insert_with(new));
        *of.there.borrow_mut() = there;
        let first = begin % ALIGNMENT;
        let region = Some(Region { of, begin: begin - first });
        let at = match self.free.pop() {
            Some(at) => {
                self.regions[at] = region;
                at
            }
            None => {
                self.regions.push(region);
                self.regions.len() - 1
            }
        };
        Some(Handle(OF_FILE | (at as u64) << OFFSET_BITS | first))
    }

    /// Ends a region, and closes its file if no other has it. Handles of other memory are nothing here.
    pub(super) fn remove(&mut self, handle: Handle) {
        let Some((at, _)) = parts(handle.0) else { return };
        let Some(region) = self.regions.get_mut(at).and_then(Option::take) else { return };
        self.free.push(at);
        let id = region.of.file.id();
        drop(region);
        if self.files.get(&id).is_some_and(|file| Rc::strong_count(file) == 1) {
            self.files.remove(&id);
        }
    }

    /// The file of a region's byte, and where in the file that is.
    #[inline]
    pub(super) fn find(&self, place: u64) -> Option<(&MemoryFile, u64)> {
        let (of, at) = self.shared(place)?;
        Some((&of.file, at))
    }

    /// The same with the file's locks.
    pub(super) fn find_locks(&self, place: u64) -> Option<(&Locks, &MemoryFile, u64)> {
        let (of, at) = self.shared(place)?;
        Some((&of.locks, &of.file, at))
    }

    #[inline]
    fn shared(&self, place: u64) -> Option<(&Shared, u64)> {
        let (at, offset) = parts(place)?;
        let region = self.regions.get(at)?.as_ref()?;
        Some((&region.of, region.begin.checked_add(offset)?))
    }

    /// How many regions there are.
    pub(super) fn count(&self) -> usize {
        self.regions.len() - self.free.len()
    }
}

/// The region and the offset.
fn parts(place: u64) -> Option<(usize, u64)> {
    is_of_file(place).then_some((((place & !OF_FILE) >> OFFSET_BITS) as usize, place & OFFSET_MAX))
}

#[cfg(test)]
pub(super) mod tests {
    use std::os::fd::AsFd;
    use std::sync::atomic::Ordering;

    use sys::shared::SharedMemory;

    use super::*;

    /// A memfd of so many bytes, of which no page is there.
    pub(in super::super) fn sparse(bytes: usize) -> SharedMemory {
        SharedMemory::new(c"wharf-files", bytes).unwrap()
    }

    /// The same with all of its pages.
    pub(in super::super) fn memfd(bytes: usize) -> SharedMemory {
        let memory = sparse(bytes);
        memory.words().iter().for_each(|word| word.store(0, Ordering::Relaxed));
        memory
    }

    fn opened(of: &SharedMemory) -> MemoryFile {
        MemoryFile::new(of.as_fd().try_clone_to_owned().unwrap()).unwrap()
    }

    fn is_of(found: Option<(&MemoryFile, u64)>, of: &SharedMemory, at: u64) -> bool {
        found.is_some_and(|(file, begin)| (file.id(), begin) == (opened(of).id(), at))
    }

    #[test]
    fn each_region_has_its_file_and_nothing_else() {
        let (one, other) = (memfd(8192), memfd(8192));
        let mut files = Files::default();
        let first = files.add(opened(&one), 4096, 4096, true).unwrap().0;
        let second = files.add(opened(&other), 0, 8192, true).unwrap().0;
        let third = files.add(opened(&one), 8, 8, true).unwrap().0;
        assert!(is_of(files.find(first), &one, 4096) && is_of(files.find(first + 9), &one, 4105));
        assert!(is_of(files.find(second + 1), &other, 1) && is_of(files.find(third), &one, 8));
        assert_eq!((files.count(), files.files.len()), (3, 2));
        // No region goes on where another begins.
        assert!(second - first > 1 << 40 && third - second > 1 << 40);
        files.remove(Handle(first));
        assert!(files.find(first).is_none() && is_of(files.find(third), &one, 8));
        files.remove(Handle(first));
        files.remove(Handle(4096));
        files.remove(Handle(u64::MAX));
        assert_eq!((files.count(), files.files.len()), (2, 2));
        files.remove(Handle(third));
        assert_eq!(files.files.len(), 1, "the last region closes the file");
        assert!(files.find(4096).is_none() && files.find(u64::MAX).is_none());
        assert!(is_of(files.find(second), &other, 0));
    }

    #[test]
    fn a_region_that_the_file_does_not_have_is_none() {
        let one = memfd(8192);
        let mut files = Files::default();
        for (begin, len) in [(0, 8193), (8192, 1), (u64::MAX, 2), (1, u64::MAX), (1 << 63, 8)] {
            assert!(files.add(opened(&one), begin, len, true).is_none(), "{begin} {len}");
        }
        assert_eq!((files.count(), files.files.len()), (0, 0));
    }

    #[test]
    fn what_is_not_there_is_only_read() {
        let one = sparse(8192);
        let mut files = Files::default();
        assert!(files.add(opened(&one), 0, 8192, true).is_none());
        assert!(files.add(opened(&one), 0, 8192, false).is_some());
    }

    #[test]
    fn there_are_so_many_files_and_any_number_of_regions_of_them() {
        let all: Vec<SharedMemory> = (0..=FILES_MAX).map(|_| memfd(4096)).collect();
        let mut files = Files::default();
        let handles: Vec<_> = all.iter().map(|of| files.add(opened(of), 0, 4096, true)).collect();
        assert!(handles[..FILES_MAX].iter().all(Option::is_some) && handles[FILES_MAX].is_none());
        assert!(files.add(opened(&all[0]), 8, 8, true).is_some());
        files.remove(handles[1].unwrap());
        assert!(files.add(opened(&all[FILES_MAX]), 0, 4096, true).is_some());
    }
}
