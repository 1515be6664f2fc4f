//! Registered memory of a process.

mod atomic;
mod files;
mod placing;

use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rdma::memory::Pieces;
use rdma::rdmap::atomic::Operation;
use rdma::session::message::RegisterRequest;
use rdma::verbs::Access;
use rdma::{Extent, Fault, Handle, Location, Memory};
use sys::memory_file::MemoryFile;
use sys::process_memory::{PARTS_MAX, ProcessMemory};

use atomic::{Asked, Slowness, Turns};
use files::{Files, is_of_file};
use placing::{Copied, Placing};

/// Atomic operations of all processes of this device.
static ATOMIC: Turns = Turns::new();
/// How often one is begun anew whose memory was so slow to come that others were let pass.
const TRIES: u32 = 3;
/// How long an operation waits before it tries again to lock a file.
const REST: Duration = Duration::from_micros(50);

/// Rights to write to a region.
const WRITES: u32 =
    Access::LOCAL_WRITE.bits() | Access::REMOTE_WRITE.bits() | Access::REMOTE_ATOMIC.bits();

/// Parts that are written to a file by one call. x86-64 shows its stores to others in their order, those of a string
/// instruction before what is behind it (Intel SDM volume 3A, "Fast-String Operation and Out-of-Order Stores"). Other
/// processors may not, within a call; between calls the lock of the inode keeps them apart.
const PARTS_AT_ONCE: usize = if cfg!(target_arch = "x86_64") { PARTS_MAX } else { 1 };

/// The memory of one process. The handle of a region is its address there, or [`Files`] has it.
#[derive(Debug)]
pub(crate) struct Remote {
    memory: Called,
    copied: Box<Copied>,
    /// Whose turn it is at atomic operations, and how slow its pages were.
    turns: &'static Turns,
    slowness: Slowness,
    atomics_passed: u64,
}

/// Memory, and how often it was read or written by a call.
#[derive(Debug)]
struct Called {
    memory: ProcessMemory,
    files: Files,
    calls: Cell<u64>,
    file_calls: Cell<u64>,
}

fn count(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}

impl Called {
    fn new(memory: ProcessMemory) -> Self {
        let (calls, file_calls) = (Cell::new(0), Cell::new(0));
        Called { memory, files: Files::default(), calls, file_calls }
    }

    fn read(&self, address: u64, buffer: &mut [u8], places: &[(usize, usize)]) -> usize {
        count(&self.calls);
        if !is_of_file(address) {
            return self.memory.read(address, buffer, places).unwrap_or(0);
        }
        count(&self.file_calls);
        let Some((file, at)) = self.files.find(address) else { return 0 };
        file.read(at, buffer, places).unwrap_or(0)
    }

    fn write(&self, address: u64, bytes: &[&[u8]]) -> usize {
        count(&self.calls);
        if !is_of_file(address) {
            return self.memory.write(address, bytes).unwrap_or(0);
        }
        count(&self.file_calls);
        let Some((file, at)) = self.files.find(address) else { return 0 };
        let mut done = 0;
        for parts in bytes.chunks(PARTS_AT_ONCE) {
            let written = file.write(at + done as u64, parts).unwrap_or(0);
            done += written;
            if written < parts.iter().map(|part| part.len()).sum() {
                break;
            }
        }
        done
    }
}

/// Bytes that lie one behind the other at an address, in parts, until they are read together.
struct Run {
    address: u64,
    parts: [(usize, usize); PARTS_MAX],
    count: usize,
    len: u64,
}

impl Run {
    fn new() -> Self {
        Run { address: 0, parts: [(0, 0); PARTS_MAX], count: 0, len: 0 }
    }

    /// Whether what lies at this address continues it.
    fn continues(&self, address: u64) -> bool {
        self.count > 0
            && self.count < PARTS_MAX
            && self.address.checked_add(self.len) == Some(address)
    }

    fn push(&mut self, address: u64, part: (usize, usize)) {
        if self.count == 0 {
            (self.address, self.len) = (address, 0);
        }
        self.parts[self.count] = part;
        self.count += 1;
        self.len += part.1 as u64;
    }
}

