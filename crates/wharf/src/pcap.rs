//! `wharf pcap`: the offloads over capture files.

use std::cell::Cell;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter};
use std::path::{Path, PathBuf};

use nic::capture::{self, CaptureError, Packet, Reader, Statistics, Writer};
use serde_json::{Map, Value, json};

use crate::cli::{PcapArgs, PcapCommand, PcapFiles};
use crate::error::Error;
use crate::table::{Align, Table, thousands};
use crate::{print, settings};

pub(crate) fn run(args: &PcapArgs) -> Result<(), Error> {
    match &args.command {
        PcapCommand::Lro { files, profile, settings } => {
            let mut config = settings::load(settings)?;
            if let Some(profile) = profile {
                config.set("lro.profile", profile)?;
            }
            run_over(files, |input, output| capture::lro(input, &config, output))
        }
        PcapCommand::Gso { files, mtu } => {
            run_over(files, |input, output| capture::gso(input, *mtu, output))
        }
        PcapCommand::Roundtrip { files, settings } => {
            let config = settings::load(settings)?;
            run_over(files, |input, output| capture::roundtrip(input, &config, output))
        }
    }
}

type Input<'a> = &'a mut dyn Iterator<Item = Result<Packet, CaptureError>>;
type Output = Writer<BufWriter<File>>;

/// Runs `work` from one file to the other, which appears only if all goes well.
fn run_over(
    files: &PcapFiles,
    work: impl FnOnce(Input<'_>, &mut Output) -> Result<Statistics, CaptureError>,
) -> Result<(), Error> {
    let path = &files.input;
    let unreadable = |cause| Error::Input { path: path.clone(), cause };
    let file = File::open(path).map_err(|cause| unreadable(cause.into()))?;
    let reader = Reader::new(BufReader::new(file)).map_err(unreadable)?;

    let path = &files.output;
    let unwritable = |cause| Error::Output { path: path.clone(), cause };
    let (target, file) =
        Target::create(path).map_err(|cause| Error::Create { path: path.clone(), cause })?;
    let mut writer = Writer::new(BufWriter::new(file), reader.resolution()).map_err(unwritable)?;

    // Which of the two files an error is of.
    let input_failed = Cell::new(false);
    let mut packets = reader.inspect(|packet| input_failed.set(packet.is_err()));
    let statistics = work(&mut packets, &mut writer)
        .map_err(|cause| if input_failed.get() { unreadable(cause) } else { unwritable(cause) })?;
    writer.finish().map_err(unwritable)?;
    target.commit().map_err(|cause| unwritable(cause.into()))?;
    print(report(&statistics, files.json))
}

/// Where the output goes while it is not complete, if that is elsewhere.
struct Target {
    temporary: Option<PathBuf>,
    path: PathBuf,
}

impl Target {
    /// A file beside `path`, to be renamed in the end. What exists and is no regular file
    /// (`/dev/null`, a pipe) is written to as it is.
    fn create(path: &Path) -> io::Result<(Target, File)> {
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
    let missing = statistics.packets_in.saturating_sub(statistics.packets_out);
    match (statistics.counter("pcap", "changed"), missing) {
        (0, 0) => {
            format!("Every packet came back bit for bit, {merged} of them out of aggregates.\n")
        }
        (changed, missing) => format!(
            "{merged} packets came back bit for bit out of aggregates, {} came back changed, {} not \
             at all.\n",
            thousands(changed),
            thousands(missing)
        ),
    }
}

fn report(statistics: &Statistics, as_json: bool) -> String {
    let totals = [
        ("packets_in", statistics.packets_in),
        ("bytes_in", statistics.bytes_in),
        ("packets_out", statistics.packets_out),
        ("bytes_out", statistics.bytes_out),
    ];
    if as_json {
        let mut object: Map<String, Value> =
            totals.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
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
    if statistics.counters.iter().any(|counter| counter.name == "restored") {
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
