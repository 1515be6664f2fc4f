//! `wharf pcap`: captures of what wharf's wire carries, and the offloads over capture files.

mod capture;

use std::cell::Cell;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, BufReader, BufWriter, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use nic::capture::{CaptureError, Packet, Reader, Statistics, Writer};
use nic::config::{Choice, LroProfile};
use serde_json::{Map, Value, json};

use crate::args::Settings;
use crate::error::Error;
use crate::log::tell;
use crate::table::{Align, Table, thousands};
use crate::{print, settings};

use self::capture::CaptureArgs;

/// Capture what passes wharf's wire, or run the offloads over a capture file, in virtual time
///
/// Reads pcap and pcapng (Ethernet, RAW, LINUX_SLL and LINUX_SLL2) and writes pcap, or pcapng where interfaces have
/// different link types. The packets' own timestamps are the clock, so the same input always gives the same output.
#[derive(Debug, Args)]
#[command(after_help = "Example: what would LRO have made of this?\n  \
                        wharf pcap lro in.pcap out.pcap")]
pub(crate) struct PcapArgs {
    #[command(subcommand)]
    pub(crate) command: PcapCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PcapCommand {
    Capture(CaptureArgs),
    /// Join the TCP segments that LRO would join
    #[command(after_help = "Example: only what Linux GRO may merge:\n  \
                            wharf pcap lro in.pcap out.pcap --profile lossless")]
    Lro {
        #[command(flatten)]
        files: PcapFiles,
        /// Which segments may be joined; overrides the settings
        #[arg(long, value_name = "PROFILE", value_parser = profile())]
        profile: Option<String>,
        #[command(flatten)]
        settings: Settings,
    },
    /// Cut the TCP packets that are longer than the MTU
    #[command(after_help = "Example: a capture made on a host with TSO, as its wire saw it:\n  \
                            wharf pcap gso in.pcap out.pcap --mtu 1500")]
    Gso {
        #[command(flatten)]
        files: PcapFiles,
        /// Longest IP packet to write, in bytes
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(68..))]
        mtu: u16,
    },
    /// Join losslessly, cut again, and count the packets that came back bit for bit
    #[command(after_help = "Example:\n  wharf pcap roundtrip in.pcap out.pcap")]
    Roundtrip {
        #[command(flatten)]
        files: PcapFiles,
        #[command(flatten)]
        settings: Settings,
    },
}

