//! Pieces that lie one behind the other in memory, until they are stored by one call.

use rdma::Piece;
use sys::process_memory::PARTS_MAX;

use super::Called;

/// Pieces of so many bytes at most are copied together: a part of a call costs the kernel more than such a copy.
const SMALL: usize = 512;
/// Bytes of small pieces in one call.
const SMALL_MAX: usize = 8 << 10;
/// Parts that a piece may need: its last byte is one by itself.
const PARTS_OF_PIECE: usize = 2;

/// Where the bytes of small pieces are put together.
pub(super) type Copied = [u8; SMALL_MAX];

/// What is stored before the next part is begun. The kernel writes to /proc/PID/mem part by part
/// (`do_loop_readv_writev`, fs/read_write.c, as it has no `write_iter`). For a file of memory it goes from page to page, and
/// copies part after part to each (`generic_perform_write`, mm/filemap.c; `iterate_iovec`, include/linux/iov_iter.h).
#[derive(Clone, Copy)]
enum Part<'a> {
    Stream(&'a [u8]),
    /// Begin and end in what was copied.
    Copied(usize, usize),
}

/// See the module's documentation.
///
/// Programs wait for the last byte of a message by reading memory: it is not stored by the part that has any other byte of
/// its message, as the kernel promises no order of the bytes of a part. It may be with the message behind it.
pub(super) struct Placing<'a, 'b> {
    address: u64,
    len: u64,
    parts: [Part<'a>; PARTS_MAX],
    count: usize,
    copied: &'b mut Copied,
    used: usize,
}

impl<'a, 'b> Placing<'a, 'b> {
    pub(super) fn new(copied: &'b mut Copied) -> Self {
        let parts = [Part::Copied(0, 0); PARTS_MAX];
        Placing { address: 0, len: 0, parts, count: 0, copied, used: 0 }
    }

    /// Whether a piece of so many bytes at this address can be stored with those that are here.
    pub(super) fn takes(&self, address: u64, len: usize) -> bool {
        self.count == 0
            || (self.address.checked_add(self.len) == Some(address)
                && self.count + PARTS_OF_PIECE <= PARTS_MAX
                && (len > SMALL || self.used + len <= SMALL_MAX))
    }

    pub(super) fn push(&mut self, address: u64, piece: &Piece<'a>) {
        debug_assert!(self.takes(address, piece.bytes.len()));
        if self.count == 0 {
            self.address = address;
        }
        self.len += piece.bytes.len() as u64;
        match piece.bytes.split_last_chunk::<1>() {
            Some((body, last)) if piece.ends_message => {
                if !body.is_empty() {
                    self.add(body, true);
                }
                self.add(last, false);
            }
            _ => self.add(piece.bytes, true),
        }
    }

    fn add(&mut self, bytes: &'a [u8], may_join: bool) {
        let (begin, end) = (self.used, self.used + bytes.len());
        if bytes.len() > SMALL || end > SMALL_MAX {
            self.parts[self.count] = Part::Stream(bytes);
            self.count += 1;
            return;
        }
        self.copied[begin..end].copy_from_slice(bytes);
        self.used = end;
        match self.parts[..self.count].last_mut() {
            Some(Part::Copied(_, of_last)) if may_join && *of_last == begin => *of_last = end,
            _ => {
                self.parts[self.count] = Part::Copied(begin, end);
                self.count += 1;
            }
        }
    }

    /// Stores all, and begins anew.
    ///
    /// # Errors
    /// How many bytes were stored, if not all.
    pub(super) fn store(&mut self, memory: &Called) -> Result<(), usize> {
        if self.count == 0 {
            return Ok(());
        }
        let mut parts: [&[u8]; PARTS_MAX] = [&[]; PARTS_MAX];
        for (to, part) in parts.iter_mut().zip(&self.parts[..self.count]) {
            *to = match *part {
                Part::Stream(bytes) => bytes,
                Part::Copied(begin, end) => &self.copied[begin..end],
            };
        }
        let written = memory.write(self.address, &parts[..self.count]);
        let is_whole = written as u64 == self.len;
        (self.count, self.used, self.len) = (0, 0, 0);
        if is_whole { Ok(()) } else { Err(written) }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    use rdma::Handle;
    use sys::memory_file::MemoryFile;
    use sys::process_memory::ProcessMemory;

    use super::super::files::tests::memfd;
    use super::*;

    /// Lengths, and whether each ends a message.
    fn pieces() -> Vec<(usize, bool)> {
        let mut state = 7_u32;
        let mut random = |below: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) % below
        };
        let lens = [1, 2, 8, 40, SMALL as u32, 2 * SMALL as u32];
        let mut piece = || {
            let most = lens[random(6) as usize];
            (1 + random(most) as usize, random(2) == 0)
        };
        (0..2_000).map(|_| piece()).collect()
    }

