//! The bytes of a connection whose queues are lent: they lie here, and not in the stack.

use tcp::{Placement, Queue, Segment, Snapshot};
use wire::Seq;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Shelf {
    /// Sequence number of the first byte of `sent`.
    sent_from: Seq,
    sent: Vec<u8>,
    /// Sequence number of the first byte of `received`.
    received_from: Seq,
    /// What has come; nothing stands where there is a hole.
    received: Vec<Option<u8>>,
    /// Bytes that were read.
    read: usize,
}

impl Shelf {
    /// The queues of a snapshot.
    pub(crate) fn of(snapshot: &Snapshot) -> Self {
        let receive = &snapshot.receive;
        let fin = u32::from(receive.fin.is_some_and(|fin| fin.before(receive.nxt)));
        let back = fin + receive.queue.len() as u32;
        let mut shelf = Shelf {
            sent_from: snapshot.send.una,
            sent: snapshot.send.queue.clone(),
            received_from: receive.nxt + 0_u32.wrapping_sub(back),
            received: receive.queue.iter().copied().map(Some).collect(),
            read: 0,
        };
        for (block, bytes) in &receive.out_of_order {
            shelf.store(block.start, bytes);
        }
        shelf
    }

    fn store(&mut self, seq: Seq, bytes: &[u8]) {
        let at = (seq - self.received_from) as usize;
        let end = at + bytes.len();
        self.received.resize(self.received.len().max(end), None);
        self.received[at..end].iter_mut().zip(bytes).for_each(|(to, byte)| *to = Some(*byte));
    }

    /// Bytes of a segment that was received.
    pub(crate) fn place(&mut self, placement: Placement, segment: &Segment<'_>) {
        let Placement { seq, skip, len, .. } = placement;
        let payload = segment.payload.concat();
        self.store(seq, &payload[skip as usize..(skip + len) as usize]);
    }

    /// What the application sends.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.sent.extend_from_slice(bytes);
    }

    /// Bytes that were sent, or are to be.
    pub(crate) fn sent(&self, seq: Seq, len: u32) -> &[u8] {
        let at = (seq - self.sent_from) as usize;
        &self.sent[at..at + len as usize]
    }

    /// What the application reads.
    pub(crate) fn read(&mut self, into: &mut [u8]) {
        for byte in into {
            *byte = self.received[self.read].expect("what is in order was stored");
            self.read += 1;
        }
    }

    /// Bytes of a queue, of a connection whose first unacknowledged byte has this sequence number.
    pub(crate) fn lend(&self, una: Seq, queue: Queue, offset: u32, len: u32) -> Vec<u8> {
        match queue {
            // The peer may have acknowledged our FIN, too.
            _ if len == 0 => Vec::new(),
            Queue::Send => self.sent(una + offset, len).to_vec(),
            Queue::Receive => {
                let at = self.read + offset as usize;
                let bytes = &self.received[at..at + len as usize];
                bytes.iter().map(|byte| byte.expect("what was taken was stored")).collect()
            }
        }
    }
}
