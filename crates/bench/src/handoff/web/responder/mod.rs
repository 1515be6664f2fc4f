//! The responder, which makes the web server's dynamic content, as a process of its own: FastCGI over a Unix socket.

mod content;
mod fastcgi;
mod program;

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::Error;
use crate::handoff::Place;
use crate::handoff::testbed::Testbed;
use crate::sink::io as failed;

/// The socket's name, where the files are.
pub(super) const SOCKET: &str = "responder";

/// It ends with this.
#[derive(Debug)]
pub(super) struct Responder {
    child: Child,
}

impl Responder {
    /// Starts it at the server, with the files there. It has no connections that could be handed off.
    pub(super) fn start(testbed: &Testbed, root: &Path) -> Result<Responder, Error> {
        let listener = listen(&root.join(SOCKET)).map_err(failed("listen"))?;
        let own = std::env::current_exe().map_err(failed("find this program"))?;
        let mut command = Command::new(own);
        command.args(["bench", "handoff-responder"]).arg(root);
        command.stdin(OwnedFd::from(listener)).stdout(Stdio::null());
        let child = testbed.spawn(Place::Os, "none", &mut command);
        child.map(|child| Responder { child }).map_err(failed("start a responder"))
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

impl Drop for Responder {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn listen(socket: &Path) -> io::Result<UnixListener> {
    // That of a run before.
    match fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => UnixListener::bind(socket),
    }
}

/// Answers requests of a web server with pages of the files there. It connects to the socket on standard input, as FastCGI
/// has it (section 2.2).
///
/// # Errors
/// What the kernel says.
pub fn respond(root: &Path) -> io::Result<()> {
    let listener = UnixListener::from(io::stdin().as_fd().try_clone_to_owned()?);
    answer_at(&listener, root)
}

/// The same at that socket.
pub(super) fn answer_at(listener: &UnixListener, root: &Path) -> io::Result<()> {
    program::run(listener, root)
}
