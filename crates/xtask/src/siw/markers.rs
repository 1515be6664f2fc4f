//! What siw replies to requests for markers, which it does not have.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::guest::Guest;
use super::network::GUEST;

const PORT: u16 = 7_471;

/// Requests of MPA (RFC 5044 section 7.1) and what siw replies: flags and revision.
pub(super) fn refused(guest: &mut Guest) -> Result<(), String> {
    const MARKERS: u8 = 0x80;
    const CRC: u8 = 0x40;
    const REJECT: u8 = 0x20;
    guest.run(&format!("timeout 60 rping -s -P -a 0.0.0.0 -p {PORT} > /tmp/server 2>&1 &"))?;
    guest.listens(PORT)?;
    let mut wrong = Vec::new();
    for (flags, expected) in [(MARKERS, REJECT), (MARKERS | CRC, REJECT | CRC), (0, 0), (CRC, CRC)]
    {
        let reply = ask(flags);
        if reply.as_ref().ok() != Some(&(expected, 1)) {
            wrong.push(format!("{flags:#x}: {reply:?}, not {expected:#x}"));
        }
    }
    guest.run("killall -9 rping")?;
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

/// A request of revision 1 with these flags; flags and revision of the reply.
fn ask(flags: u8) -> Result<(u8, u8), String> {
    let text = |error: std::io::Error| error.to_string();
    let mut stream = TcpStream::connect((GUEST, PORT)).map_err(text)?;
    stream.set_read_timeout(Some(Duration::from_secs(15))).map_err(text)?;
    // The key, flags, revision, and no private data.
    let request = [&b"MPA ID Req Frame"[..], &[flags, 1, 0, 0]].concat();
    stream.write_all(&request).map_err(text)?;
    let mut reply = [0; 20];
    stream.read_exact(&mut reply).map_err(text)?;
    if &reply[..16] != b"MPA ID Rep Frame" {
        return Err(format!("it replies {reply:x?}"));
    }
    Ok((reply[16], reply[17]))
}
