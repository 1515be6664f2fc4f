//! Whether a snapshot can be that of a connection: whatever would make an engine panic, count wrongly or wait
//! for ever is refused. What is only unwise is not: a peer could have brought it about.

use core::net::{IpAddr, SocketAddr};

use super::{Flight, RecoveryState, Snapshot, SnapshotError};
use crate::config::{SECOND, TIME_MAX};
use crate::options::Block;
use crate::{Keepalive, Nanos, State};

/// Most bytes of a queue: no window is larger (RFC 7323 section 2.3).
pub const QUEUE_MAX: usize = 1 << 30;
/// Most blocks out of order.
pub const OUT_OF_ORDER_MAX: usize = 1 << 16;
/// Most runs in flight.
pub const FLIGHTS_MAX: usize = 1 << 20;
/// Fewest payload bytes of a full segment: an engine takes smaller announcements for 88, and timestamps
/// may come off.
pub const MSS_MIN: u16 = 76;
/// Fewest bytes behind the headers that a path takes: an engine's smallest segment, with its options. Less
/// than that a segment would be mostly header.
pub const SEGMENT_MIN: u16 = 88;
/// Largest congestion window: twice the largest window.
pub const CWND_MAX: u32 = 1 << 31;
/// Longest user timeout: what TCP_USER_TIMEOUT can say, 50 days.
pub const USER_TIMEOUT_MAX: Nanos = u32::MAX as Nanos * 1_000_000;
/// Longest round trip: a day.
pub const RTT_MAX: Nanos = 24 * 3600 * SECOND;

/// Largest shift (RFC 7323 section 2.3).
const SHIFT_MAX: u8 = 14;

type Validity = Result<(), SnapshotError>;

fn holds(condition: bool, otherwise: SnapshotError) -> Validity {
    if condition { Ok(()) } else { Err(otherwise) }
}

impl Snapshot {
    /// Checks that a connection can be so.
    ///
    /// # Errors
    /// The first contradiction found.
    pub fn validate(&self) -> Result<(), SnapshotError> {
        self.addresses()?;
        holds(self.state != State::Closed, SnapshotError::State)?;
        self.sizes()?;
        self.times()?;
        self.windows()?;
        self.sent()?;
        self.control()?;
        self.opens()?;
        if self.state == State::SynSent { self.received_nothing() } else { self.received() }
    }

    fn addresses(&self) -> Validity {
        let same_family = self.local.is_ipv4() == self.remote.is_ipv4();
        let end = |end: &SocketAddr| end.port() != 0 && is_host(end.ip());
        holds(same_family && end(&self.local) && end(&self.remote), SnapshotError::Addresses)
    }

    fn sizes(&self) -> Validity {
        let headers = if self.local.is_ipv4() { 40 } else { 60 };
        let fits = u32::from(self.mss) + headers <= u32::from(self.path_mtu);
        let sensible =
            self.mss >= MSS_MIN && u32::from(self.path_mtu) >= headers + u32::from(SEGMENT_MIN);
        let larger = self.moment.mtu_probe.is_none_or(|(mtu, _)| mtu > self.path_mtu);
        holds(fits && sensible && larger, SnapshotError::SegmentSize)?;
        let out_of_order = self.receive.out_of_order.iter().map(|(_, bytes)| bytes.len());
        let queues = [self.send.queue.len(), self.receive.queue.len()];
        let short = queues.into_iter().chain(out_of_order).all(|len| len <= QUEUE_MAX);
        holds(short && self.receive.buffer as usize <= QUEUE_MAX, SnapshotError::QueueLength)
    }

    fn times(&self) -> Validity {
        let timers = &self.timers;
        let left = [
            timers.retransmit,
            timers.tail_probe,
            timers.reorder,
            timers.persist,
            timers.delayed_ack,
            timers.keepalive,
            timers.time_wait,
        ];
        let past = self.send.flight.iter().map(|flight| flight.ago);
        let mut all = left.into_iter().flatten().chain(past);
        let moment = &self.moment;
        let ages = [
            moment.retransmitted_ago,
            moment.received_ago,
            moment.sent_ago,
            moment.min_ago,
            moment.stalled_ago,
            moment.mtu_tried_ago,
            moment.tuned.1,
            moment.challenged_ago.unwrap_or(0),
            moment.rack_ago.unwrap_or(0),
        ];
        let bounded = ages.iter().all(|time| *time <= TIME_MAX)
            && all.all(|time| time <= TIME_MAX)
            && self.receive.ts_recent.1 <= TIME_MAX
            && self.socket_options.user_timeout <= USER_TIMEOUT_MAX;
        let round_trip = &self.round_trip;
        let [srtt, rttvar, min] = [round_trip.srtt, round_trip.rttvar, round_trip.min];
        let round_trips = [srtt, rttvar, min, moment.rack_rtt, self.control.reorder_window];
        holds(bounded && round_trips.iter().all(|time| *time <= RTT_MAX), SnapshotError::Time)?;
        match self.socket_options.keepalive {
            Some(Keepalive { idle, interval, .. }) => {
                holds(idle > 0 && interval > 0, SnapshotError::Keepalive)?;
                holds(idle <= TIME_MAX && interval <= TIME_MAX, SnapshotError::Time)
            }
            None => Ok(()),
        }
    }

