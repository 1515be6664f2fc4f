//! Congestion control: the window is that of RFC 9438, RFC 9406 and RFC 5681, and a connection that is
//! frozen, idle or has a spurious loss does not change that.

use proptest::prelude::*;
use tcp::congestion::{Acked, Congestion, Cubic, NewReno, PRIVATE_WORDS, Window};
use tcp::{Algorithm, Nanos};
use wire::Seq;

const MSS: u32 = 1000;
const MS: Nanos = 1_000_000;

fn window(segments: u32) -> Window {
    Window { cwnd: segments * MSS, ssthresh: u32::MAX, mss: MSS }
}

/// An acknowledgment in a stream of which the window is all that bounds it.
fn ack(now: Nanos, bytes: u32, rtt: Nanos) -> Acked {
    Acked {
        now,
        bytes,
        srtt: rtt,
        rtt: Some(rtt),
        in_flight: u32::MAX,
        cwnd_limited: true,
        snd_nxt: Seq(0),
        snd_una: Seq(0),
    }
}

fn both() -> [Congestion; 2] {
    [Congestion::new(Algorithm::Cubic), Congestion::new(Algorithm::NewReno)]
}

/// A loss: the window goes to the threshold at once.
fn lose(control: &mut Congestion, window: &mut Window, now: Nanos) {
    window.ssthresh = control.control().on_congestion(window, window.cwnd, now);
    window.cwnd = window.ssthresh;
}

/// A retransmission time-out: the window goes to one segment.
fn time_out(control: &mut Congestion, window: &mut Window, now: Nanos) {
    window.ssthresh = control.control().on_timeout(window, window.cwnd, now);
    window.cwnd = window.mss;
}

/// One round trip of acknowledgments of one segment each, spread over it.
fn round(control: &mut Congestion, window: &mut Window, from: Nanos, rtt: Nanos) {
    let segments = (window.cwnd / window.mss).max(1);
    for i in 1..=segments {
        let now = from + rtt * u64::from(i) / u64::from(segments);
        control.control().on_ack(window, &ack(now, window.mss, rtt));
    }
}

/// RFC 9438 once more, from its text, in segments and seconds and without any economy.
#[derive(Clone, Debug)]
struct Rfc9438 {
    cwnd: f64,
    ssthresh: f64,
    w_max: Option<f64>,
    cwnd_prior: f64,
    stage: Option<(f64, f64, f64)>, // t_epoch, K, W_est
}

impl Rfc9438 {
    fn new(cwnd: f64, ssthresh: f64) -> Self {
        Rfc9438 { cwnd, ssthresh, w_max: None, cwnd_prior: 0.0, stage: None }
    }

    fn ack(&mut self, now: f64, mut segments: f64, rtt: f64) {
        if self.cwnd < self.ssthresh {
            self.stage = None;
            let grown = segments.min(self.ssthresh - self.cwnd);
            self.cwnd += grown;
            segments -= grown;
            if segments <= 0.0 {
                return;
            }
        }
        segments = segments.min(self.cwnd);
        let (epoch, k, mut w_est) = self.stage.unwrap_or_else(|| match self.w_max {
            Some(w_max) if w_max > self.cwnd => {
                (now, ((w_max - self.cwnd) / 0.4).cbrt(), self.cwnd)
            }
            _ => {
                self.w_max = Some(self.cwnd);
                (now, 0.0, self.cwnd)
            }
        });
        let w_max = self.w_max.unwrap();
        let alpha = if w_est >= self.cwnd_prior { 1.0 } else { 3.0 * 0.3 / 1.7 };
        w_est += alpha * segments / self.cwnd;
        self.stage = Some((epoch, k, w_est));
        let figure_1 = |t: f64| 0.4 * (t - k).powi(3) + w_max;
        let t = now - epoch;
        if figure_1(t) < w_est {
            self.cwnd = self.cwnd.max(w_est);
        } else {
            let target = figure_1(t + rtt).clamp(self.cwnd, 1.5 * self.cwnd);
            self.cwnd += (target - self.cwnd) / self.cwnd * segments;
        }
    }

    fn congestion(&mut self) {
        self.cwnd_prior = self.cwnd;
        let converge = self.w_max.is_some_and(|w_max| self.cwnd < w_max);
        self.w_max = Some(if converge { self.cwnd * 1.7 / 2.0 } else { self.cwnd });
        self.ssthresh = (self.cwnd * 0.7).max(2.0);
        self.stage = None;
    }

