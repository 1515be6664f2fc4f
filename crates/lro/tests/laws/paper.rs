//! What "Implementation of TCP Large Receive Offload on Multi-core NPU Platform" says of its system's
//! functions, section by section, as tests. Where the crate does otherwise on purpose, the test says
//! so and why.

use lro::{Config, Discard, Flush, Pass};
use testkit::packet::{PacketBuilder, pattern};
use wire::Flags;

use super::conservation::check;
use super::naive::{FIN, Tcp};
use super::run::{Run, Step, host_sends, run, waiting};

/// Segment `n` of 100 bytes.
fn segment(n: u32) -> PacketBuilder {
    PacketBuilder::tcp4().seq(n * 100).payload(&pattern(n as usize * 100, 100))
}

fn syn() -> PacketBuilder {
    PacketBuilder::tcp4().seq(u32::MAX).flags(Flags::SYN)
}

fn frame(packet: PacketBuilder) -> Step {
    Step::Frame(packet.build().into())
}

fn run_steps(config: &Config, steps: &[Step]) -> Run {
    let run = run(config, steps);
    check(&run, steps);
    run
}

fn run_packets<const N: usize>(packets: [PacketBuilder; N]) -> Run {
    run_steps(&waiting(), &packets.map(frame))
}

/// How many frames came out together, in order.
fn sizes(run: &Run) -> Vec<usize> {
    run.groups().iter().map(Vec::len).collect()
}

mod connection_management {
    use super::*;

    /// Section IV.A: "when the multi-core NPU receives a SYN packet, it considers a TCP connection
    /// is being established": the first data may come out of order and is known to.
    #[test]
    fn a_syn_opens() {
        assert_eq!(run_packets([syn(), segment(1), segment(0)]).groups(), [vec![0], vec![2, 1]]);
    }

    /// A SYN may bring data (RFC 7413), which comes before the rest.
    #[test]
    fn a_syn_with_data_opens_behind_it() {
        let fast = syn().payload(&pattern(0, 100));
        let run = run_packets([fast, segment(2), segment(1)]);
        assert_eq!(run.groups(), [vec![0], vec![2, 1]]);
    }

    /// The paper does not say what becomes of connections older than the system. Here they are
    /// picked up at the first data that comes.
    #[test]
    fn a_connection_that_runs_already_is_picked_up() {
        let run = run_packets([segment(7), segment(9), segment(8), segment(5)]);
        assert_eq!(run.groups(), [vec![0, 2, 1], vec![3]]);
        assert_eq!(run.counters.passed[Pass::Old.index()], 1);
    }

    /// Section IV.A: "When a packet receiving thread receives a FIN packet, it [...] aggregates its
    /// buffered packets [...]. Then the ConnectionDescriptor is removed from ConnectionTable". RST
    /// does the same.
    #[test]
    fn fin_and_rst_close_behind_what_is_held() {
        for end in [Flags::FIN.with(Flags::ACK), Flags::RST] {
            let last = segment(2).payload(&[]).flags(end);
            // The next is of another connection with the same numbers: nothing of it is late.
            let run = run_packets([segment(0), segment(1), last, segment(0), segment(1)]);
            assert_eq!(run.groups(), [vec![0, 1], vec![2], vec![3, 4]], "{end:?}");
        }
    }

    /// What waits for a hole goes as well, and the hole stays.
    #[test]
    fn a_fin_does_not_leave_what_waits_behind() {
        let fin = segment(3).payload(&[]).flags(Flags::FIN.with(Flags::ACK));
        let run = run_packets([segment(0), segment(2), fin]);
        assert_eq!((run.groups(), run.counters.holes), (vec![vec![0], vec![1], vec![2]], 1));
    }

    /// Section IV.A: "free ConnectionDescriptors are pre-allocated and appended to a queue". When
    /// none is free, one that has not been used for long is taken, and loses nothing.
    #[test]
    fn descriptors_are_few_and_go_round() {
        let config = Config { flows: 3, ..waiting() };
        let of = |flow: u16, n: u32| frame(segment(n).ports(flow, 80));
        let steps: Vec<Step> =
            (0..30).flat_map(|flow| [of(flow, 0), of(flow, 2), of(flow, 1)]).collect();
        let run = run_steps(&config, &steps);
        assert_eq!(sizes(&run), [3; 30]);
        assert_eq!(run.counters.recycled, 27);
    }
}

