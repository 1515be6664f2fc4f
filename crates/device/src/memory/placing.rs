//! Pieces that lie one behind the other in memory, until they are stored by few calls.

use rdma::Piece;
use sys::process_memory::PARTS_MAX;

use super::Called;

/// Pieces of so many bytes at most are copied together: a part of a call costs the kernel more than such a copy.
const SMALL: usize = 512;
/// Bytes of small pieces in one call.
const SMALL_MAX: usize = 8 << 10;
/// Parts that a piece may need: the word that its message ends with begins another one.
const PARTS_OF_PIECE: usize = 2;
/// The longest word.
const WORD: usize = 8;

/// Where the bytes of small pieces are put together.
pub(super) type Copied = [u8; SMALL_MAX];

/// Bytes that are stored before the next part is begun. The kernel writes to /proc/PID/mem part by part
/// (`do_loop_readv_writev`, fs/read_write.c, as it has no `write_iter`). For a file of memory it goes from page to page, and
/// copies part after part to each (`generic_perform_write`, mm/filemap.c; `iterate_iovec`, include/linux/iov_iter.h).
#[derive(Clone, Copy)]
enum Part<'a> {
    Stream(&'a [u8]),
    /// Begin and end in the copied bytes.
    Copied(usize, usize),
}

/// Collects pieces, and stores them.
///
/// Programs wait for the end of a message by reading memory: the last aligned word of a message, of up to eight bytes, is
/// stored behind all other bytes of its message, by a part that begins with it. Bytes of the next message may follow it in there: a
/// part costs the kernel more than they do. A word lies within one page, so that the kernel copies it by one `memcpy` or
/// `copy_from_user`. On x86 processors with fast short copies (`fsrm`: Ice Lake, Zen 3 and later) these are `rep movsb`: no
/// reader has seen a part of a word there, in 10^9 reads of each kind of memory.
///
/// Without `fsrm` short words may be seen in part. `memcpy` (`memcpy_orig`, arch/x86/lib/memcpy_64.S), which writes to
/// /proc/PID/mem, copies 1 to 3 bytes byte by byte, and longer words by one instruction each. `copy_from_user`
/// (`rep_movs_alternative`, arch/x86/lib/copy_user_64.S), which writes to files, copies all parts of less than 8 bytes byte by
/// byte. Words of 8 bytes are stored whole by both.
pub(super) struct Placing<'a, 'b> {
    /// The address of the first byte that is not stored.
    address: u64,
    /// Bytes that are not stored.
    len: u64,
    /// Bytes in front of them that are.
    stored: u64,
    /// Bytes at the end, not stored, whose message goes on.
    open: u64,
    parts: [Part<'a>; PARTS_MAX],
    count: usize,
    copied: &'b mut Copied,
    used: usize,
}

impl<'a, 'b> Placing<'a, 'b> {
    pub(super) fn new(copied: &'b mut Copied) -> Self {
        let parts = [Part::Copied(0, 0); PARTS_MAX];
        let (address, len, stored, open, count, used) = (0, 0, 0, 0, 0, 0);
        Placing { address, len, stored, open, parts, count, copied, used }
    }

    /// Returns true if a piece at this address lies behind those that are here, or is the first.
    pub(super) fn continues(&self, address: u64) -> bool {
        self.len + self.stored == 0 || self.address.checked_add(self.len) == Some(address)
    }

    /// Returns true if a piece of so many bytes can be stored by the same call.
    pub(super) fn has_room(&self, len: usize) -> bool {
        self.count + PARTS_OF_PIECE <= PARTS_MAX
            && (len > SMALL || self.used + len.max(WORD) <= SMALL_MAX)
    }

    pub(super) fn push(&mut self, address: u64, piece: &Piece<'a>) {
        debug_assert!(self.continues(address) && self.has_room(piece.bytes.len()));
        let bytes = piece.bytes;
        if self.len + self.stored == 0 {
            self.address = address;
        }
        self.len += bytes.len() as u64;
        self.open += bytes.len() as u64;
        if !piece.ends_message {
            self.add(bytes, false);
            return;
        }
        let word = last_word(self.address.wrapping_add(self.len), self.open);
        if let Some(body) = bytes.len().checked_sub(word) {
            let (body, word) = bytes.split_at(body);
            self.add(body, false);
            self.add(word, true);
        } else {
            // The word begins in pieces before this one.
            let (mut whole, begin) = ([0; WORD], word - bytes.len());
            whole[begin..word].copy_from_slice(bytes);
            self.take_back(&mut whole[..begin]);
            self.copy(&whole[..word], true);
        }
        self.open = 0;
    }

