//! What is asked of degen, and what is measured.

use std::str::FromStr;

use degen::{Config, Probability};
use nic::degen::Settings;

use super::stream::{self, Outcome, Plan, Taken};
use super::wan::Wan;
use super::{Options, tcp};
use crate::Error;

/// Name, unit and value of all that a run measured, always in the same order.
pub(super) type Measured = Vec<(&'static str, &'static str, f64)>;

/// What is asked of degen, in both directions.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Case {
    /// A delay, in nanoseconds.
    Delay(u64),
    /// Loss, in per cent.
    Loss(f64),
    /// Duplication, in per cent.
    Duplicate(f64),
    /// A rate, in bits per second.
    Rate(u64),
    /// TCP through a delay of 10 ms in both directions together, and a loss, in per cent.
    Tcp(f64),
}

/// A frame of a stream, headers included.
const FRAME: usize = 256;
/// How fast frames are sent that are only counted, in each direction.
const COUNTED_RATE: u32 = 100_000;
/// What a rate is offered, as a multiple of it.
const OFFERED: f64 = 1.2;
/// Delay of each direction for TCP, in nanoseconds: a round trip takes twice that.
const TCP_DELAY: u64 = 5_000_000;
/// TCP payload in a frame: an MTU of 1,500 less the headers with timestamps.
const MSS: f64 = 1_448.0;

impl Case {
    /// What is shown without being asked for: the delays of the range, and one of each other
    /// kind.
    pub const DEFAULT: [Case; 9] = [
        Case::Delay(100_000),
        Case::Delay(1_000_000),
        Case::Delay(10_000_000),
        Case::Delay(100_000_000),
        Case::Loss(1.0),
        Case::Loss(10.0),
        Case::Duplicate(1.0),
        Case::Rate(100_000_000),
        Case::Tcp(1.0),
    ];

    /// The kind's name.
    pub const fn name(&self) -> &'static str {
        match self {
            Case::Delay(_) => "delay",
            Case::Loss(_) => "loss",
            Case::Duplicate(_) => "duplicate",
            Case::Rate(_) => "rate",
            Case::Tcp(_) => "tcp",
        }
    }

    /// What is asked for, as degen's settings write it.
    pub fn asked(&self) -> String {
        match self {
            Case::Delay(time) => key_text("delay", *time),
            Case::Rate(rate) => key_text("rate", *rate),
            Case::Loss(percent) | Case::Duplicate(percent) | Case::Tcp(percent) => {
                format!("{percent}%")
            }
        }
    }

    pub(super) fn words(&self) -> String {
        format!("{} {}", self.name(), self.asked())
    }

    /// What degen is set to.
    fn config(&self) -> Result<Config, Error> {
        let percent = |percent| {
            let wrong = || Error::Usage(format!("{percent} % is not from 0 to 100"));
            Probability::percent(percent).ok_or_else(wrong)
        };
        let mut config = Config::default();
        match *self {
            Case::Delay(delay) => config.delay = delay,
            Case::Loss(loss) => config.loss = percent(loss)?,
            Case::Duplicate(duplicate) => config.duplicate = percent(duplicate)?,
            Case::Rate(rate) => config.rate = rate,
            Case::Tcp(_) => config.delay = TCP_DELAY,
        }
        Ok(config)
    }

    pub(super) fn measure(&self, options: &Options, seed: u64) -> Result<Measured, Error> {
        let config = self.config()?;
        let mut settings = Settings { seed: Some(seed), ..Settings::default() };
        settings.configs = [config.clone(), config];
        if let Case::Tcp(loss) = *self {
            // Data is lost, acknowledgments are not.
            let lossy = Case::Loss(loss).config()?;
            settings.configs[0].loss = lossy.loss;
        }
        let wan = Wan::new(&settings, options.mode, options.awake)?;
        let seconds = options.duration.as_secs_f64();
        let measured = match *self {
            Case::Delay(asked) => {
                let rate = options.packets_per_second;
                let packets = (f64::from(rate) * seconds) as u64;
                let outcome = stream::run(&wan, Plan { packets, rate, len: FRAME }, asked)?;
                let mut measured = delay(&outcome, asked, packets);
                measured.push(("late", "%", wan.late()));
                measured
            }
            Case::Loss(asked) => {
                let counted = counted(&wan, options)?;
                share("lost", asked, 100.0 * (1.0 - counted))
            }
            Case::Duplicate(asked) => {
                let counted = counted(&wan, options)?;
                share("duplicated", asked, 100.0 * (counted - 1.0))
            }
            Case::Rate(asked) => rate(&wan, asked, options)?,
            Case::Tcp(loss) => mathis(&tcp::run(&wan, options.duration)?, loss),
        };
        wan.stop()?;
        Ok(measured)
    }
}

/// A value as degen's key of that name writes it.
fn key_text(key: &str, value: u64) -> String {
    degen::keys::find(key).map_or_else(|| value.to_string(), |key| key.format(value))
}

