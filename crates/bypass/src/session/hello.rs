//! A session that begins: the library has said Hello, and wharf answers with Welcome when it comes to that.

use std::io;

use handoff::policy::Policy;
use handoff::session::{MESSAGE_LEN, Message};

use super::Session;
use crate::os;
use crate::own::Own;
use crate::timeout;

/// A Hello that was said to a wharf, which has not answered yet.
pub(super) struct Hello {
    socket: Own,
    /// Time when that was.
    since: u64,
}

/// State of the answer.
pub(super) enum Answer {
    /// None has come yet.
    None,
    /// The session that has begun by it.
    Welcome(&'static Session),
    /// There is no wharf, or it does not speak this version.
    No,
}

/// How long threads that wait look for the answer, in nanoseconds. Later calls look, too.
const LOOKS: u64 = 1_000_000_000;

impl Hello {
    /// Says Hello to the wharf at this address, and waits for the answer for a moment. `None` if there is no wharf, or no room
    /// in its queues.
    pub(super) fn say(address: &[u8]) -> Option<Hello> {
        let socket = Own::new(os::connect(address)?);
        // Only root can put a file into the directory of the others.
        let is_trusted = address[0] != b'@' || os::is_trusted(socket.fd());
        if !is_trusted || os::send(socket.fd(), &Message::Hello.encode(), None).is_err() {
            socket.close();
            return None;
        }
        os::wait_readable(socket.fd(), timeout::WELCOME);
        Some(Hello { socket, since: os::now() })
    }

    /// Looks for the answer, without a wait. The session is that of this place in the list of NICs.
    pub(super) fn answer(&self, place: usize, policy: Option<Policy>) -> Answer {
        let mut bytes = [0; MESSAGE_LEN];
        let received = match os::receive(self.socket.fd(), &mut bytes) {
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Answer::None,
            Err(_) => return self.refuse(),
        };
        let session = match Message::decode(&bytes[..received.len]) {
            Ok(Message::Welcome(welcome)) => {
                let descriptors = received.descriptors();
                Session::by(welcome, self.socket, descriptors, (place, policy))
            }
            _ => None,
        };
        match session.and_then(os::keep) {
            Some(session) => Answer::Welcome(session),
            None => {
                received.descriptors().iter().copied().for_each(os::close);
                self.refuse()
            }
        }
    }

    /// Closes the socket.
    fn refuse(&self) -> Answer {
        self.socket.close();
        Answer::No
    }

    /// Returns true as long as threads that wait are to look for the answer.
    pub(super) fn is_new(&self) -> bool {
        os::now().saturating_sub(self.since) < LOOKS
    }
}