mod packets_filtering {
    use super::*;

    /// Section IV.B, figure 6, and section II: "packets with wrong checksum are discarded".
    #[test]
    fn wrong_checksums_are_discarded_and_the_hole_waits() {
        let run = run_packets([segment(0), segment(1).wrong_checksum(), segment(2), segment(1)]);
        assert_eq!(run.groups(), [[0, 3, 2]]);
        assert_eq!(run.counters.discarded[Discard::TcpChecksum as usize], 1);
    }

    /// Section IV.B: "note that we do not require packets' TCP sequence number to be consecutive".
    #[test]
    fn numbers_need_not_be_consecutive() {
        let run = run_packets([segment(0), segment(3), segment(6), segment(9)]);
        assert_eq!(run.counters.reordered, 3);
    }

    /// Figure 6: what is forwarded as it came, each for its own reason.
    #[test]
    fn what_is_not_buffered_is_forwarded_for_a_reason() {
        let sack = [1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2];
        let cases = [
            (PacketBuilder::udp4().payload_pattern(9), Pass::NotTcp),
            (segment(1).fragment(0, true), Pass::Fragment),
            (segment(1).ip_options(&[1; 4]), Pass::IpOptions),
            (segment(1).flags(Flags::SYN), Pass::Syn),
            (segment(1).flags(Flags::RST), Pass::Rst),
            (segment(1).flags(Flags::ACK.with(Flags::URG)), Pass::Urg),
            (segment(1).payload(&[]), Pass::PureAck),
            (segment(1).payload(&[]).flags(Flags::ACK.with(Flags::FIN)), Pass::Fin),
            (segment(1).flags(Flags::PSH), Pass::NoAck),
            (segment(1).options(&sack), Pass::TcpOptions),
        ];
        for (packet, why) in cases {
            let run = run_packets([segment(0), packet]);
            assert_eq!(run.counters.passed[why.index()], 1, "{}", why.name());
        }
    }
}

mod packets_reordering {
    use super::*;

    /// Section IV.C: "multi-core NPU sorts packets by their TCP sequence number".
    #[test]
    fn every_order_of_five_gives_one_aggregate() {
        let mut orders = vec![vec![]];
        for n in 0..5u32 {
            let insert = |order: Vec<u32>| {
                (0..=order.len()).map(move |at| [&order[..at], &[n], &order[at..]].concat())
            };
            orders = orders.into_iter().flat_map(insert).collect();
        }
        assert_eq!(orders.len(), 120);
        for order in orders {
            let steps: Vec<Step> =
                [syn()].into_iter().chain(order.iter().map(|n| segment(*n))).map(frame).collect();
            let run = run_steps(&waiting(), &steps);
            assert_eq!(sizes(&run), [1, 5], "{order:?}");
            let is = Tcp::read(&run.joined().next().unwrap().bytes).unwrap();
            assert!(is.seq() == 0 && is.payload == pattern(0, 500), "{order:?}");
        }
    }

    /// Algorithm 1 drops what comes before nextseq. Here it is passed on: the sender must learn that
    /// it came again (RFC 2883).
    #[test]
    fn what_comes_before_nextseq_is_passed_and_not_dropped() {
        let run = run_packets([segment(0), segment(1), segment(0)]);
        assert_eq!(run.groups(), [vec![0, 1], vec![2]]);
    }

    /// Algorithm 2 returns at a packet whose number is in the list. Here it is passed on, too, behind
    /// the one that it repeats.
    #[test]
    fn what_is_in_the_list_already_is_passed_and_not_dropped() {
        let run = run_packets([segment(0), segment(2), segment(2), segment(1)]);
        assert_eq!(run.groups(), [[0], [1], [2], [3]]);
    }