/// How many of these lengths are covered by so many bytes.
fn whole(lens: impl Iterator<Item = usize>, bytes: usize) -> usize {
    lens.scan(0, |end, len| {
        *end += len;
        Some(*end)
    })
    .take_while(|end| *end <= bytes)
    .count()
}

impl Remote {
    pub(crate) fn new(memory: ProcessMemory) -> Self {
        Remote::with_turns(memory, &ATOMIC)
    }

    fn with_turns(memory: ProcessMemory, turns: &'static Turns) -> Self {
        let (memory, slowness) = (Called::new(memory), Slowness::default());
        Remote { memory, copied: Box::new([0; _]), turns, slowness, atomics_passed: 0 }
    }

    /// Calls that have read or written it, and those of them that were of files.
    pub(crate) fn calls(&self) -> (u64, u64) {
        (self.memory.calls.get(), self.memory.file_calls.get())
    }

    /// Atomic operations that have not waited for others to their end.
    pub(crate) fn atomics_passed(&self) -> u64 {
        self.atomics_passed
    }

    /// The handle of a region: of the file that has come with its request, if that can be used, and else by its address.
    pub(crate) fn handle(&mut self, of: &RegisterRequest, file: Option<OwnedFd>) -> Handle {
        let by_address = Handle(of.addr);
        let Some((file, begin)) = file.zip(of.file) else { return by_address };
        let writes = of.access & WRITES != 0;
        match MemoryFile::new(file) {
            Ok(file) if !writes || file.writes() => {
                self.memory.files.add(file, begin, of.len, writes).unwrap_or(by_address)
            }
            Ok(_) => by_address,
            Err(error) => {
                tracing::debug!("the file of a region is not used: {error}");
                by_address
            }
        }
    }

    /// Nothing uses this handle any more.
    pub(crate) fn release(&mut self, handle: Handle) {
        self.memory.files.remove(handle);
    }

    /// Nothing uses any any more.
    pub(crate) fn release_all(&mut self) {
        self.memory.files = Files::default();
    }

    /// How many regions are reached by files.
    pub(crate) fn file_regions(&self) -> usize {
        self.memory.files.count()
    }

    fn load(&self, run: &mut Run, buffer: &mut [u8]) -> Result<(), usize> {
        if run.count == 0 {
            return Ok(());
        }
        let parts = &run.parts[..run.count];
        let read = self.memory.read(run.address, buffer, parts);
        if read as u64 == run.len {
            run.count = 0;
            return Ok(());
        }
        Err(whole(parts.iter().map(|(_, len)| *len), read))
    }
}

fn address(memory: Handle, offset: u64) -> u64 {
    // Regions end below 2^62, or are those of files, and offsets lie within them.
    memory.0.wrapping_add(offset)
}

impl Memory for Remote {
    fn place(&mut self, pieces: Pieces<'_>) -> Result<(), Fault> {
        let mut run = Placing::new(&mut self.copied);
        // The first piece of those that lie one behind the other.
        let mut first = 0;
        let fault = |first: usize| {
            let lens = pieces.iter().skip(first).map(|piece| piece.bytes.len());
            move |written| Fault { done: first + whole(lens, written) }
        };
        for (at, piece) in pieces.iter().enumerate() {
            let to = address(piece.memory, piece.offset);
            if !run.continues(to) {
                run.finish(&self.memory).map_err(fault(first))?;
                first = at;
            } else if !run.has_room(piece.bytes.len()) {
                run.make_room(&self.memory).map_err(fault(first))?;
            }
            run.push(to, &piece);
        }
        run.finish(&self.memory).map_err(fault(first))
    }

    fn gather(&mut self, extents: &[Extent], buffer: &mut [u8]) -> Result<(), Fault> {
        let mut run = Run::new();
        let mut first = 0;
        for (at, extent) in extents.iter().enumerate() {
            let from = address(extent.memory, extent.offset);
            if !run.continues(from) {
                self.load(&mut run, buffer).map_err(|done| Fault { done: first + done })?;
                first = at;
            }
            run.push(from, (extent.at, extent.len));
        }
        self.load(&mut run, buffer).map_err(|done| Fault { done: first + done })
    }

