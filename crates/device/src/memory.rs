//! Registered memory of a process.

mod placing;

use std::cell::Cell;
use std::sync::{Mutex, PoisonError};

use rdma::memory::Pieces;
use rdma::rdmap::atomic::Operation;
use rdma::{Extent, Fault, Handle, Memory};
use sys::process_memory::{PARTS_MAX, ProcessMemory};

use placing::{Copied, Placing};

/// Atomic operations of all processes of this device.
static ATOMIC: Mutex<()> = Mutex::new(());

/// The memory of one process. The handle of a region is its address there.
#[derive(Debug)]
pub(crate) struct Remote {
    memory: Called,
    copied: Box<Copied>,
}

/// Memory, and how often it was read or written by a call.
#[derive(Debug)]
struct Called {
    memory: ProcessMemory,
    calls: Cell<u64>,
}

impl Called {
    fn new(memory: ProcessMemory) -> Self {
        Called { memory, calls: Cell::new(0) }
    }

    fn read(&self, address: u64, buffer: &mut [u8], places: &[(usize, usize)]) -> usize {
        self.calls.set(self.calls.get() + 1);
        self.memory.read(address, buffer, places).unwrap_or(0)
    }

    fn write(&self, address: u64, bytes: &[&[u8]]) -> usize {
        self.calls.set(self.calls.get() + 1);
        self.memory.write(address, bytes).unwrap_or(0)
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
        Remote { memory: Called::new(memory), copied: Box::new([0; _]) }
    }

    /// Calls that have read or written it.
    pub(crate) fn calls(&self) -> u64 {
        self.memory.calls.get()
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
    // Regions end below 2^63, and offsets lie within them.
    memory.0.wrapping_add(offset)
}

impl Memory for Remote {
    fn place(&mut self, pieces: Pieces<'_>) -> Result<(), Fault> {
        let mut run = Placing::new(&mut self.copied);
        // The piece that the run begins with.
        let mut first = 0;
        let fault = |first: usize| {
            let lens = pieces.iter().skip(first).map(|piece| piece.bytes.len());
            move |written| Fault { done: first + whole(lens, written) }
        };
        for (at, piece) in pieces.iter().enumerate() {
            let to = address(piece.memory, piece.offset);
            if !run.takes(to, piece.bytes.len()) {
                run.store(&self.memory).map_err(fault(first))?;
                first = at;
            }
            run.push(to, &piece);
        }
        run.store(&self.memory).map_err(fault(first))
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
        let _alone = ATOMIC.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, mut value) = (address(memory, offset), [0; 8]);
        let read = self.memory.read(at, &mut value, &[(0, 8)]);
        let before = u64::from_ne_bytes(value);
        let after = operation.apply(before).to_ne_bytes();
        if read != 8 || self.memory.write(at, &[&after]) != 8 {
            return Err(Fault { done: 0 });
        }
        Ok(before)
    }
}