    fn add(&mut self, bytes: &'a [u8], is_word: bool) {
        if bytes.len() <= SMALL && self.used + bytes.len() <= SMALL_MAX {
            return self.copy(bytes, is_word);
        }
        self.parts[self.count] = Part::Stream(bytes);
        self.count += 1;
    }

    /// Adds a copy of bytes, to the last part if these are no word.
    fn copy(&mut self, bytes: &[u8], is_word: bool) {
        if bytes.is_empty() {
            return;
        }
        let (begin, end) = (self.used, self.used + bytes.len());
        self.copied[begin..end].copy_from_slice(bytes);
        self.used = end;
        match self.parts[..self.count].last_mut() {
            Some(Part::Copied(_, of_last)) if !is_word && *of_last == begin => *of_last = end,
            _ => {
                self.parts[self.count] = Part::Copied(begin, end);
                self.count += 1;
            }
        }
    }

    /// Takes the last bytes away again, of a message that goes on.
    fn take_back(&mut self, into: &mut [u8]) {
        let mut left = into.len();
        while left > 0 {
            let Some(last) = self.parts[..self.count].last_mut() else {
                debug_assert!(false, "they are among the open bytes");
                return;
            };
            let bytes = match *last {
                Part::Stream(bytes) => bytes,
                Part::Copied(begin, end) => &self.copied[begin..end],
            };
            let taken = left.min(bytes.len());
            let stays = bytes.len() - taken;
            into[left - taken..left].copy_from_slice(&bytes[stays..]);
            match last {
                Part::Stream(bytes) => *bytes = &bytes[..stays],
                Part::Copied(begin, end) => *end = *begin + stays,
            }
            self.count -= usize::from(stays == 0);
            left -= taken;
        }
    }

    /// Stores all, and begins a new sequence, at whatever address.
    ///
    /// # Errors
    /// Number of bytes of the sequence that were stored, if not all.
    pub(super) fn finish(&mut self, memory: &Called) -> Result<(), usize> {
        let stored = self.store(memory);
        (self.stored, self.open) = (0, 0);
        stored
    }

    /// Stores all but the begin of a word that the next piece may end.
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    pub(super) fn make_room(&mut self, memory: &Called) -> Result<(), usize> {
        let mut begin = [0; WORD];
        let len = self.open.min(self.address.wrapping_add(self.len) % WORD as u64);
        let begin = &mut begin[..len as usize];
        self.take_back(begin);
        self.len -= len;
        self.store(memory)?;
        self.copy(begin, false);
        (self.len, self.open) = (len, len);
        Ok(())
    }

