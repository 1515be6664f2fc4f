//! How the delay varies, against the distributions' own formulas.

use degen::delay::Delay;
use degen::{Config, Distribution, Nanos};

const MS: f64 = 1e6;
const PACKETS: usize = 1_000_000;

/// How long each packet took, the shortest first.
fn took(config: &Config, packets: usize) -> Vec<f64> {
    let mut delay = Delay::new(1);
    (0..packets as u64).for_each(|number| delay.push((), number, 0, config));
    let times = std::iter::from_fn(|| delay.take());
    let times: Vec<f64> = times.map(|((), due)| due as f64).collect();
    assert!(times.len() == packets && times.is_sorted());
    times
}

fn config(distribution: Distribution, delay: f64, jitter: f64) -> Config {
    Config {
        delay: delay as Nanos,
        jitter: jitter as Nanos,
        jitter_distribution: distribution,
        ..Config::default()
    }
}

fn mean(times: &[f64]) -> f64 {
    times.iter().sum::<f64>() / times.len() as f64
}

fn deviation(times: &[f64]) -> f64 {
    let mean = mean(times);
    (times.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / times.len() as f64).sqrt()
}

/// Kolmogorov and Smirnov: the largest distance between the share of packets that took no longer than
/// a time, and what that share should be. A right distribution stays below this 999 times in 1,000.
fn follows(times: &[f64], share: impl Fn(f64) -> f64) {
    let count = times.len() as f64;
    let distance = |(at, time): (usize, &f64)| {
        let expected = share(*time);
        (expected - at as f64 / count).abs().max((expected - (at + 1) as f64 / count).abs())
    };
    let most = times.iter().enumerate().map(distance).fold(0.0, f64::max);
    assert!(most < 1.95 / count.sqrt(), "{most}");
}

#[track_caller]
fn assert_near(what: f64, expected: f64, within: f64) {
    assert!((what - expected).abs() <= within, "{what}, expected {expected} +- {within}");
}

#[test]
fn uniform() {
    let times = took(&config(Distribution::Uniform, 10.0 * MS, 2.0 * MS), PACKETS);
    let sigma = 2.0 * MS / 3_f64.sqrt();
    assert_near(mean(&times), 10.0 * MS, 4.0 * sigma / 1e3);
    assert_near(deviation(&times), sigma, 0.003 * sigma);
    follows(&times, |time| (time - 8.0 * MS) / (4.0 * MS));
    assert!(times[0] >= 8.0 * MS && times[PACKETS - 1] <= 12.0 * MS);
}

#[test]
fn normal() {
    let times = took(&config(Distribution::Normal, 20.0 * MS, 2.0 * MS), PACKETS);
    assert_near(mean(&times), 20.0 * MS, 4.0 * 2.0 * MS / 1e3);
    assert_near(deviation(&times), 2.0 * MS, 0.004 * 2.0 * MS);
    follows(&times, |time| below_normal((time - 20.0 * MS) / (2.0 * MS)));
}

/// Of shape 3: the mean is 3/2 of the scale, the variance 3/4 of its square.
#[test]
fn pareto() {
    let (delay, jitter) = (20.0 * MS, 2.0 * MS);
    let times = took(&config(Distribution::Pareto, delay, jitter), PACKETS);
    let scale = jitter / 0.75_f64.sqrt();
    let origin = delay - 1.5 * scale;
    assert_near(mean(&times), delay, 4.0 * jitter / 1e3);
    // The fourth moment is infinite: the deviation of a million packets is known to a few per cent.
    assert_near(deviation(&times), jitter, 0.1 * jitter);
    follows(&times, |time| 1.0 - (scale / (time - origin)).powi(3));
    assert!(times[0] >= (origin + scale).floor() && times[PACKETS - 1] > delay + 50.0 * jitter);
}

/// What would have left before it came leaves at once, and the rest as if nothing were.
#[test]
fn no_delay_is_negative() {
    for distribution in [Distribution::Uniform, Distribution::Normal, Distribution::Pareto] {
        let packets = 100_000;
        let clipped = took(&config(distribution, MS, 4.0 * MS), packets);
        let whole = took(&config(distribution, 101.0 * MS, 4.0 * MS), packets);
        let expected = whole.iter().map(|time| (time - 100.0 * MS).max(0.0));
        assert!(clipped.iter().zip(expected).all(|(time, expected)| *time == expected));
        assert!(clipped[packets / 100] == 0.0 && clipped[packets - 1] > 0.0);
    }
}

/// Extremes of what can be set.
#[test]
fn delays_at_the_end_of_time_do_not_overflow() {
    let hour = 3_600_000.0 * MS;
    for distribution in [Distribution::Uniform, Distribution::Normal, Distribution::Pareto] {
        let mut delay = Delay::new(1);
        let config = config(distribution, hour, hour);
        (0..1_000).for_each(|number| delay.push((), number, Nanos::MAX - 5, &config));
        assert!(std::iter::from_fn(|| delay.take()).all(|((), due)| due >= Nanos::MAX - 5));
    }
}

/// The normal distribution's share of what is below `z`: the series of 26.2.10 in Abramowitz and
/// Stegun near the middle, and the continued fraction of 26.2.14 far out.
fn below_normal(z: f64) -> f64 {
    let density = (-z * z / 2.0).exp() / std::f64::consts::TAU.sqrt();
    if z.abs() < 4.0 {
        let (mut term, mut sum) = (z, z);
        for n in 1..80 {
            term *= z * z / f64::from(2 * n + 1);
            sum += term;
        }
        return 0.5 + density * sum;
    }
    let fraction = (1..60).rev().fold(0.0, |fraction, n| f64::from(n) / (z.abs() + fraction));
    let tail = density / (z.abs() + fraction);
    if z > 0.0 { 1.0 - tail } else { tail }
}