    fn windows(&self) -> Validity {
        let (peer, ours) = self.agreed.window_scale.unwrap_or((0, 0));
        holds(peer <= SHIFT_MAX && ours <= SHIFT_MAX, SnapshotError::WindowScale)?;
        let offered = self.send.wnd.max(self.send.max_wnd);
        holds(offered <= largest_window(peer), SnapshotError::Window)?;
        let edge = self.receive.edge.distance(self.receive.nxt);
        let most = i64::from(largest_window(ours));
        // Behind the edge there may be a FIN, which takes no room.
        let offering = self.state != State::SynSent;
        holds(!offering || (-1..=most).contains(&i64::from(edge)), SnapshotError::Window)
    }

    /// Sequence numbers from `una` on, SYN and FIN among them, against the queue.
    fn sent(&self) -> Validity {
        let send = &self.send;
        let opening = matches!(self.state, State::SynSent | State::SynReceived);
        let in_flight = send.nxt - send.una;
        let syn = u32::from(opening);
        // No more than QUEUE_MAX: see `sizes`.
        let queued = send.queue.len() as u32;
        let all = syn + queued + u32::from(send.fin);
        holds(in_flight <= all, SnapshotError::SendSequence)?;
        let opens_so = send.una == self.agreed.iss && in_flight <= 1;
        holds(!opening || opens_so, SnapshotError::SendSequence)?;
        let behind = send.wl2.distance(send.nxt) <= 0;
        holds(self.state == State::SynSent || behind, SnapshotError::SendSequence)?;
        match self.state {
            State::FinWait2 | State::TimeWait => {
                holds(send.fin, SnapshotError::Fin)?;
                holds(queued == 0 && in_flight == 0, SnapshotError::State)?;
            }
            State::FinWait1 | State::Closing | State::LastAck => {
                holds(send.fin, SnapshotError::Fin)?;
            }
            State::Established | State::CloseWait => holds(!send.fin, SnapshotError::Fin)?,
            _ => {}
        }
        if let Some(urgent) = send.urgent {
            // It is one after a byte: a SYN is none.
            let at = urgent - send.una;
            holds(at > syn && at <= syn + queued, SnapshotError::Urgent)?;
        }
        flights(&send.flight, in_flight)
    }

    fn control(&self) -> Validity {
        let control = &self.control;
        let cwnd = u32::from(self.mss)..=CWND_MAX;
        holds(cwnd.contains(&control.cwnd), SnapshotError::CongestionWindow)?;
        holds(control.ssthresh > 0, SnapshotError::CongestionWindow)?;
        let in_flight = self.send.nxt - self.send.una;
        let ends = control.recovery_point - self.send.una <= in_flight;
        holds(control.recovery == RecoveryState::Open || ends, SnapshotError::Recovery)?;
        let prior = self.moment.prior.0 <= CWND_MAX;
        holds(prior, SnapshotError::Recovery)?;
        let again = self.moment.tail_probe.is_none_or(|(start, len)| {
            len > 0 && len <= in_flight && start - self.send.una <= in_flight - len
        });
        holds(again, SnapshotError::Recovery)
    }

    /// A SYN is sent while it opens, and if none is in flight one is to be sent.
    fn opens(&self) -> Validity {
        let opening = matches!(self.state, State::SynSent | State::SynReceived);
        let in_flight = self.send.nxt != self.send.una;
        let opens = if self.moment.syn_due { opening } else { !opening || in_flight };
        holds(opens, SnapshotError::State)
    }

