//! Streams of bytes: data that was written must be sent, and data that arrived must be read.

use std::collections::HashMap;

use super::Runner;
use super::peer::stream_byte;
use crate::sockets::Fd;

/// Positions in each descriptor's streams.
#[derive(Clone, Debug, Default)]
pub(super) struct Streams {
    sent: HashMap<Fd, u32>,
    received: HashMap<Fd, u32>,
}

impl Runner {
    pub(super) fn forget_stream(&mut self, fd: Fd) {
        self.streams.sent.remove(&fd);
        self.streams.received.remove(&fd);
    }

    pub(super) fn sent_so_far(&self, fd: Fd) -> u32 {
        self.streams.sent.get(&fd).copied().unwrap_or(0)
    }

    pub(super) fn has_sent(&mut self, fd: Fd, count: usize) {
        *self.streams.sent.entry(fd).or_default() += count as u32;
    }

    pub(super) fn check_received(&mut self, fd: Fd, bytes: &[u8]) -> Result<(), String> {
        let from = self.streams.received.entry(fd).or_default();
        let first = *from;
        *from = from.wrapping_add(bytes.len() as u32);
        let is_wrong =
            |(at, byte): (usize, &u8)| *byte != stream_byte(first.wrapping_add(at as u32));
        match bytes.iter().enumerate().position(is_wrong) {
            Some(at) if self.checks_payload => {
                Err(format!("byte {} that is read is not what arrived", first as usize + at))
            }
            _ => Ok(()),
        }
    }
}