    /// Algorithm 3 moves nextseq over all that touches, so that holes close in any order.
    #[test]
    fn nextseq_moves_over_all_that_touches() {
        let run = run_packets([0, 2, 4, 6, 5, 3, 1, 7].map(segment));
        assert_eq!(run.groups(), [[0, 6, 1, 5, 2, 4, 3, 7]]);
        assert_eq!(run.counters.reordered, 5);
    }

    /// `desc.nextseq > pkt.seq` of algorithm 1 is meant on the circle.
    #[test]
    fn order_is_that_of_the_circle() {
        let at = |n: u32| segment(0).seq((n * 100).wrapping_sub(250));
        assert_eq!(run_packets([0, 2, 1, 4, 3].map(at)).groups(), [[0, 2, 1, 4, 3]]);
    }
}

mod packets_reconstruction {
    use super::*;

    /// Section IV.D, condition 1: "consecutive payload length of the buffered packets has reached a
    /// predefined threshold"; only what is consecutive counts.
    #[test]
    fn the_threshold_counts_what_is_consecutive() {
        let config = Config { max_aggregate: 440, ..waiting() };
        let steps = [0, 2, 3, 4, 5, 1].map(|n| frame(segment(n)));
        let run = run_steps(&config, &steps);
        assert_eq!(run.groups(), [vec![0, 5, 1, 2], vec![3, 4]]);
        assert_eq!(run.counters.flushed[Flush::Size as usize], 1);
        assert_eq!(run.events[0].step, 5);
    }

    /// Condition 2: "a FIN packet is received". One that comes early waits for what is before it.
    #[test]
    fn a_fin_reconstructs_when_its_turn_has_come() {
        let fin = segment(2).flags(Flags::ACK.with(Flags::FIN));
        let run = run_packets([segment(0), fin, segment(1)]);
        assert_eq!(run.groups(), [[0, 2, 1]]);
        assert_eq!((run.events[0].step, run.counters.flushed[Flush::Fin as usize]), (2, 1));
        assert!(Tcp::read(&run.joined().next().unwrap().bytes).unwrap().has(FIN));
    }

    /// Condition 3: "one of its ConnectionDescriptors timed out"; a hole is then left visible. Unlike in
    /// the paper, three segments behind it go singly.
    #[test]
    fn a_time_out_reconstructs_each_side_of_a_hole() {
        let mut steps: Vec<Step> = [0, 1, 3, 4, 6].map(|n| frame(segment(n))).into();
        steps.push(Step::Wait(5_000_000));
        let run = run_steps(&waiting(), &steps);
        assert_eq!(run.groups(), [vec![0, 1], vec![2], vec![3], vec![4]]);
        assert_eq!((run.counters.holes, run.counters.flushed[Flush::Hole as usize]), (2, 3));
    }

    /// Section IV.A: "the maximum ACK number after packets reordering"; sequence number and TSval are
    /// the first's in that order.
    #[test]
    fn the_header_is_that_of_the_first_and_last_in_order() {
        let told = |n: u32| segment(n).ack(n + 1).window(n as u16 + 10).timestamps(n + 5, n + 6);
        let steps = [syn(), told(1), told(2), told(0)].map(frame);
        let steps = [&steps[..1], &host_sends(1, 10), &steps[1..]].concat();
        let run = run_steps(&waiting(), &steps);
        let is = Tcp::read(&run.joined().next().unwrap().bytes).unwrap();
        assert_eq!((is.seq(), is.ack(), is.window(), is.timestamps()), (0, 3, 12, Some((5, 8))));
    }
}

mod timeout_check {
    use super::*;

    fn config() -> Config {
        Config { timeout_factor: 10, min_timeout: 0, max_timeout: 1_000_000, ..waiting() }
    }

    /// Data that comes at these intervals, then silence; how long the last is held.
    fn held_after(config: &Config, intervals: &[u64]) -> u64 {
        let mut steps = vec![frame(segment(0))];
        for (n, interval) in (1..).zip(intervals) {
            steps.extend([Step::Wait(*interval), frame(segment(n))]);
        }
        steps.push(Step::Wait(10_000_000));
        let run = run_steps(config, &steps);
        let last = run.events.last().unwrap();
        last.now - run.arrivals[steps.len() - 2]
    }