    fn received_nothing(&self) -> Validity {
        let receive = &self.receive;
        let nothing = receive.queue.is_empty()
            && receive.out_of_order.is_empty()
            && receive.recent.is_empty();
        holds(nothing, SnapshotError::ReceiveSequence)?;
        holds(receive.fin.is_none(), SnapshotError::Fin)?;
        holds(receive.urgent.is_none(), SnapshotError::Urgent)
    }

    fn received(&self) -> Validity {
        let receive = &self.receive;
        let unacknowledged = receive.nxt.distance(receive.acked);
        let most = QUEUE_MAX as i32;
        holds((0..=most).contains(&unacknowledged), SnapshotError::ReceiveSequence)?;
        // A segment with a FIN, acknowledged within a window, is the last that can update it.
        let updated = self.send.wl1.distance(receive.edge) <= 1;
        holds(updated, SnapshotError::ReceiveSequence)?;
        self.peers_fin()?;
        self.out_of_order()?;
        if let Some(urgent) = receive.urgent {
            // It is one after the urgent byte, which was not read: a pointer at what is read next is over.
            let fin = i32::from(receive.fin.is_some_and(|fin| fin.before(receive.nxt)));
            let read = -(receive.queue.len() as i32) - fin;
            let at = urgent.distance(receive.nxt);
            holds((read + 1..=most).contains(&at), SnapshotError::Urgent)?;
        }
        Ok(())
    }

    fn peers_fin(&self) -> Validity {
        let receive = &self.receive;
        let closed = matches!(
            self.state,
            State::CloseWait | State::Closing | State::LastAck | State::TimeWait
        );
        let agrees = match receive.fin {
            // All was received, and the FIN is the last.
            Some(fin) if closed => fin + 1 == receive.nxt && receive.out_of_order.is_empty(),
            // There is a hole before it.
            Some(fin) => {
                let after = |block: &Block| block.end.after(fin + 1);
                let within = !fin.before(receive.nxt) && fin.distance(receive.edge) <= 0;
                within && !receive.out_of_order.iter().any(|(block, _)| after(block))
            }
            None => !closed,
        };
        holds(agrees, SnapshotError::Fin)
    }

    fn out_of_order(&self) -> Validity {
        let receive = &self.receive;
        holds(receive.out_of_order.len() <= OUT_OF_ORDER_MAX, SnapshotError::OutOfOrder)?;
        let window = receive.edge.distance(receive.nxt).max(0) as u32;
        // Blocks that touch are one, and the first one does not touch what was received.
        let mut before = 0;
        for (block, bytes) in &receive.out_of_order {
            let (start, end) = (block.start - receive.nxt, block.end - receive.nxt);
            // A FIN is the last number of its block, takes no room and is no byte.
            let fin = u32::from(receive.fin.is_some_and(|fin| block.end == fin + 1));
            let ordered = start > before && start < end && end - fin <= window;
            holds(ordered, SnapshotError::OutOfOrder)?;
            let data = (end - start - fin) as usize;
            holds(data == bytes.len(), SnapshotError::OutOfOrder)?;
            before = end;
        }
        holds(receive.recent.len() <= receive.out_of_order.len(), SnapshotError::Recent)?;
        let there = |recent: &Block| !recent.is_empty() && self.has(*recent);
        holds(receive.recent.iter().all(there), SnapshotError::Recent)
    }

    /// Whether all of it is in a block out of order.
    fn has(&self, recent: Block) -> bool {
        let (out_of_order, nxt) = (&self.receive.out_of_order, self.receive.nxt);
        let (start, end) = (recent.start - nxt, recent.end - nxt);
        let at = out_of_order.partition_point(|(block, _)| block.end - nxt <= start);
        let block = out_of_order.get(at);
        block.is_some_and(|(block, _)| block.start - nxt <= start && end <= block.end - nxt)
    }
}

/// They fill what is in flight, and nothing is lost that the peer has.
fn flights(flights: &[Flight], in_flight: u32) -> Validity {
    let mut sum = 0_u64;
    for flight in flights {
        let sensible = flight.len > 0 && !(flight.sacked && flight.lost);
        holds(sensible, SnapshotError::Flight)?;
        sum += u64::from(flight.len);
    }
    let fill = sum == u64::from(in_flight) && flights.len() <= FLIGHTS_MAX;
    holds(fill, SnapshotError::Flight)
}

fn largest_window(shift: u8) -> u32 {
    u32::from(u16::MAX) << shift
}

fn is_host(address: IpAddr) -> bool {
    let broadcast = address == IpAddr::V4(core::net::Ipv4Addr::BROADCAST);
    !address.is_unspecified() && !address.is_multicast() && !broadcast
}
