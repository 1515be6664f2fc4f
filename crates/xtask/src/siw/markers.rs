//! What siw replies to requests for markers, which it does not have.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::guest::Guest;
use super::network::GUEST;
use super::sockets;
use super::wait::{TO_LISTEN, becomes};

const PORT: u16 = 7_471;
/// For a connection, and for a reply.
const PATIENCE: Duration = Duration::from_secs(15);

/// Requests of MPA (RFC 5044 section 7.1) and what siw replies: flags and revision.
pub(super) fn refused(guest: &mut Guest) -> Result<(), String> {
    const MARKERS: u8 = 0x80;
    const CRC: u8 = 0x40;
    const REJECT: u8 = 0x20;
    guest.start("server", &format!("rping -s -P -a 0.0.0.0 -p {PORT}"))?;
    if !becomes(TO_LISTEN, || Ok(sockets::listen(&guest.sockets()?, PORT)))? {
        return Err(format!("the server does not listen: {}", guest.said("server")?));
    }
    let mut wrong = Vec::new();
    for (flags, expected) in [(MARKERS, REJECT), (MARKERS | CRC, REJECT | CRC), (0, 0), (CRC, CRC)]
    {
        let reply = ask(flags);
        if reply.as_ref().ok() != Some(&(expected, 1)) {
            wrong.push(format!("{flags:#x}: {reply:?}, not {expected:#x}"));
        }
    }
    guest.end("server")?;
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

/// A request of revision 1 with these flags; flags and revision of the reply.
fn ask(flags: u8) -> Result<(u8, u8), String> {
    let text = |error: std::io::Error| error.to_string();
    let address = format!("{GUEST}:{PORT}").parse::<SocketAddr>();
    let address = address.map_err(|error| error.to_string())?;
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(text)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(text)?;
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