/// How many of the frames sent arrived, as a share.
fn counted(wan: &Wan, options: &Options) -> Result<f64, Error> {
    let plan = Plan { packets: options.packets, rate: COUNTED_RATE, len: FRAME };
    let taken = stream::run(wan, plan, 0)?.taken;
    let arrived: u64 = taken.iter().map(|taken| taken.frames).sum();
    Ok(arrived as f64 / (2 * options.packets) as f64)
}

fn share(metric: &'static str, asked: f64, measured: f64) -> Measured {
    vec![(metric, "%", measured), ("off_by", "%", 100.0 * (measured / asked - 1.0))]
}

/// How far the added delay is off. The delay was never shorter than asked for, or that counts as well.
fn delay(outcome: &Outcome, asked: u64, sent: u64) -> Measured {
    let taken = &outcome.taken;
    let all = || taken.iter().flat_map(|taken| &taken.delays);
    // Of the others it is known when they came to degen.
    let known = all().filter(|(_, number)| outcome.interrupted.binary_search(number).is_err());
    let off = |(delay, _): &(u64, u64)| (*delay as f64 - asked as f64).abs() / 1e3;
    let mut off: Vec<f64> = known.map(off).collect();
    let left_out = 100.0 * (1.0 - off.len() as f64 / all().count().max(1) as f64);
    off.sort_unstable_by(f64::total_cmp);
    let quantile = |part: f64| {
        let at = (off.len() as f64 * part) as usize;
        off.get(at.min(off.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
    };
    let frames: u64 = taken.iter().map(|taken| taken.frames).sum();
    let rate = taken.iter().map(Taken::rate).sum::<f64>() / 2.0;
    vec![
        ("off_p50", "us", quantile(0.5)),
        ("off_p99", "us", quantile(0.99)),
        ("off_p999", "us", quantile(0.999)),
        ("off_most", "us", quantile(1.0)),
        ("arrived", "%", 100.0 * frames as f64 / (2 * sent) as f64),
        ("packets_per_second", "1/s", rate),
        ("degen_cpu", "%", outcome.cpu),
        ("left_out", "%", left_out),
    ]
}

/// What passes when more is offered.
fn rate(wan: &Wan, asked: u64, options: &Options) -> Result<Measured, Error> {
    let frames = asked as f64 / (8 * FRAME) as f64;
    let plan = Plan { packets: options.packets, rate: (frames * OFFERED) as u32, len: FRAME };
    let taken = stream::run(wan, plan, 0)?.taken;
    let bits = |taken: &Taken| taken.rate() * (8 * FRAME) as f64;
    let measured = taken.iter().map(bits).sum::<f64>() / 2.0;
    Ok(vec![("rate", "bit/s", measured), ("off_by", "%", 100.0 * (measured / asked as f64 - 1.0))])
}

/// TCP beside what theory says of Reno: MSS / RTT * C / sqrt(p) (Mathis, Semke, Mahdavi and Ott, "The
/// macroscopic behavior of the TCP congestion avoidance algorithm", 1997, equation 3 and table 1), where
/// C is 0.93 for losses at random with an acknowledgment of every second segment and 1.31 for one of
/// each. The round-trip time is what the sender has measured.
fn mathis(outcome: &tcp::Outcome, percent: f64) -> Measured {
    let per_c = MSS * 8.0 / outcome.rtt / (percent / 100.0).sqrt();
    vec![
        ("throughput", "bit/s", outcome.throughput),
        ("mathis_least", "bit/s", 0.93 * per_c),
        ("mathis_most", "bit/s", 1.31 * per_c),
        ("constant", "", outcome.throughput / per_c),
        ("rtt", "ms", outcome.rtt * 1e3),
    ]
}

impl FromStr for Case {
    type Err = String;

    /// A kind and what is asked for: `delay=5ms`, `loss=1%`, `duplicate=1%`, `rate=100mbit`, `tcp=1%`.
    fn from_str(text: &str) -> Result<Self, String> {
        let form = || {
            "a case is delay=TIME, loss=P%, duplicate=P%, rate=RATE or tcp=P%, such as delay=5ms"
                .to_owned()
        };
        let (kind, value) = text.split_once('=').ok_or_else(form)?;
        let key = |name: &str| {
            let key = degen::keys::find(name).ok_or_else(form)?;
            let value =
                key.parse(value).map_err(|why| format!("{kind}: {why}; {}", key.takes()))?;
            if value == 0 {
                Err(format!("{kind}: there is nothing to measure in 0"))
            } else {
                Ok(value)
            }
        };
        let percent = |name| key(name).map(|parts| parts as f64 / 1e7);
        match kind {
            "delay" => key("delay").map(Case::Delay),
            "loss" => percent("loss").map(Case::Loss),
            "duplicate" => percent("duplicate").map(Case::Duplicate),
            "rate" => key("rate").map(Case::Rate),
            "tcp" => percent("loss").map(Case::Tcp),
            _ => Err(form()),
        }
    }
}
