//! A connection of an engine, and a peer whose segments a test chooses.

use std::sync::Arc;

use tcp::{
    Block, Config, FourTuple, Id, Nanos, Options, Segment, Snapshot, Socket, Stack, StackConfig,
};
use wire::{Flags, Seq, Timestamps, icmp};

/// A segment that the engine has sent.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) ack: Seq,
    pub(crate) window: u16,
    pub(crate) sack: Vec<Block>,
    pub(crate) payload: Vec<u8>,
    pub(crate) gso_size: u16,
}

/// What the peer offers in its SYN.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    pub(crate) sack: bool,
    pub(crate) timestamps: bool,
    pub(crate) window_scale: Option<u8>,
}

pub(crate) struct Peer {
    pub(crate) stack: Stack,
    pub(crate) id: Id,
    path: FourTuple,
    pub(crate) now: Nanos,
    /// The peer's first byte.
    pub(crate) first: Seq,
    /// The engine's first byte.
    pub(crate) theirs: Seq,
    /// What the peer has acknowledged, if it keeps count.
    pub(crate) acked: Seq,
    /// Shift of the engine's window.
    pub(crate) shift: u8,
    /// The window field that the peer sends.
    pub(crate) window: u16,
    timestamps: bool,
}

impl Peer {
    /// Connects to an engine that listens; the handshake takes `rtt`.
    pub(crate) fn new(config: Config, offer: Offer, iss: u32, rtt: Nanos) -> Peer {
        Peer::offering(config, offer, iss, rtt, 65_535)
    }

    /// The same; its window is `window` from the beginning.
    pub(crate) fn offering(
        config: Config,
        offer: Offer,
        iss: u32,
        rtt: Nanos,
        window: u16,
    ) -> Peer {
        let mut stack = Stack::new(StackConfig { secret: [3; 16], half_open: 8, connections: 8 });
        stack.listen(None, 80, Arc::new(config)).unwrap();
        let path = FourTuple {
            local: "10.0.0.1:80".parse().unwrap(),
            remote: "10.0.0.2:5000".parse().unwrap(),
        };
        let now = 1_000_000_000;
        let options = Options {
            mss: Some(1000),
            window_scale: offer.window_scale,
            sack_permitted: offer.sack,
            timestamps: offer.timestamps.then_some(Timestamps { value: Seq(1), echo: Seq(0) }),
            ..Options::default()
        };
        let syn = Segment {
            seq: Seq(iss),
            ack: Seq(0),
            flags: Flags::SYN,
            window,
            urgent: 0,
            options,
            payload: &[],
            gso_size: 0,
            ce: false,
        };
        stack.receive(&path, &syn, now);
        let answer = stack.poll_transmit(now).unwrap();
        let theirs = answer.seq + 1;
        let agreed = Options::parse(answer.options.as_slice());
        let now = now + rtt;
        let mut peer = Peer {
            shift: agreed.window_scale.filter(|_| offer.window_scale.is_some()).unwrap_or(0),
            id: complete(&mut stack, &path, &syn, theirs, offer, now),
            stack,
            path,
            now,
            first: Seq(iss) + 1,
            theirs,
            acked: theirs,
            window,
            timestamps: offer.timestamps,
        };
        peer.transmit();
        peer
    }

    /// Sends a segment of the peer.
    pub(crate) fn send(&mut self, seq: Seq, ack: Seq, flags: Flags, payload: &[u8]) {
        self.send_joined(seq, ack, flags, payload, 0);
    }

    /// Sends segments of `gso_size` of the peer, which came as one.
    pub(crate) fn send_joined(
        &mut self,
        seq: Seq,
        ack: Seq,
        flags: Flags,
        payload: &[u8],
        gso_size: u16,
    ) {
        let pieces = [payload];
        let segment = Segment {
            seq,
            ack,
            flags,
            window: self.window,
            urgent: 0,
            options: options(self.timestamps, self.now),
            payload: if payload.is_empty() { &[] } else { &pieces },
            gso_size,
            ce: false,
        };
        self.stack.receive(&self.path, &segment, self.now);
    }

    /// Receives a segment of which the test chooses everything.
    pub(crate) fn put(&mut self, segment: &Segment<'_>) {
        self.stack.receive(&self.path, segment, self.now);
    }

    /// A router's ICMP message about the first segment that is not acknowledged.
    pub(crate) fn unreachable(&mut self, icmp: icmp::Error) {
        self.stack.unreachable(&self.path, icmp, self.acked, self.now);
    }

    /// All that the engine sends now.
    pub(crate) fn transmit(&mut self) -> Vec<Sent> {
        let mut all = Vec::new();
        while let Some(transmit) = self.stack.poll_transmit(self.now) {
            all.push(Sent {
                ack: transmit.ack,
                window: transmit.window,
                sack: Options::parse(transmit.options.as_slice()).sack.as_slice().to_vec(),
                payload: transmit.payload.concat(),
                gso_size: transmit.gso_size,
            });
        }
        while self.stack.next_event().is_some() {}
        all
    }

    /// Lets time pass. Returns all that the engine sends meanwhile, and when.
    pub(crate) fn wait(&mut self, time: Nanos) -> Vec<(Nanos, Sent)> {
        let until = self.now + time;
        let mut all = Vec::new();
        while let Some(deadline) = self.stack.next_deadline().filter(|at| *at <= until) {
            self.now = self.now.max(deadline);
            self.stack.on_time(self.now);
            let now = self.now;
            all.extend(self.transmit().into_iter().map(|out| (now, out)));
        }
        self.now = until;
        all
    }

    /// Freezes the connection, and thaws it at once in another stack.
    pub(crate) fn move_on(&mut self, config: Config) {
        let snapshot = self.stack.freeze(self.id, self.now).unwrap();
        let snapshot = Snapshot::decode(&snapshot.encode()).unwrap();
        self.id = self.stack.thaw(&snapshot, Arc::new(config), self.now).unwrap();
    }

    pub(crate) fn socket(&mut self) -> Socket<'_> {
        self.stack.socket(self.id, self.now).unwrap()
    }
}

fn options(timestamps: bool, now: Nanos) -> Options {
    let value = Seq((now / 1_000_000) as u32);
    Options {
        timestamps: timestamps.then_some(Timestamps { value, echo: Seq(0) }),
        ..Options::default()
    }
}

/// The last segment of the handshake, and the connection that there is then.
fn complete(
    stack: &mut Stack,
    path: &FourTuple,
    syn: &Segment<'_>,
    theirs: Seq,
    offer: Offer,
    now: Nanos,
) -> Id {
    let last = Segment {
        seq: syn.seq + 1,
        ack: theirs,
        flags: Flags::ACK,
        options: options(offer.timestamps, now),
        ..*syn
    };
    stack.receive(path, &last, now);
    stack.next_event().unwrap().0
}
