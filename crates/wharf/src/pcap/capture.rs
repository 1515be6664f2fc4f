//! `wharf pcap capture`: what passes the wire of a wharf that runs.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use clap::Args;
use nic::capture::{CaptureError, Output as _, Resolution, Writer};
use nic::control::{Client, Feed, Record};
use serde_json::json;
use sys::poll::{Interest, PollSet, Signals};

use super::STANDARD;
use crate::error::Error;
use crate::print;
use crate::table::thousands;

/// Capture what passes the wire of a wharf that runs
///
/// tcpdump on the host interface does not see the packets of connections on the NIC. Frames are captured as they
/// arrive, and what leaves as it is handed to the wire: super-packets that are cut later are whole, with complete
/// checksums. Only root and the user that runs wharf may capture.
#[derive(Debug, Args)]
#[command(after_help = "Example: one connection, as wharf connections shows it:\n  \
                        wharf pcap capture out.pcap 192.0.2.1:443 198.51.100.7:50123\n\n\
                        Example: all that passes the wire, as it passes:\n  \
                        wharf pcap capture - | tcpdump -n -r -")]
pub(crate) struct CaptureArgs {
    /// Capture to write; - is standard output. The summary then goes to standard error
    #[arg(value_name = "OUT")]
    output: PathBuf,
    /// Only the connection of this end, and of REMOTE
    #[arg(requires = "remote")]
    local: Option<SocketAddr>,
    /// The peer's end
    remote: Option<SocketAddr>,
    /// End after so many packets
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// End after so many seconds
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// Bytes of each packet at most
    #[arg(long, value_name = "N", default_value_t = 262_144,
          value_parser = clap::value_parser!(u32).range(14..=262_144))]
    snaplen: u32,
    /// Which wharf, if several run here: its host interface
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// The summary as one JSON object
    #[arg(long)]
    json: bool,
}

/// Where a capture is written, which is flushed beside that.
#[derive(Clone)]
struct Out(Rc<RefCell<BufWriter<File>>>);

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.borrow_mut().flush()
    }
}

/// What was captured.
#[derive(Clone, Copy, Default)]
struct Seen {
    packets: u64,
    bytes: u64,
    dropped: u64,
}

/// How long wharf may take to say how much there was, once it is asked for the end.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) fn run(args: &CaptureArgs) -> Result<(), Error> {
    let signals = Signals::block().map_err(Error::Io)?;
    let client = Client::connect(args.host.as_deref())?;
    let host = client.host().to_owned();
    let to_stdout = args.output.as_os_str() == STANDARD;
    if to_stdout && io::stdout().is_terminal() {
        return Err(Error::Usage(
            "standard output is a terminal: redirect it to a file or a program".to_owned(),
        ));
    }
    let mut feed = client.capture(args.local.zip(args.remote), args.snaplen)?;
    let unwritable = |cause| match cause {
        // A reader of a pipe that has enough is no failure.
        CaptureError::Io(cause) if to_stdout => Error::Stdout(cause),
        cause => Error::Output { path: args.output.clone(), cause },
    };
    let file = create(&args.output)?;
    let mut out = Out(Rc::new(RefCell::new(BufWriter::new(file))));
    let writer = Writer::new(out.clone(), Resolution::Nanoseconds).map_err(unwritable)?;
    let mut writer = (writer, &mut out);
    let mut seen = Seen::default();
    let ended = write(args, (&mut feed, &signals), &mut writer, &mut seen, unwritable)?;
    let (writer, _) = writer;
    writer.finish().map_err(unwritable)?;
    let text = report(&seen, args.json);
    match to_stdout {
        // The capture is complete, whether or not anyone reads the summary.
        true => drop(io::stderr().write_all(text.as_bytes())),
        false => print(text)?,
    }
    match ended {
        true => Ok(()),
        false => Err(Error::Service(format!("the wharf of {host} has ended"))),
    }
}

/// The file, which nobody else may read: packets are secrets.
fn create(path: &Path) -> Result<File, Error> {
    let uncreated = |cause| Error::Create { path: path.to_owned(), cause };
    if path.as_os_str() == STANDARD {
        let file = io::stdout().as_fd().try_clone_to_owned().map(File::from);
        return file.map_err(uncreated);
    }
    let mut how = OpenOptions::new();
    how.write(true).create(true).truncate(true).mode(0o600).open(path).map_err(uncreated)
}

/// Writes what comes until it is enough. Returns whether that is why it ends.
fn write(
    args: &CaptureArgs,
    (feed, signals): (&mut Feed, &Signals),
    (writer, out): &mut (Writer<Out>, &mut Out),
    seen: &mut Seen,
    unwritable: impl Fn(CaptureError) -> Error,
) -> Result<bool, Error> {
    let until = args.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    // Until when wharf may say how much there was, once it was asked for the end.
    let mut ending = None;
    loop {
        while let Some(record) = feed.take().map_err(Error::Io)? {
            let (packet, dropped) = match record {
                Record::Packet(packet, dropped) => (packet, dropped),
                Record::Totals { dropped, .. } => {
                    seen.dropped = dropped;
                    return Ok(ending.is_some());
                }
            };
            seen.dropped = dropped;
            if args.count.is_none_or(|count| seen.packets < count) {
                seen.packets += 1;
                seen.bytes += packet.data.len() as u64;
                let len = packet.original_len;
                writer.write(packet.time, len, &packet.data).map_err(&unwritable)?;
            }
        }
        // Who reads it along sees each packet at once.
        out.flush().map_err(|cause| unwritable(cause.into()))?;
        let now = Instant::now();
        if ending.is_some_and(|ending| now >= ending) {
            return Ok(true);
        }
        let is_enough = args.count.is_some_and(|count| seen.packets >= count)
            || until.is_some_and(|until| now >= until);
        let (is_signalled, is_readable) = match is_enough && ending.is_none() {
            true => (true, false),
            false => wait(feed, signals, ending.or(until)).map_err(Error::Io)?,
        };
        if is_signalled && ending.is_none() {
            feed.end();
            ending = Some(now + PATIENCE);
        }
        if is_readable && !feed.receive().map_err(Error::Io)? {
            return Ok(ending.is_some());
        }
    }
}

/// Waits for a signal that ends this, or for more of the capture: which of both there is.
fn wait(feed: &Feed, signals: &Signals, until: Option<Instant>) -> io::Result<(bool, bool)> {
    let mut set = PollSet::new();
    let (first, second) =
        (set.add(signals.as_fd(), Interest::Read)?, set.add(feed.as_fd(), Interest::Read)?);
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    set.wait(left.map(|left| left.as_nanos() as u64))?;
    let mut is_signalled = false;
    while set.readable(first) && signals.read()?.is_some() {
        is_signalled = true;
    }
    Ok((is_signalled, set.readable(second)))
}

fn report(seen: &Seen, as_json: bool) -> String {
    let Seen { packets, bytes, dropped } = *seen;
    if as_json {
        let object = json!({"packets_out": packets, "bytes_out": bytes, "dropped": dropped});
        return format!("{object}\n");
    }
    let (packets, dropped) = (thousands(packets), thousands(dropped));
    format!(
        "{packets} packets captured, {dropped} dropped, as they came faster than they were written\n"
    )
}