    /// Section IV.E: "average_interval = (average_interval + current_time - last_arrival)/2", and
    /// "if the difference is larger than ten times of the ConnectionDescriptor's average_interval,
    /// the corresponding TCP connection is considered as timed out".
    #[test]
    fn ten_times_the_average_interval() {
        assert_eq!(held_after(&config(), &[100]), 10 * 50);
        assert_eq!(held_after(&config(), &[100, 100]), 10 * 75);
        assert_eq!(held_after(&config(), &[100, 100, 300]), 10 * 187);
        assert_eq!(held_after(&Config { timeout_factor: 100, ..config() }, &[100, 100]), 7500);
    }

    /// Section IV.E has no bounds; these keep a fast connection from being cut to pieces by one late
    /// interrupt, and a slow one from waiting for what does not come.
    #[test]
    fn never_less_and_never_more() {
        let bounded = Config { min_timeout: 2_000, max_timeout: 5_000, ..config() };
        assert_eq!(held_after(&bounded, &[100]), 2_000);
        assert_eq!(held_after(&bounded, &[700, 700]), 5_000 - 1_400);
        assert_eq!(held_after(&bounded, &[]), 2_000);
    }

    /// The clock is read once for a batch of packets; between those there is no interval.
    #[test]
    fn packets_of_one_batch_have_no_interval() {
        assert_eq!(held_after(&config(), &[100, 0, 0, 0]), 10 * 50);
    }

    /// Section IV.E: packets of which the threshold is never reached do not stay for ever, also those
    /// of a connection that keeps sending.
    #[test]
    fn what_keeps_coming_goes_after_the_longest_time() {
        let config = Config { max_timeout: 1_000, min_timeout: 1_000, ..config() };
        let steps: Vec<Step> = (0..30).flat_map(|n| [frame(segment(n)), Step::Wait(100)]).collect();
        let run = run_steps(&config, &steps);
        assert_eq!(sizes(&run), [10, 10, 10]);
        assert_eq!(run.counters.flushed[Flush::Deadline as usize], 3);
    }

    /// A hole is waited for by what came first behind it, however busy the connection is.
    #[test]
    fn a_hole_is_waited_for_from_the_first_behind_it() {
        let config = Config { max_timeout: 1_000, min_timeout: 1_000, ..config() };
        let mut steps = vec![frame(segment(0))];
        for n in 0..20 {
            steps.extend([Step::Wait(100), frame(segment(2 + n))]);
        }
        let run = run_steps(&config, &steps);
        let behind = &run.events[1];
        assert_eq!(behind.now - run.arrivals[2], 1_000);
        assert_eq!(sizes(&run)[1..5], [1, 1, 1, 7]);
        assert_eq!(run.counters.holes, 1);
    }

    /// Idle connections cost nothing: only those that hold something have a deadline.
    #[test]
    fn idle_connections_are_not_looked_at() {
        let mut lro: lro::Lro<()> = lro::Lro::new(Config { flows: 1000, ..config() });
        let mut sink = Nothing;
        for flow in 0..1000 {
            let bytes = segment(0).ports(flow, 80).build();
            lro.receive((), &bytes, lro::RxChecksum::Unverified, 5, &mut sink);
        }
        lro.flush_all(&mut sink);
        assert_eq!(lro.next_deadline(), None);
        let bytes = segment(1).ports(500, 80).build();
        lro.receive((), &bytes, lro::RxChecksum::Unverified, 105, &mut sink);
        assert_eq!(lro.next_deadline(), Some(105 + 10 * 50));
    }

    struct Nothing;

    impl lro::Sink<()> for Nothing {
        fn pass(&mut self, (): (), _: Pass) {}
        fn aggregate(&mut self, _: lro::Aggregate<'_, ()>) {}
        fn discard(&mut self, (): (), _: Discard) {}
    }
}
