//! `--trace`: what happens on one connection of the engine, as JSON lines in a file.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use nic::tcp::trace::{Event, Header, Record, Timer};
use nic::tcp::{Addresses, FourTuple, Info, RecoveryState, Trace, ends};
use serde_json::{Map, Value, json};
use wire::{Flags, icmp};

use crate::error::Error;

/// Records on their way to the file: some milliseconds of a fast connection.
const QUEUED: usize = 8192;
/// How long a line may wait in memory for more.
const FLUSH_AFTER: Duration = Duration::from_millis(100);

/// Which connection is traced, and where to.
#[derive(Clone, Debug, Args)]
pub(crate) struct TraceArgs {
    /// Record a connection's segments, timers, losses and states; port 0 and an unspecified address (0.0.0.0)
    /// stand for any: the first connection that fits
    #[arg(long, value_name = "LOCAL-REMOTE", requires = "trace_to", value_parser = ends)]
    trace: Option<FourTuple>,
    /// File that the records are written to, a JSON object a line
    #[arg(long, value_name = "FILE", requires = "trace")]
    trace_to: Option<PathBuf>,
}

impl TraceArgs {
    /// Whether an engine with these addresses can have such a connection.
    ///
    /// # Errors
    /// It cannot.
    pub(crate) fn check(&self, addresses: &Addresses) -> Result<(), Error> {
        let Some(FourTuple { local, remote }) = self.trace else { return Ok(()) };
        let (local, remote) = (local.ip(), remote.ip());
        let any = [local, remote].iter().any(IpAddr::is_unspecified);
        let fault = if !local.is_unspecified() && !addresses.is_own(local) {
            format!("{local} is no --address of the engine")
        } else if !any && local.is_ipv4() != remote.is_ipv4() {
            format!("{local} and {remote} are not of one IP version")
        } else {
            return Ok(());
        };
        Err(Error::Usage(format!("--trace: {fault}; it is LOCAL-REMOTE, the engine's end first")))
    }

    /// Makes the file, and starts the thread that writes to it. Both are `None` if nothing is traced.
    pub(crate) fn start(&self) -> Result<(Option<Trace>, Option<Writing>), Error> {
        let (Some(path), Some(file)) = (self.trace, &self.trace_to) else {
            return Ok((None, None));
        };
        let created = File::create(file);
        let out = created.map_err(|cause| Error::Create { path: file.clone(), cause })?;
        let (sender, records) = sync_channel(QUEUED);
        let thread = std::thread::Builder::new()
            .name("wharf-trace".to_owned())
            .spawn(move || {
                // The file is open, and that is all it needs.
                let _ = sys::capability::keep_only(&[]);
                write(BufWriter::new(out), &records)
            })
            .map_err(Error::Io)?;
        let writing = Writing { thread, path: file.clone() };
        Ok((Some(Trace::new(path, sender)), Some(writing)))
    }
}

/// A trace that is being written.
#[derive(Debug)]
pub(crate) struct Writing {
    thread: JoinHandle<io::Result<()>>,
    path: PathBuf,
}

impl Writing {
    /// Waits until all is written, which is when the engine has ended.
    ///
    /// # Errors
    /// It could not be written, and then the rest is missing.
    pub(crate) fn finish(self) -> Result<(), Error> {
        let failed = || Err(io::Error::other("the thread that writes it panicked"));
        self.thread.join().unwrap_or_else(|_| failed()).map_err(|cause| {
            Error::Service(format!("cannot write the trace {}: {cause}", self.path.display()))
        })
    }
}

/// Writes until there is no engine any more.
fn write(mut out: impl Write, records: &Receiver<Record>) -> io::Result<()> {
    use std::sync::mpsc::RecvTimeoutError;
    let start = clock_offset();
    loop {
        match records.recv_timeout(FLUSH_AFTER) {
            Ok(record) => writeln!(out, "{}", line(&record, start))?,
            Err(RecvTimeoutError::Timeout) => out.flush()?,
            Err(RecvTimeoutError::Disconnected) => return out.flush(),
        }
    }
}

/// What is added to the engine's time for nanoseconds since 1970.
fn clock_offset() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX).saturating_sub(sys::clock::now())
}