#[derive(Clone, Debug, Args)]
pub(crate) struct PcapFiles {
    /// Capture to read; - is standard input. If it ends inside a packet, the packets before it are read
    #[arg(value_name = "IN")]
    pub(crate) input: PathBuf,
    /// Capture to write, another file than IN; it appears when it is complete. - is standard output;
    /// the summary then goes to standard error
    #[arg(value_name = "OUT")]
    pub(crate) output: PathBuf,
    /// One JSON object instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

fn profile() -> PossibleValuesParser {
    PossibleValuesParser::new(<LroProfile as Choice>::NAMES)
}

pub(crate) fn run(args: &PcapArgs) -> Result<(), Error> {
    match &args.command {
        PcapCommand::Capture(args) => capture::run(args),
        PcapCommand::Lro { files, profile, settings } => {
            let mut config = settings::load(settings)?;
            if let Some(profile) = profile {
                config.set("lro.profile", profile)?;
            }
            run_over(files, |input, output| nic::capture::lro(input, &config, output))
        }
        PcapCommand::Gso { files, mtu } => {
            run_over(files, |input, output| nic::capture::gso(input, *mtu, output))
        }
        PcapCommand::Roundtrip { files, settings } => {
            let config = settings::load(settings)?;
            run_over(files, |input, output| nic::capture::roundtrip(input, &config, output))
        }
    }
}

type Input<'a> = &'a mut dyn Iterator<Item = Result<Packet, CaptureError>>;
type Output = Writer<BufWriter<File>>;

/// Standard input, or output.
const STANDARD: &str = "-";

/// Runs `work` from one file to the other, which appears only if all goes well.
fn run_over(
    files: &PcapFiles,
    work: impl FnOnce(Input<'_>, &mut Output) -> Result<Statistics, CaptureError>,
) -> Result<(), Error> {
    let unreadable = |cause| Error::Input { path: files.input.clone(), cause };
    let file = open(&files.input).map_err(|cause| unreadable(cause.into()))?;
    let input = file.metadata().map_err(|cause| unreadable(cause.into()))?;
    let reader = Reader::new(BufReader::new(file)).map_err(unreadable)?;

    let path = &files.output;
    let to_stdout = path.as_os_str() == STANDARD;
    let unwritable = |cause| match cause {
        // A reader of a pipe that has enough is no failure.
        CaptureError::Io(cause) if to_stdout => Error::Stdout(cause),
        cause => Error::Output { path: path.clone(), cause },
    };
    let (target, file) = Target::create(path, &input)?;
    let mut writer = Writer::like(BufWriter::new(file), &reader).map_err(unwritable)?;
    let counts = reader.counts();

    // Which of the two files an error is of.
    let input_failed = Cell::new(false);
    let mut truncated = None;
    let mut packets = reader.map_while(|packet| match packet {
        // What was captured before is complete: a capture that was stopped, or is still written.
        Err(CaptureError::Truncated { packet: packet @ 1.. }) => {
            truncated = Some(packet);
            None
        }
        packet => {
            input_failed.set(packet.is_err());
            Some(packet)
        }
    });
    let mut statistics = work(&mut packets, &mut writer)
        .map_err(|cause| if input_failed.get() { unreadable(cause) } else { unwritable(cause) })?;
    writer.finish().map_err(unwritable)?;
    let counts = counts();
    if let Some([bytes_in, bytes_out]) = counts.bytes {
        (statistics.bytes_in, statistics.bytes_out) = (bytes_in, bytes_out);
    }
    statistics.counters.extend(counts.entries());
    target.commit().map_err(|cause| unwritable(cause.into()))?;
    if let Some(packet) = truncated {
        tell(&format!(
            "{}: {}; what comes before it was taken",
            files.input.display(),
            CaptureError::Truncated { packet }
        ));
    }
    let text = report(&statistics, truncated, files.json);
    match to_stdout {
        true => {
            // The capture is complete, whether or not anyone reads the summary.
            let _ = io::stderr().write_all(text.as_bytes());
            Ok(())
        }
        false => print(text),
    }
}

fn open(path: &Path) -> io::Result<File> {
    if path.as_os_str() == STANDARD {
        return Ok(File::from(io::stdin().as_fd().try_clone_to_owned()?));
    }
    File::open(path)
}

/// Where the output goes while it is not complete, if that is elsewhere.
struct Target {
    temporary: Option<PathBuf>,
    path: PathBuf,
}

impl Target {
    /// Where `path` is to be written, if that is not the file `input`, by whichever name: what is
    /// read would be gone.
    fn create(path: &Path, input: &Metadata) -> Result<(Target, File), Error> {
        let uncreated = |cause| Error::Create { path: path.to_owned(), cause };
        let refused = |words: &str| Err(Error::Usage(format!("{}: {words}", path.display())));
        let is_input = |output: &Metadata| {
            output.is_file() && (output.dev(), output.ino()) == (input.dev(), input.ino())
        };
        if path.as_os_str() == STANDARD {
            if io::stdout().is_terminal() {
                return refused(
                    "standard output is a terminal: redirect it to a file or a program",
                );
            }
            let file = io::stdout().as_fd().try_clone_to_owned().map(File::from);
            let file = file.map_err(uncreated)?;
            if is_input(&file.metadata().map_err(uncreated)?) {
                return refused("standard output is the capture that is read: choose another file");
            }
            return Ok((Target { temporary: None, path: path.to_owned() }, file));
        }
        if fs::metadata(path).is_ok_and(|output| is_input(&output)) {
            return refused("it is the capture that is read: choose another file for the output");
        }
        Target::beside(path).map_err(uncreated)
    }

    /// A file beside `path`, to be renamed in the end. What exists and is no regular file
    /// (`/dev/null`, a pipe) is written to as it is.
    fn beside(path: &Path) -> io::Result<(Target, File)> {
        // A symbolic link stays one; the file that it names is replaced.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        if fs::metadata(&path).is_ok_and(|metadata| !metadata.is_file()) {
            let file = OpenOptions::new().write(true).open(&path)?;
            return Ok((Target { temporary: None, path }, file));
        }
        let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?;
        let mut temporary = std::ffi::OsString::from(".");
        temporary.push(name);
        temporary.push(format!(".{}", std::process::id()));
        let temporary = path.with_file_name(temporary);
        let file = File::create_new(&temporary)?;
        Ok((Target { temporary: Some(temporary), path }, file))
    }

    fn commit(mut self) -> io::Result<()> {
        match &self.temporary {
            None => Ok(()),
            Some(temporary) => {
                fs::rename(temporary, &self.path)?;
                self.temporary = None;
                Ok(())
            }
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // The failure that led here is the one to tell.
            let _ = fs::remove_file(temporary);
        }
    }
}

/// What a round trip was made for.
fn verdict(statistics: &Statistics) -> String {
    let merged = thousands(statistics.counter("pcap", "restored"));
    let unjudged = statistics.counter("pcap", "cut_short");
    let missing = statistics.packets_in.saturating_sub(statistics.packets_out);
    let mut text = match (statistics.counter("pcap", "changed"), missing) {
        (0, 0) if unjudged > 0 && unjudged == statistics.packets_in => String::new(),
        (0, 0) => {
            let which = if unjudged > 0 { "Every other packet" } else { "Every packet" };
            format!("{which} came back bit for bit, {merged} of them out of aggregates.\n")
        }
        (changed, missing) => format!(
            "{merged} packets came back bit for bit out of aggregates, {} came back changed, {} not \
             at all.\n",
            thousands(changed),
            thousands(missing)
        ),
    };
    if unjudged > 0 {
        let unjudged = format!(
            "{} of {} packets could not be judged: the capture has only their beginning (snaplen).\n",
            thousands(unjudged),
            thousands(statistics.packets_in)
        );
        text.insert_str(0, &unjudged);
    }
    text
}

/// `truncated` is the packet that the capture ends in the middle of.
fn report(statistics: &Statistics, truncated: Option<u64>, as_json: bool) -> String {
    let totals = [
        ("packets_in", statistics.packets_in),
        ("bytes_in", statistics.bytes_in),
        ("packets_out", statistics.packets_out),
        ("bytes_out", statistics.bytes_out),
    ];
    let is_roundtrip = statistics.counters.iter().any(|counter| counter.name == "restored");
    if as_json {
        let mut object: Map<String, Value> =
            totals.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
        object.insert("truncated_in_packet".to_owned(), truncated.into());
        if is_roundtrip {
            let unjudged = statistics.counter("pcap", "cut_short");
            object.insert("packets_not_judged".to_owned(), unjudged.into());
        }
        let counters = nic::control::counters_json(statistics.counters.iter().copied());
        object.insert("counters".to_owned(), counters);
        return format!("{}\n", json!(object));
    }
    let mut table = Table::new(&[Align::Left, Align::Left, Align::Right]);
    for (name, value) in totals {
        table.row(["capture", name, &thousands(value)]);
    }
    for counter in statistics.counters.iter().filter(|counter| counter.value > 0) {
        table.row([counter.group, counter.name, &thousands(counter.value)]);
    }
    let mut text = table.to_string();
    if is_roundtrip {
        text.push_str(&verdict(statistics));
    }
    let discarded = statistics.counter("lro_discard", "tcp_checksum");
    if discarded > 0 {
        text.push_str(&format!(
            "{} packets were left out: their TCP checksum is wrong.\n",
            thousands(discarded)
        ));
    }
    text
}