    fn timeout(&mut self) {
        self.congestion();
        self.w_max = None;
        self.cwnd = 1.0;
    }
}

#[derive(Clone, Debug)]
enum Happening {
    Acks { count: u32, segments: u32, gap: Nanos, rtt: Nanos },
    Loss,
    Timeout,
}

fn happenings() -> impl Strategy<Value = Vec<Happening>> {
    let acks = (1u32..400, 1u32..4, 10_000u64..20 * MS, MS..300 * MS)
        .prop_map(|(count, segments, gap, rtt)| Happening::Acks { count, segments, gap, rtt });
    prop::collection::vec(
        prop_oneof![6 => acks, 2 => Just(Happening::Loss), 1 => Just(Happening::Timeout)],
        1..30,
    )
}

/// Applies the events, in a stream that is bounded by the window for six acknowledgments of seven.
fn run(control: &mut Congestion, window: &mut Window, now: &mut Nanos, happenings: &[Happening]) {
    let mut una = Seq(0);
    for happening in happenings {
        match *happening {
            Happening::Acks { count, segments, gap, rtt } => {
                for i in 0..count {
                    *now = now.wrapping_add(gap);
                    una += segments * MSS;
                    let acked = Acked {
                        cwnd_limited: i % 7 != 0,
                        snd_una: una,
                        snd_nxt: una + window.cwnd,
                        ..ack(*now, segments * MSS, rtt)
                    };
                    control.control().on_ack(window, &acked);
                }
            }
            Happening::Loss => lose(control, window, *now),
            Happening::Timeout => time_out(control, window, *now),
        }
    }
}

/// Words that are as often nearly valid as they are random.
fn word() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        Just(0),
        Just(u64::MAX),
        any::<f64>().prop_map(f64::to_bits),
        any::<(f32, bool)>().prop_map(|(k, on)| u64::from(k.to_bits()) << 32 | u64::from(on)),
        0..1u64 << 34,
    ]
}