    fn atomic(&mut self, memory: Handle, offset: u64, operation: Operation) -> Result<u64, Fault> {
        let at = address(memory, offset);
        let (since, mut is_busy, mut tries, mut passes) = (Instant::now(), None, 1, false);
        loop {
            let (turn, mut value) = (self.turns.begin(&self.slowness, since), [0; 8]);
            // The file is not locked while a turn is waited for: other devices would wait for the lock, and go on without
            // it in the end. Nor is a turn kept while the lock is waited for.
            let locks = self.memory.files.find_locks(at);
            let waited = is_busy.map_or(Duration::ZERO, |since: Instant| since.elapsed());
            let asked = locks.map(|(locks, file, at)| locks.ask(file, at, waited));
            if matches!(asked, Some(Asked::Busy)) {
                drop(turn);
                is_busy.get_or_insert_with(Instant::now);
                std::thread::sleep(REST);
                continue;
            }
            passes |= turn.passes || matches!(asked, Some(Asked::Never));
            if self.memory.read(at, &mut value, &[(0, 8)]) != 8 {
                return Err(Fault { done: 0 });
            }
            // Another may have changed what was read. It is there now.
            if tries < TRIES && !turn.lasts() {
                tries += 1;
                continue;
            }
            let before = u64::from_ne_bytes(value);
            let after = operation.apply(before).to_ne_bytes();
            let written = self.memory.write(at, &[&after]);
            self.atomics_passed += u64::from(passes);
            return if written == 8 { Ok(before) } else { Err(Fault { done: 0 }) };
        }
    }

