//! Vectors of bytes, from and to rings.

use handoff::ring::{Lost, receive, send};

/// Reads into the pieces, one after the other.
pub(super) fn read(
    ring: receive::App<'_>,
    into: &mut [&mut [u8]],
    peek: bool,
) -> Result<u32, Lost> {
    if peek || into.len() == 1 {
        // What is behind the first piece is not peeked at: a shorter read is one that may be.
        let Some(first) = into.iter_mut().find(|piece| !piece.is_empty()) else { return Ok(0) };
        return if peek { ring.peek(first) } else { ring.recv(first) };
    }
    let mut all = 0;
    for piece in into.iter_mut().filter(|piece| !piece.is_empty()) {
        match ring.recv(piece) {
            Ok(count) => {
                all += count;
                if (count as usize) < piece.len() {
                    break;
                }
            }
            // What was read before has taken effect.
            Err(Lost) if all > 0 => break,
            Err(Lost) => return Err(Lost),
        }
    }
    Ok(all)
}

/// Writes the pieces from byte `skip` on, as far as there is room.
pub(super) fn write(ring: send::App<'_>, pieces: &[&[u8]], skip: usize) -> Result<usize, Lost> {
    let (mut skip, mut all) = (skip, 0);
    for piece in pieces {
        let piece = match piece.get(skip..) {
            Some(rest) => rest,
            None => {
                skip -= piece.len();
                continue;
            }
        };
        skip = 0;
        if piece.is_empty() {
            continue;
        }
        match ring.send(piece) {
            Ok(count) => {
                all += count as usize;
                if (count as usize) < piece.len() {
                    break;
                }
            }
            Err(Lost) if all > 0 => break,
            Err(Lost) => return Err(Lost),
        }
    }
    Ok(all)
}
