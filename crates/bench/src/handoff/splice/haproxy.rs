//! haproxy, as one process with one thread, which passes on what comes.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::Way;
use crate::Error;
use crate::handoff::installed::Installed;
use crate::handoff::testbed::Testbed;
use crate::hosts::CLIENT;

const PORT: u16 = 7_010;
/// Where it has its own server, at the client's host.
pub(super) const BEHIND: u16 = 7_011;
/// How long a connection may take to end behind which there is nothing.
const PATIENCE: Duration = Duration::from_secs(5);

/// By splice(2) both ways, with a pipe for each of them. What it cannot open it does not try again.
fn configuration(connections: usize) -> String {
    let (most, pipes) = (connections + 16, 2 * connections + 16);
    format!(
        "global\n nbthread 1\n maxconn {most}\n maxpipes {pipes}\n\
         defaults\n mode tcp\n retries 0\n option splice-request\n option splice-response\n \
         timeout connect 10s\n timeout client 60s\n timeout server 60s\n\
         listen all\n bind :{PORT} backlog 4096\n server behind {CLIENT}:{BEHIND}\n"
    )
}

/// Starts it at the server, when there is nothing behind it yet; `None` if it is not there.
pub(super) fn start(
    testbed: &Testbed,
    way: Way,
    connections: usize,
) -> Result<Option<Installed>, Error> {
    let equip = |command: &mut Command| {
        // It fits: a pipe has room for 64 KB.
        let (reader, mut writer) = io::pipe()?;
        writer.write_all(configuration(connections).as_bytes())?;
        command.args(["-db", "-f", "/dev/stdin"]).stdin(Stdio::from(reader));
        if way == Way::Spliced {
            command.env("WHARF_HANDOFF_SPLICE", "1");
        }
        Ok(())
    };
    let place = (way.place(), "at_accept");
    Installed::start(testbed, place, ("haproxy", PORT), equip, ends)
}

/// Waits until it has closed a connection behind which there is nothing: it will not open another one for that.
fn ends(mut stream: TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    match stream.read(&mut [0]) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(()),
        Err(error) => Err(error),
    }
}