    fn called() -> Called {
        Called::new(ProcessMemory::new(ProcessMemory::own().unwrap()).unwrap())
    }

    #[test]
    fn all_bytes_are_stored_and_the_last_of_a_message_by_a_part_that_begins_with_it() {
        let memory = called();
        let from = bytes();
        let mut to = vec![0xff_u8; from.len() + 1];
        store_all(&memory, to.as_mut_ptr().expose_provenance() as u64, &from);
        // The compiler cannot know of what the kernel has stored.
        assert_eq!(std::hint::black_box(&mut to)[..from.len()], from);
        assert_eq!(to[from.len()], 0xff);
    }

    #[test]
    fn the_same_of_a_file() {
        let mut memory = called();
        let from = bytes();
        let file = memfd((from.len() + 1).next_multiple_of(4096));
        let opened = MemoryFile::new(file.as_fd().try_clone_to_owned().unwrap()).unwrap();
        let region = memory.files.add(opened, 3, from.len() as u64, true).unwrap();
        store_all(&memory, region.0, &from);
        let mut to = vec![0xff; from.len() + 4];
        File::from(file.as_fd().try_clone_to_owned().unwrap()).read_exact_at(&mut to, 0).unwrap();
        assert_eq!(
            (&to[..3], &to[3..from.len() + 3], to[from.len() + 3]),
            (&[0; 3][..], &from[..], 0)
        );
    }

    fn bytes() -> Vec<u8> {
        let len = pieces().iter().map(|(len, _)| len).sum();
        (0..len).map(|at: usize| (at % 251) as u8).collect()
    }

    fn store_all(memory: &Called, base: u64, from: &[u8]) {
        let pieces = pieces();
        let mut copied: Box<Copied> = Box::new([0; _]);
        let mut run = Placing::new(&mut copied);
        let (mut begin, mut of_run, mut lasts, mut calls) = (0, 0, Vec::new(), 0);
        for (len, ends_message) in pieces.iter().copied().chain([(0, false)]) {
            let address = base + begin as u64;
            if len == 0 || !run.takes(address, len) {
                let mut at = of_run;
                let begins: Vec<usize> = run.parts[..run.count]
                    .iter()
                    .map(|part| {
                        let begin = at;
                        at += match part {
                            Part::Stream(bytes) => bytes.len(),
                            Part::Copied(begin, end) => end - begin,
                        };
                        begin
                    })
                    .collect();
                assert!(lasts.iter().all(|last| begins.contains(last)), "{begins:?} {lasts:?}");
                run.store(memory).unwrap();
                (of_run, calls) = (begin, calls + 1);
                lasts.clear();
            }
            if len > 0 {
                let (memory, offset) = (Handle(0), 0);
                let bytes = &from[begin..begin + len];
                run.push(address, &Piece { memory, offset, bytes, ends_message });
                lasts.extend(ends_message.then_some(begin + len - 1));
            }
            begin += len;
        }
        assert!(calls < pieces.len() / 20, "{calls} calls for {} pieces", pieces.len());
    }

    #[test]
    fn what_lies_elsewhere_or_cannot_be_stored_is_told() {
        let memory = called();
        let mut copied: Box<Copied> = Box::new([0; _]);
        let mut run = Placing::new(&mut copied);
        let bytes = &[1, 2, 3][..];
        run.push(8, &Piece { memory: Handle(0), offset: 0, bytes, ends_message: true });
        assert!(run.takes(11, 3));
        assert!(!run.takes(10, 3) && !run.takes(12, 3) && !run.takes(0, 3));
        assert_eq!(run.store(&memory), Err(0), "nothing is at 8");
        assert!(run.takes(100, 3));
    }
}