proptest! {
    /// Whatever happens, the window is RFC 9438's, up to the rounding to bytes.
    #[test]
    fn the_window_is_that_of_rfc_9438(happenings in happenings(), start in 10u32..2000) {
        let mut cubic = Congestion::new(Algorithm::Cubic);
        // A threshold that is not the first one: the first slow start has HyStart++.
        let mut window = Window { ssthresh: start * MSS, ..window(start) };
        let mut model = Rfc9438::new(f64::from(start), f64::from(start));
        let mut now = 1_000_000_007;
        for happening in happenings {
            match happening {
                Happening::Acks { count, segments, gap, rtt } => for _ in 0..count {
                    now += gap;
                    cubic.control().on_ack(&mut window, &ack(now, segments * MSS, rtt));
                    model.ack(now as f64 * 1e-9, f64::from(segments), rtt as f64 * 1e-9);
                }
                Happening::Loss => {
                    lose(&mut cubic, &mut window, now);
                    model.congestion();
                    model.cwnd = model.ssthresh;
                }
                Happening::Timeout => {
                    time_out(&mut cubic, &mut window, now);
                    model.timeout();
                }
            }
            let ours = f64::from(window.cwnd) / f64::from(MSS);
            let error = (ours - model.cwnd).abs();
            // A byte's rounding at a kink of the function (a window at its W_max or not) moves a
            // later window by more than a byte, but not by much.
            prop_assert!(error < 0.1 + 0.005 * model.cwnd, "{ours} is not {}", model.cwnd);
        }
    }

    /// Freezing a connection and going on by another clock changes no window that follows.
    #[test]
    fn a_restored_algorithm_goes_on_unchanged(
        before in happenings(),
        after in happenings(),
        clock in any::<u64>(),
        pause in 0..5 * MS,
    ) {
        for mut here in both() {
            let mut window = window(10);
            let mut now = 77 * MS;
            run(&mut here, &mut window, &mut now, &before);
            now += pause;
            let words = here.private(now);
            let mut there = Congestion::new(here.algorithm());
            there.control().restore(&words, clock);
            prop_assert_eq!(there.private(clock), words);
            let (mut elsewhere, mut its_now) = (window, clock);
            run(&mut here, &mut window, &mut now, &after);
            run(&mut there, &mut elsewhere, &mut its_now, &after);
            prop_assert_eq!(window, elsewhere);
            prop_assert_eq!(here.private(now), there.private(its_now));
            here.control().undo();
            there.control().undo();
            prop_assert_eq!(here.private(now), there.private(its_now));
        }
    }

    /// A connection of which nothing is known has zeros: a new algorithm.
    #[test]
    fn zeros_are_a_new_algorithm(happenings in happenings(), clock in any::<u64>()) {
        for mut fresh in both() {
            let mut zeros = fresh;
            zeros.control().restore(&[0; PRIVATE_WORDS], clock);
            let (mut a, mut b) = (window(10), window(10));
            run(&mut fresh, &mut a, &mut clock.clone(), &happenings);
            run(&mut zeros, &mut b, &mut clock.clone(), &happenings);
            prop_assert_eq!(a, b);
        }
    }

    /// Words from nowhere: no panic, no window that an acknowledgment makes smaller or much larger (half
    /// as much again, or double in slow start), and no threshold below two segments.
    #[test]
    fn no_private_words_do_harm(
        words in prop::collection::vec(word(), PRIVATE_WORDS),
        now in any::<u64>(),
        cwnd in any::<u32>(),
        ssthresh in any::<u32>(),
        mss in 1u32..65_536,
        happenings in happenings(),
        idle in any::<u64>(),
    ) {
        let words: [u64; PRIVATE_WORDS] = words.try_into().unwrap();
        for mut control in both() {
            control.control().restore(&words, now);
            let mut window = Window { cwnd: cwnd.max(mss), ssthresh: ssthresh.max(2 * mss), mss };
            let mut then = now;
            for happening in &happenings {
                let before = window.cwnd;
                if let &Happening::Acks { gap, rtt, .. } = happening {
                    then = then.wrapping_add(gap);
                    let slow_start = u64::from(window.in_slow_start());
                    control.control().on_ack(&mut window, &ack(then, before, rtt));
                    prop_assert!(window.cwnd >= before);
                    let most = u64::from(before) * (3 + slow_start) / 2 + u64::from(mss) + 1;
                    prop_assert!(u64::from(window.cwnd) <= most, "{} of {before}", window.cwnd);
                } else {
                    lose(&mut control, &mut window, then);
                    prop_assert!(window.cwnd >= 2 * mss);
                    prop_assert!(window.cwnd <= before.max(2 * mss));
                }
                control.control().on_idle(idle);
                control.control().undo();
            }
            time_out(&mut control, &mut window, then);
            prop_assert!(window.ssthresh >= 2 * mss);
        }
    }

    /// A spurious loss leaves no trace, once the window is put back.
    #[test]
    fn an_undone_loss_leaves_no_trace(
        before in happenings(),
        after in happenings(),
        timeout in any::<bool>(),
    ) {
        for mut with in both() {
            let mut window = window(10);
            let mut now = 5 * MS;
            run(&mut with, &mut window, &mut now, &before);
            let mut without = with;
            if timeout {
                with.control().on_timeout(&window, 0, now);
            } else {
                with.control().on_congestion(&window, 0, now);
            }
            with.control().undo();
            let (mut same, mut same_now) = (window, now);
            run(&mut with, &mut window, &mut now, &after);
            run(&mut without, &mut same, &mut same_now, &after);
            prop_assert_eq!(window, same);
        }
    }

    /// Time in which the application leaves the window unused does not count, whether nothing was sent at all
    /// or only little (RFC 9438 section 5.8).
    #[test]
    fn a_pause_of_the_application_does_not_count(
        pause in MS..100_000 * MS,
        trickle in prop::option::of(1u64..50),
        rounds in 1u32..40,
    ) {
        let mut steady = Congestion::new(Algorithm::Cubic);
        let mut window = window(200);
        let mut now = MS;
        lose(&mut steady, &mut window, now);
        for _ in 0..rounds {
            round(&mut steady, &mut window, now, 50 * MS);
            now += 50 * MS;
        }
        let mut paused = steady;
        let mut same = window;
        if let Some(acks) = trickle {
            for i in 1..=acks {
                let limited = Acked { cwnd_limited: false, ..ack(now + pause * i / acks, MSS, MS) };
                paused.control().on_ack(&mut same, &limited);
            }
            prop_assert_eq!(same, window);
        } else {
            paused.control().on_idle(pause);
        }
        for i in 0..20 {
            round(&mut steady, &mut window, now + i * 50 * MS, 50 * MS);
            round(&mut paused, &mut same, now + pause + i * 50 * MS, 50 * MS);
            prop_assert_eq!(same, window);
        }
    }
}

