//! What both sides tell of a case that has failed, while both still live.

use super::device::Device;
use super::guest::Guest;
use super::sockets::{self, Socket};
use super::stream::Stream;

/// Connections whose bytes have come and were not read.
#[derive(Debug, Default)]
pub(super) struct Unread {
    guest: Vec<Socket>,
    here: Vec<Socket>,
}

impl Unread {
    pub(super) fn look(guest: &mut Guest) -> Result<Unread, String> {
        let here = sockets::unread(sockets::here());
        Ok(Unread { guest: sockets::unread(guest.sockets()?), here })
    }

    /// One that is as it was then.
    pub(super) fn since(&self, then: &Unread) -> Option<String> {
        let same = |now: &[Socket], then: &[Socket]| {
            now.iter().find(|socket| then.iter().any(|other| socket.is_as(other))).cloned()
        };
        let of_guest =
            same(&self.guest, &then.guest).map(|socket| format!("in the guest {socket}"));
        of_guest.or_else(|| Some(format!("here {}", same(&self.here, &then.here)?)))
    }
}

/// See the file's documentation.
#[derive(Debug)]
pub(super) struct Symptoms {
    unread: Unread,
    kernel_said: String,
    text: String,
}

impl Symptoms {
    pub(super) fn take(device: &Device, guest: &mut Guest) -> Result<Symptoms, String> {
        let unread = Unread::look(guest)?;
        let sockets = |of: &str, sockets: Vec<Socket>| -> String {
            sockets.iter().map(|socket| format!("{of}: {socket}\n")).collect()
        };
        let text = sockets("socket of the guest", guest.sockets()?)
            + &sockets("socket here", sockets::here())
            + &device.symptoms();
        Ok(Symptoms { unread, kernel_said: guest.kernel_said()?, text })
    }

    /// Whether the guest's kernel has met a fault of its own, after which it is of no use.
    pub(super) fn is_broken(&self) -> bool {
        self.kernel_said.contains("kernel BUG at")
    }

    /// Why it is not wharf's failure, if it may not be.
    pub(super) fn excuse(&self, sent: &[Stream]) -> Option<&'static str> {
        if self.is_broken() {
            return Some("the guest's kernel has met a fault of its own (BUG)");
        }
        // There is something to be done by siw, and nothing by wharf.
        if !self.unread.guest.is_empty() && self.unread.here.is_empty() {
            return Some("siw has not looked at what has come behind its reply");
        }
        let is_right = sent.iter().all(|stream| stream.wrong == 0);
        let is_cut = sent.iter().any(|stream| stream.cut > 0);
        (self.kernel_said.contains("siw: crc error") && is_right && is_cut)
            .then_some("siw has taken a CRC for a wrong one that a segment's end has cut")
    }

    pub(super) fn text(&self) -> String {
        format!("{}{}", self.text, self.kernel_said)
    }
}
