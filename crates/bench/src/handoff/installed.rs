//! A server of the distribution's, as one process with one thread.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::Place;
use super::testbed::Testbed;
use crate::Error;
use crate::hosts::SERVER;
use crate::sink::io as failed;

/// Where Debian has servers, should an ordinary user's path not have that.
const FOLDERS: [&str; 2] = ["", "/usr/sbin/"];
/// How long it may take to listen.
const PATIENCE: Duration = Duration::from_secs(10);

/// It ends with this.
#[derive(Debug)]
pub(super) struct Installed {
    name: &'static str,
    child: Child,
    /// Where it listens.
    pub(super) to: SocketAddr,
}

impl Installed {
    /// Starts it at the server, with its connections there, as `equip` has it; `None` if it is not there. It is started when
    /// it listens at the port, and `looks` is content with a connection to it.
    pub(super) fn start(
        testbed: &Testbed,
        (place, policy): (Place, &str),
        (name, port): (&'static str, u16),
        equip: impl Fn(&mut Command) -> io::Result<()>,
        looks: impl Fn(TcpStream) -> io::Result<()> + Sync,
    ) -> Result<Option<Installed>, Error> {
        for folder in FOLDERS {
            let mut command = Command::new(format!("{folder}{name}"));
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            equip(&mut command).map_err(failed("start a server"))?;
            match testbed.spawn(place, policy, &mut command) {
                Ok(child) => {
                    let server = Installed { name, child, to: (SERVER, port).into() };
                    server.listens(testbed, looks)?;
                    return Ok(Some(server));
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(failed("start a server")(error)),
            }
        }
        Ok(None)
    }

    fn listens(
        &self,
        testbed: &Testbed,
        looks: impl Fn(TcpStream) -> io::Result<()> + Sync,
    ) -> Result<(), Error> {
        let begun = Instant::now();
        let look = || TcpStream::connect(self.to).and_then(&looks);
        while testbed.hosts.client.run(look)?.is_err() {
            if begun.elapsed() > PATIENCE {
                let why = "it does not listen".to_owned();
                return Err(Error::Failed { system: self.name, why });
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Its process, and its one thread.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its CPU time, in nanoseconds.
    pub(super) fn cpu(&self) -> u64 {
        sys::process::process_cpu(self.id()).unwrap_or(0)
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