/// A connection has room for it in its cold state.
#[test]
fn the_state_fits_96_bytes() {
    assert!(size_of::<Congestion>() <= 96, "{} bytes", size_of::<Congestion>());
}

/// Figures 1 and 2 as a user would see them: three tenths are lost, and are back K seconds later.
#[test]
fn the_window_is_back_after_k_seconds() {
    for (segments, k) in [(288, 6_000), (2304, 12_000)] {
        let mut cubic = Congestion::new(Algorithm::Cubic);
        let mut window = window(segments);
        lose(&mut cubic, &mut window, 0);
        assert_eq!(window.cwnd, segments * MSS * 7 / 10);
        let (mut now, rtt) = (0, 100 * MS);
        while now < k * MS {
            round(&mut cubic, &mut window, now, rtt);
            now += rtt;
        }
        let cwnd = f64::from(window.cwnd) / f64::from(segments * MSS);
        assert!((0.99..=1.001).contains(&cwnd), "{cwnd} of W_max after K");
    }
}

/// Section 4.3: on short paths CUBIC is no slower than Reno: 9/17 of a segment per round trip up to the
/// window lost, a whole one from there on.
#[test]
fn on_short_paths_it_grows_as_reno_would() {
    let mut cubic = Congestion::new(Algorithm::Cubic);
    let mut window = window(20);
    lose(&mut cubic, &mut window, 0);
    for i in 0..24 {
        let before = window.cwnd;
        round(&mut cubic, &mut window, i * MS, MS);
        let grown = window.cwnd - before;
        // The window is acknowledged in whole segments and grows meanwhile.
        if window.cwnd < 20 * MSS {
            assert!((470..=530).contains(&grown), "{grown} bytes at {before}");
        } else if before >= 20 * MSS {
            assert!((920..=1000).contains(&grown), "{grown} bytes at {before}");
        }
    }
    assert!(window.cwnd > 28 * MSS, "{}", window.cwnd);
}

/// Section 4.8: after a time-out the curve starts where slow start has ended, however large the window
/// once was.
#[test]
fn after_a_timeout_the_curve_starts_flat() {
    let mut cubic = Congestion::new(Algorithm::Cubic);
    let mut window = window(1000);
    time_out(&mut cubic, &mut window, 0);
    assert_eq!(window.ssthresh, 700 * MSS);
    window.cwnd = window.ssthresh;
    let rtt = 100 * MS;
    for i in 0..10 {
        round(&mut cubic, &mut window, i * rtt, rtt);
    }
    // After a second CUBIC has 0.4 segments more and Reno 5.3; with K > 0 it would be 90 and more.
    assert!((705 * MSS..706 * MSS).contains(&window.cwnd), "{}", window.cwnd);
}

/// Section 4.7: a flow that has not got its window back leaves room for others.
#[test]
fn a_second_loss_makes_room() {
    let mut cubic = Congestion::new(Algorithm::Cubic);
    let mut window = window(1000);
    lose(&mut cubic, &mut window, 0);
    lose(&mut cubic, &mut window, MS);
    assert_eq!(window.cwnd, 490 * MSS);
    // W_max is 0.85 * 700 = 595 segments: K = cbrt(105 / 0.4) = 6.4 s.
    let rtt = 100 * MS;
    for i in 0..64 {
        round(&mut cubic, &mut window, i * rtt, rtt);
    }
    assert!((590 * MSS..=597 * MSS).contains(&window.cwnd), "{}", window.cwnd);
}

/// Two flows on one path that drops when it is full end up with the same, whatever they began with.
#[test]
fn two_flows_converge() {
    for algorithm in [Algorithm::Cubic, Algorithm::NewReno] {
        let mut flows =
            [900, 20].map(|segments| (Congestion::new(algorithm), window(segments), 0.0));
        for (control, window, _) in &mut flows {
            lose(control, window, 0);
        }
        let rtt = 50 * MS;
        let rounds = 6_000;
        for i in 0..rounds {
            for (control, window, sum) in &mut flows {
                round(control, window, i * rtt, rtt);
                *sum += if i > rounds / 2 { f64::from(window.cwnd) } else { 0.0 };
            }
            // The path holds 1,000 segments; when it overflows both lose.
            if flows.iter().map(|(_, window, _)| window.cwnd).sum::<u32>() > 1_000 * MSS {
                for (control, window, _) in &mut flows {
                    lose(control, window, (i + 1) * rtt);
                }
            }
        }
        let [a, b] = flows.map(|(_, _, sum)| sum);
        let jain = (a + b).powi(2) / (2.0 * (a * a + b * b));
        assert!(jain > 0.95, "{algorithm:?}: {jain}");
    }
}

