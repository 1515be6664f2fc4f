//! Registered memory of a process.

use std::sync::{Mutex, PoisonError};

use rdma::memory::Pieces;
use rdma::rdmap::atomic::Operation;
use rdma::{Extent, Fault, Handle, Memory};
use sys::process_memory::{PARTS_MAX, ProcessMemory};

/// Atomic operations of all processes of this device.
static ATOMIC: Mutex<()> = Mutex::new(());

/// The memory of one process. The handle of a region is its address there.
#[derive(Debug)]
pub(crate) struct Remote(pub(crate) ProcessMemory);

/// Bytes that lie one behind the other at an address, in parts, until they are stored or read together.
struct Run<T> {
    address: u64,
    parts: [T; PARTS_MAX],
    count: usize,
    len: u64,
}

impl<T: Copy> Run<T> {
    fn new(nothing: T) -> Self {
        Run { address: 0, parts: [nothing; PARTS_MAX], count: 0, len: 0 }
    }

    /// Whether what lies at this address continues it.
    fn continues(&self, address: u64) -> bool {
        self.count > 0
            && self.count < PARTS_MAX
            && self.address.checked_add(self.len) == Some(address)
    }

    fn push(&mut self, address: u64, part: T, len: usize) {
        if self.count == 0 {
            (self.address, self.len) = (address, 0);
        }
        self.parts[self.count] = part;
        self.count += 1;
        self.len += len as u64;
    }

    fn parts(&self) -> &[T] {
        &self.parts[..self.count]
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
    /// Stores a run; how many of its parts were stored whole, if not all.
    fn store(&self, run: &mut Run<&[u8]>) -> Result<(), usize> {
        if run.count == 0 {
            return Ok(());
        }
        let written = self.0.write(run.address, run.parts()).unwrap_or(0);
        if written as u64 == run.len {
            run.count = 0;
            return Ok(());
        }
        Err(whole(run.parts().iter().map(|part| part.len()), written))
    }

    fn load(&self, run: &mut Run<(usize, usize)>, buffer: &mut [u8]) -> Result<(), usize> {
        if run.count == 0 {
            return Ok(());
        }
        let read = self.0.read(run.address, buffer, run.parts()).unwrap_or(0);
        if read as u64 == run.len {
            run.count = 0;
            return Ok(());
        }
        Err(whole(run.parts().iter().map(|(_, len)| *len), read))
    }
}

fn address(memory: Handle, offset: u64) -> u64 {
    // Regions end below 2^63, and offsets lie within them.
    memory.0.wrapping_add(offset)
}

impl Memory for Remote {
    fn place(&mut self, pieces: Pieces<'_>) -> Result<(), Fault> {
        let mut run = Run::<&[u8]>::new(&[]);
        // The piece that the run begins with.
        let mut first = 0;
        for (at, piece) in pieces.iter().enumerate() {
            let to = address(piece.memory, piece.offset);
            if !run.continues(to) {
                self.store(&mut run).map_err(|done| Fault { done: first + done })?;
                first = at;
            }
            match piece.bytes.split_last() {
                // Programs wait for the last byte of a message by reading memory: it is stored by itself, as the
                // kernel promises no order of the bytes of one call.
                Some((_, body)) if piece.ends_message => {
                    if !body.is_empty() {
                        run.push(to, body, body.len());
                    }
                    self.store(&mut run).map_err(|done| Fault { done: first + done })?;
                    let last = &piece.bytes[body.len()..];
                    run.push(to.wrapping_add(body.len() as u64), last, 1);
                    self.store(&mut run).map_err(|_| Fault { done: at })?;
                    first = at + 1;
                }
                _ => run.push(to, piece.bytes, piece.bytes.len()),
            }
        }
        self.store(&mut run).map_err(|done| Fault { done: first + done })
    }

    fn gather(&mut self, extents: &[Extent], buffer: &mut [u8]) -> Result<(), Fault> {
        let mut run = Run::new((0, 0));
        let mut first = 0;
        for (at, extent) in extents.iter().enumerate() {
            let from = address(extent.memory, extent.offset);
            if !run.continues(from) {
                self.load(&mut run, buffer).map_err(|done| Fault { done: first + done })?;
                first = at;
            }
            run.push(from, (extent.at, extent.len), extent.len);
        }
        self.load(&mut run, buffer).map_err(|done| Fault { done: first + done })
    }

    fn atomic(&mut self, memory: Handle, offset: u64, operation: Operation) -> Result<u64, Fault> {
        let _alone = ATOMIC.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, mut value) = (address(memory, offset), [0; 8]);
        let read = self.0.read(at, &mut value, &[(0, 8)]).unwrap_or(0);
        let before = u64::from_ne_bytes(value);
        let after = operation.apply(before).to_ne_bytes();
        if read != 8 || self.0.write(at, &[&after]).unwrap_or(0) != 8 {
            return Err(Fault { done: 0 });
        }
        Ok(before)
    }
}