/// A record as an object.
fn line(record: &Record, start: u64) -> Value {
    let FourTuple { local, remote } = record.path;
    let mut line = match &record.event {
        Event::Received(header) => {
            let mut line = segment(header);
            line.insert("event".to_owned(), "received".into());
            line
        }
        Event::Sent { header, retransmission } => {
            let mut line = segment(header);
            line.insert("event".to_owned(), "sent".into());
            line.insert("retransmission".to_owned(), (*retransmission).into());
            line
        }
        Event::Timer(timer) => object(json!({"event": "timer", "timer": timer_name(*timer)})),
        Event::Icmp(icmp) => object(match icmp {
            icmp::Error::TooBig { mtu } => json!({"event": "icmp", "icmp": "too_big", "mtu": mtu}),
            icmp::Error::Unreachable { hard } => {
                json!({"event": "icmp", "icmp": "unreachable", "hard": hard})
            }
        }),
        Event::Lost { bytes } => object(json!({"event": "lost", "bytes": bytes})),
        Event::Recovery { from, to } => object(
            json!({"event": "recovery", "from": recovery_name(*from), "to": recovery_name(*to)}),
        ),
        Event::State { from, to, end } => object(json!({
            "event": "state", "from": from.name(), "to": to.name(),
            "end": end.map(|end| end.to_string()),
        })),
    };
    line.insert("time".to_owned(), start.saturating_add(record.at).into());
    line.insert("local".to_owned(), local.to_string().into());
    line.insert("remote".to_owned(), remote.to_string().into());
    line.insert("dropped".to_owned(), record.dropped.into());
    line.insert("after".to_owned(), record.after.as_ref().map_or(Value::Null, after));
    Value::Object(line)
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}

/// A segment as its header has it. Options are there if the header has them.
fn segment(header: &Header) -> Map<String, Value> {
    let ack = header.flags.any(Flags::ACK).then_some(header.ack.0);
    let mut line = object(json!({
        "seq": header.seq.0, "ack": ack, "len": header.len, "flags": flags(header.flags),
        "window": header.window, "gso_size": header.gso_size,
    }));
    let options = &header.options;
    if let Some(mss) = options.mss {
        line.insert("mss".to_owned(), mss.into());
    }
    if let Some(shift) = options.window_scale {
        line.insert("window_scale".to_owned(), shift.into());
    }
    if options.sack_permitted {
        line.insert("sack_permitted".to_owned(), true.into());
    }
    if let Some(timestamps) = options.timestamps {
        line.insert("timestamps".to_owned(), json!([timestamps.value.0, timestamps.echo.0]));
    }
    if !options.sack.is_empty() {
        let blocks = options.sack.as_slice().iter();
        let blocks = blocks.map(|block| json!([block.start.0, block.end.0]));
        line.insert("sack".to_owned(), blocks.collect());
    }
    line
}

/// The names of RFC 9293 section 3.1, in the order of the header.
fn flags(flags: Flags) -> Vec<&'static str> {
    let all = [
        (Flags::CWR, "CWR"),
        (Flags::ECE, "ECE"),
        (Flags::URG, "URG"),
        (Flags::ACK, "ACK"),
        (Flags::PSH, "PSH"),
        (Flags::RST, "RST"),
        (Flags::SYN, "SYN"),
        (Flags::FIN, "FIN"),
    ];
    all.into_iter().filter(|(flag, _)| flags.any(*flag)).map(|(_, name)| name).collect()
}

fn timer_name(timer: Timer) -> &'static str {
    match timer {
        Timer::Retransmission => "retransmission",
        Timer::TailProbe => "tail_probe",
        Timer::Reordering => "reordering",
        Timer::Persist => "persist",
        Timer::DelayedAck => "delayed_ack",
        Timer::Keepalive => "keepalive",
        Timer::Linger => "linger",
    }
}

fn recovery_name(state: RecoveryState) -> &'static str {
    match state {
        RecoveryState::Open => "open",
        RecoveryState::Recovery => "recovery",
        RecoveryState::Loss => "loss",
        RecoveryState::Marked => "marked",
    }
}

/// The connection after what happened.
fn after(info: &Info) -> Value {
    let ssthresh = (info.snd_ssthresh != u32::MAX).then_some(info.snd_ssthresh);
    json!({
        "state": info.state.name(), "recovery": recovery_name(info.recovery),
        "cwnd": info.snd_cwnd, "ssthresh": ssthresh, "in_flight": info.in_flight,
        "unacked": info.unacked, "sacked": info.sacked, "lost": info.lost,
        "srtt": info.rtt, "rttvar": info.rttvar, "min_rtt": info.min_rtt, "rto": info.rto,
        "snd_wnd": info.snd_wnd, "rcv_wnd": info.rcv_wnd, "notsent": info.notsent,
        "snd_mss": info.snd_mss,
    })
}