/// A round of slow start of 16 acknowledgments of a segment each; by how many segments it grew.
fn slow_start(control: &mut Congestion, window: &mut Window, una: &mut Seq, rtt: Nanos) -> u32 {
    let before = window.cwnd;
    for _ in 0..16 {
        *una += MSS;
        let acked = Acked { snd_una: *una, snd_nxt: *una + 16 * MSS, ..ack(MS, MSS, rtt) };
        control.control().on_ack(window, &acked);
    }
    (window.cwnd - before) / MSS
}

/// RFC 9406: a delay that rises and stays up ends the first slow start after five slow rounds; one that
/// falls back does not; and a steady one never does.
#[test]
fn the_first_slow_start_ends_when_the_delay_rises() {
    let start = |delays: &[u64]| {
        let mut cubic = Congestion::new(Algorithm::Cubic);
        let (mut window, mut una) = (window(100), Seq(u32::MAX - 20_000));
        let grown: Vec<u32> = delays
            .iter()
            .map(|ms| slow_start(&mut cubic, &mut window, &mut una, ms * MS))
            .collect();
        (grown, window)
    };
    let (grown, steady) = start(&[40; 12]);
    assert_eq!(grown, [16; 12]);
    assert_eq!(steady.ssthresh, u32::MAX);

    // An eighth of 40 ms more is needed: 44 is not enough, 45 is. It is known at the 8th measurement.
    let (grown, not_enough) = start(&[40, 40, 44, 44, 44]);
    assert_eq!(grown, [16; 5]);
    assert_eq!(not_enough.ssthresh, u32::MAX);

    // Its own acknowledgment still lets the window grow as before (section 4.2).
    let (grown, risen) = start(&[40, 40, 45, 45, 45, 45, 45, 45, 45, 45]);
    assert_eq!(grown, [16, 16, 10, 4, 4, 4, 4, 0, 0, 0]);
    assert!(risen.ssthresh <= risen.cwnd, "congestion avoidance: {risen:?}");

    let (grown, jitter) = start(&[40, 40, 45, 45, 41, 41, 41, 41, 41, 41, 41]);
    assert_eq!(grown[5..], [16; 6]);
    assert_eq!(jitter.ssthresh, u32::MAX);
}

/// RFC 9406 section 4.3: only the first slow start.
#[test]
fn later_slow_starts_do_not_end_by_delay() {
    let mut cubic = Congestion::new(Algorithm::Cubic);
    let mut window = Window { ssthresh: 10_000 * MSS, ..window(100) };
    let mut una = Seq(0);
    for rtt in [10, 20, 40, 80, 160, 320, 640, 1280] {
        assert_eq!(slow_start(&mut cubic, &mut window, &mut una, rtt * MS), 16);
    }
}

/// RFC 5681 section 3.1: doubling below the threshold, a segment per round trip above it, half of it
/// lost.
#[test]
fn newreno_is_rfc_5681() {
    let mut newreno = Congestion::NewReno(NewReno::default());
    let mut window = window(10);
    round(&mut newreno, &mut window, 0, MS);
    assert_eq!(window.cwnd, 20 * MSS);
    lose(&mut newreno, &mut window, MS);
    assert_eq!((window.cwnd, window.ssthresh), (10 * MSS, 10 * MSS));
    for segments in 11..20 {
        round(&mut newreno, &mut window, MS, MS);
        assert_eq!(window.cwnd, segments * MSS);
    }
    // However much one acknowledgment has: not more than a window counts.
    newreno.control().on_ack(&mut window, &ack(MS, 10_000 * MSS, MS));
    assert_eq!(window.cwnd, 20 * MSS);
    window.cwnd = MSS;
    assert_eq!(newreno.control().on_timeout(&window, MSS, MS), 2 * MSS);
}

/// A threshold in the middle of an acknowledgment: its bytes count on both sides.
#[test]
fn an_acknowledgment_may_span_the_threshold() {
    for mut control in
        [Congestion::NewReno(NewReno::default()), Congestion::Cubic(Cubic::default())]
    {
        let mut window = Window { ssthresh: 12 * MSS, ..window(10) };
        control.control().on_ack(&mut window, &ack(MS, 30 * MSS, MS));
        assert_eq!(window.cwnd, 13 * MSS, "{control:?}");
    }
}