    fn locate(&self, memory: Handle, offset: u64) -> Location {
        let at = address(memory, offset);
        let of_file = self.memory.files.find(at).map(|(file, at)| {
            let (device, inode, _) = file.id();
            Location { space: (device, inode), at }
        });
        // No file has the number zero.
        of_file.unwrap_or(Location { space: (0, 0), at })
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::sync::atomic::Ordering;

    use sys::shared::SharedMemory;

    use super::atomic::tests::patient;
    use super::files::tests::{memfd, sparse};
    use super::*;

    fn remote() -> Remote {
        Remote::new(ProcessMemory::new(ProcessMemory::own().unwrap()).unwrap())
    }

    fn request(access: Access, len: u64, file: Option<u64>) -> RegisterRequest {
        RegisterRequest { pd: 0, access: access.bits(), addr: 4096, len, iova: 0, file }
    }

    fn given(of: &SharedMemory) -> Option<OwnedFd> {
        Some(of.as_fd().try_clone_to_owned().unwrap())
    }

    #[test]
    fn an_atomic_operation_waits_for_no_other_for_ever() {
        let mut value = Box::new(7_u64);
        let at = Handle((&raw mut *value).expose_provenance() as u64);
        // As of a program whose page does not come.
        let slowness = Slowness::default();
        let _stalled = ATOMIC.begin(&slowness, Instant::now());
        let before = remote().atomic(at, 0, Operation::FetchAdd { add: 2, mask: 0 });
        assert_eq!(before.ok(), Some(7));
        assert_eq!(*std::hint::black_box(&mut value), Box::new(9));
    }

    /// It has no lock while it waits for its turn, and no turn while it waits for a lock.
    #[test]
    fn an_atomic_operation_waits_for_one_thing_and_keeps_nothing_else() {
        static TURNS: Turns = patient();
        let file = memfd(4096);
        let own = || MemoryFile::new(given(&file).unwrap()).unwrap();
        let (other, slowness) = (own(), Slowness::default());
        let turn = TURNS.begin(&slowness, Instant::now());
        std::thread::scope(|scope| {
            let added = scope.spawn(|| {
                let memory = ProcessMemory::new(ProcessMemory::own().unwrap()).unwrap();
                let mut memory = Remote::with_turns(memory, &TURNS);
                let of_file = memory.handle(&request(Access::ALL, 4096, Some(0)), given(&file));
                assert_eq!(memory.file_regions(), 1);
                memory.atomic(of_file, 8, Operation::FetchAdd { add: 5, mask: 0 })
            });
            while !TURNS.are_waiting(1) {
                std::thread::yield_now();
            }
            let locked = other.lock(8).unwrap();
            assert!(locked.is_some());
            drop(turn);
            // Turns are to be had meanwhile.
            for _ in 0..3 {
                drop(TURNS.begin(&slowness, Instant::now()));
            }
            drop(locked);
            assert_eq!(added.join().unwrap(), Ok(0));
        });
        assert_eq!(file.words()[1].load(Ordering::Relaxed), 5);
        assert!(other.lock(8).unwrap().is_some());
    }

    #[test]
    fn a_descriptor_that_cannot_be_used_leaves_the_programs_memory() {
        let (file, mut memory) = (memfd(8192), remote());
        let read_only = || {
            use std::os::fd::AsRawFd;
            let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
            Some(File::open(path).unwrap().into())
        };
        let (_reader, writer) = std::io::pipe().unwrap();
        let all = Access::ALL;
        for (fd, access, len, at) in [
            (None, all, 4096, Some(0)),
            (given(&file), all, 4096, None),
            (given(&file), all, 8193, Some(0)),
            (given(&file), all, 4096, Some(u64::MAX)),
            (given(&sparse(8192)), all, 4096, Some(0)),
            (read_only(), Access::LOCAL_WRITE, 4096, Some(0)),
            (Some(writer.into()), all, 4096, Some(0)),
            (Some(File::open("/dev/null").unwrap().into()), all, 4096, Some(0)),
            (Some(ProcessMemory::own().unwrap()), all, 4096, Some(0)),
            (Some(File::open("/dev/shm").unwrap().into()), all, 4096, Some(0)),
        ] {
            assert_eq!(memory.handle(&request(access, len, at), fd), Handle(4096));
        }
        assert_eq!(memory.file_regions(), 0);
        let handle = memory.handle(&request(Access::REMOTE_READ, 8, Some(0)), read_only());
        assert_ne!(handle, Handle(4096));
        assert_eq!(memory.memory.write(handle.0, &[b"x"]), 0, "it may only be read");
        let handle = memory.handle(&request(all, 8192, Some(0)), given(&file));
        assert_eq!((memory.memory.write(handle.0, &[b"x"]), memory.file_regions()), (1, 2));
    }

    #[test]
    fn atomic_operations_and_reads_go_to_either_kind() {
        let (file, mut memory) = (memfd(8192), remote());
        let mut own = [7_u64; 4];
        let own_at = Handle(own.as_mut_ptr().expose_provenance() as u64);
        let of_file = memory.handle(&request(Access::ALL, 4096, Some(4096)), given(&file));
        let add = Operation::FetchAdd { add: 5, mask: 0 };
        assert_eq!(memory.atomic(of_file, 16, add), Ok(0));
        assert_eq!(memory.atomic(of_file, 16, add), Ok(5));
        assert_eq!(memory.atomic(own_at, 8, add), Ok(7));
        assert_eq!(file.words()[514].load(Ordering::Relaxed), 10);
        assert_eq!(std::hint::black_box(&mut own)[1], 12);
        assert_eq!(memory.calls(), (6, 4));
        // One call for what lies together, and none goes from one region to another.
        let extent = |memory, offset, at| Extent { memory, offset, at, len: 8 };
        let extents = [
            extent(own_at, 8, 24),
            extent(of_file, 8, 16),
            extent(of_file, 16, 8),
            extent(own_at, 0, 0),
            extent(of_file, 4096, 0),
        ];
        let mut buffer = [0xff; 32];
        memory.gather(&extents[..4], &mut buffer).unwrap();
        let words = [7_u64, 10, 0, 12].map(u64::to_ne_bytes);
        assert_eq!(buffer.as_chunks::<8>().0, words);
        assert_eq!(memory.calls(), (9, 5));
        assert_eq!(memory.gather(&extents, &mut buffer), Err(Fault { done: 4 }), "it ends there");
        memory.release(of_file);
        assert_eq!(memory.atomic(of_file, 16, add), Err(Fault { done: 0 }));
        assert_eq!(memory.file_regions(), 0);
    }
}