    fn store(&mut self, memory: &Called) -> Result<(), usize> {
        let mut parts: [&[u8]; PARTS_MAX] = [&[]; PARTS_MAX];
        for (to, part) in parts.iter_mut().zip(&self.parts[..self.count]) {
            *to = match *part {
                Part::Stream(bytes) => bytes,
                Part::Copied(begin, end) => &self.copied[begin..end],
            };
        }
        let count = self.count;
        let written =
            if count > 0 { memory.write(self.address, &parts[..count]) as u64 } else { 0 };
        let (is_whole, before) = (written == self.len, self.stored);
        self.address = self.address.wrapping_add(written);
        self.stored += written;
        (self.len, self.count, self.used) = (0, 0, 0);
        if is_whole { Ok(()) } else { Err((before + written) as usize) }
    }
}

/// Length of the aligned word that ends at this address, where a message of so many bytes does.
fn last_word(end: u64, len: u64) -> usize {
    let fits = |word: &u64| *word <= len && end.is_multiple_of(*word);
    [8, 4, 2].into_iter().find(fits).unwrap_or(1) as usize
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
    fn all_bytes_are_stored_and_the_word_that_ends_a_message_begins_a_part() {
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
        assert_eq!(region.0 % 8, 3, "a word is one of the file's memory");
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

    /// Returns the begins and lengths of the parts that are not stored yet.
    fn parts_of(run: &Placing<'_, '_>) -> Vec<(u64, usize)> {
        let mut at = run.address;
        let parts = run.parts[..run.count].iter().map(|part| {
            let len = match part {
                Part::Stream(bytes) => bytes.len(),
                Part::Copied(begin, end) => end - begin,
            };
            let begin = at;
            at += len as u64;
            (begin, len)
        });
        parts.collect()
    }

    /// The words of all messages that have ended begin parts.
    fn begin_parts(words: &[(u64, usize)], run: &Placing<'_, '_>) {
        let parts = parts_of(run);
        for (at, len) in words {
            let has_it = |(begin, all): &(u64, usize)| begin == at && all >= len;
            assert!(parts.iter().any(has_it), "{at} {len}: {parts:?}");
        }
    }

    fn store_all(memory: &Called, base: u64, from: &[u8]) {
        let pieces = pieces();
        let mut copied: Box<Copied> = Box::new([0; _]);
        let mut run = Placing::new(&mut copied);
        let (mut begin, mut message, mut words, mut calls) = (0, 0, Vec::new(), 0);
        for (len, ends_message) in pieces.iter().copied() {
            let address = base + begin as u64;
            assert!(run.continues(address));
            if !run.has_room(len) {
                begin_parts(&words, &run);
                run.make_room(memory).unwrap();
                (words, calls) = (Vec::new(), calls + 1);
                assert!(run.len < 8);
            }
            let (memory, offset) = (Handle(0), 0);
            let bytes = &from[begin..begin + len];
            run.push(address, &Piece { memory, offset, bytes, ends_message });
            begin += len;
            if ends_message {
                let end = base + begin as u64;
                // By the words of the law, and not by those of the code.
                let mut word = 8;
                while !end.is_multiple_of(word) || word as usize > begin - message {
                    word /= 2;
                }
                words.push((end - word, word as usize));
                message = begin;
            }
        }
        begin_parts(&words, &run);
        run.finish(memory).unwrap();
        assert!(calls < pieces.len() / 20, "{calls} calls for {} pieces", pieces.len());
    }

    #[test]
    fn the_word_that_ends_a_message_is_as_long_as_its_alignment_and_the_message() {
        for (end, len, word) in [
            (64, 8, 8),
            (64, 800, 8),
            (64, 7, 4),
            (68, 8, 4),
            (70, 8, 2),
            (71, 8, 1),
            (64, 1, 1),
            (0, 3, 2),
        ] {
            assert_eq!(last_word(end, len), word, "{len} bytes that end at {end}");
        }
    }

    /// A segment, a marker or a slice of the stream may end anywhere.
    #[test]
    fn a_word_in_pieces_is_stored_whole() {
        let memory = called();
        let mut copied: Box<Copied> = Box::new([0; _]);
        let from: Vec<u8> = (0..=255).cycle().take(4 * SMALL).collect();
        for cuts in
            [vec![1, 2, 3, 4, 5, 6, 7], vec![4], vec![SMALL + 3], vec![SMALL + 3, SMALL + 5]]
        {
            let end = (cuts[cuts.len() - 1] + 8_usize) & !7;
            let mut to = vec![0_u64; end / 8 + 1];
            let base = to.as_mut_ptr().expose_provenance() as u64;
            let mut run = Placing::new(&mut copied);
            let mut begin = 0;
            for cut in cuts.iter().copied().chain([end]) {
                let piece = Piece {
                    memory: Handle(0),
                    offset: 0,
                    bytes: &from[begin..cut],
                    ends_message: cut == end,
                };
                run.push(base + begin as u64, &piece);
                begin = cut;
            }
            assert_eq!(parts_of(&run).last(), Some(&(base + end as u64 - 8, 8)), "{cuts:?}");
            run.finish(&memory).unwrap();
            let to = std::hint::black_box(&mut to);
            let bytes: Vec<u8> = to.iter().flat_map(|word| word.to_ne_bytes()).collect();
            assert_eq!((&bytes[..end], &bytes[end..]), (&from[..end], &[0; 8][..]), "{cuts:?}");
        }
    }

    #[test]
    fn pieces_that_lie_elsewhere_or_cannot_be_stored_are_told() {
        let memory = called();
        let mut copied: Box<Copied> = Box::new([0; _]);
        let mut run = Placing::new(&mut copied);
        let bytes = &[1, 2, 3][..];
        run.push(8, &Piece { memory: Handle(0), offset: 0, bytes, ends_message: true });
        assert!(run.continues(11));
        assert!(!run.continues(10) && !run.continues(12) && !run.continues(0));
        assert_eq!(run.finish(&memory), Err(0), "nothing is at 8");
        assert!(run.continues(100));
    }
}
