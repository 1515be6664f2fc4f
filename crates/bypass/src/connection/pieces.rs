//! Vectors of bytes, from and to rings.

use handoff::ring::{Lost, receive, send};

/// Reads into the pieces, one after the other.
pub(super) fn read(
    ring: receive::App<'_>,
    into: &mut [&mut [u8]],
    peek: bool,
) -> Result<u32, Lost> {
    if let [only] = into {
        return if peek { ring.peek(only) } else { ring.recv(only) };
    }
    if peek {
        return peek_all(ring, into);
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

/// Peeks into the pieces, one after the other: by one copy, so that all are of one time.
fn peek_all(ring: receive::App<'_>, into: &mut [&mut [u8]]) -> Result<u32, Lost> {
    let total: usize = into.iter().map(|piece| piece.len()).sum();
    let mut all = vec![0; total.min(ring.len()? as usize)];
    let count = ring.peek(&mut all)?;
    let mut rest = &all[..count as usize];
    for piece in into {
        let (first, behind) = rest.split_at(rest.len().min(piece.len()));
        piece[..first.len()].copy_from_slice(first);
        rest = behind;
    }
    Ok(count)
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
