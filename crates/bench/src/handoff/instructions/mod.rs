//! Instructions a packet, and misses of caches, of the bypass layer and of the NIC's parts, as "TCP Offload through
//! Connection Handoff" has them (section 5.1: Figure 7 and Table 2): a program sends one segment's bytes a call over
//! connections that are all at the NIC.
//!
//! callgrind(1) counts them, in code outside the kernel alone. This program starts itself once more under it, with a NIC
//! within, and that starts its program under it as well; what comes before the time that is counted is taken out by
//! vgdb(1), which tells callgrind to begin anew and to write down what it has.

mod profile;

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use nic::config::Config;

use self::profile::Cost;
use super::packet::SEGMENT;
use super::packet::layers::{Layer, of_worker};
use super::program::Work;
use super::testbed::{Testbed, gone};
use super::{Case, Options, Place, Reading, Varied, report_runs};
use crate::load::streams::Direction;
use crate::{Error, Report};

/// How long is counted at least: programs are slow under callgrind, and connections slow to be in full swing.
const AT_LEAST: Duration = Duration::from_secs(4);
/// Bytes that all connections share with their program each way, and at least one of them.
const BUFFERS: usize = 16 << 20;
const LEAST_BUFFER: usize = 64 << 10;
/// The files that callgrind writes of the NIC's process and of the program's.
const NIC: &str = "nic";
const PROGRAM: &str = "program";
/// What callgrind adds to the name of the first profile that it is told to write.
const FIRST: &str = ".1";
/// What every worker runs, and no other thread: of the NIC's process, that alone is counted, with all that it calls.
const WORKER: &str = "--toggle-collect=nic::event_loop::run*";
/// The caches of the paper's host (section 2, Table 1) for both, so that misses are the same on all machines.
const CACHES: [&str; 4] =
    ["--cache-sim=yes", "--I1=65536,2,64", "--D1=65536,2,64", "--LL=262144,16,64"];

/// So many callers of a function are told beside it.
const CALLERS: &str = "--separate-callers=4";

/// Metrics of one part's instructions, misses of the first level's data and of the last level.
type Metrics = [&'static str; 3];
const BYPASS: Metrics = [
    "bypass_instructions_per_packet",
    "bypass_data_misses_per_packet",
    "bypass_last_level_misses_per_packet",
];
/// Its copy of the payload, by an instruction that copies all of it, which callgrind counts once for each byte.
const COPY: Metrics = [
    "bypass_copy_instructions_per_packet",
    "bypass_copy_data_misses_per_packet",
    "bypass_copy_last_level_misses_per_packet",
];
/// The source file of that.
const COPIES: &str = "wire/src/bytes.rs";
const WHOLE_NIC: Metrics = [
    "nic_instructions_per_packet",
    "nic_data_misses_per_packet",
    "nic_last_level_misses_per_packet",
];

const fn metrics(part: Layer) -> Metrics {
    match part {
        Layer::NicHandoff => [
            "nic_handoff_instructions_per_packet",
            "nic_handoff_data_misses_per_packet",
            "nic_handoff_last_level_misses_per_packet",
        ],
        Layer::NicTcp => [
            "nic_tcp_instructions_per_packet",
            "nic_tcp_data_misses_per_packet",
            "nic_tcp_last_level_misses_per_packet",
        ],
        Layer::NicIpEthernet => [
            "nic_ip_ethernet_instructions_per_packet",
            "nic_ip_ethernet_data_misses_per_packet",
            "nic_ip_ethernet_last_level_misses_per_packet",
        ],
        _ => [
            "nic_other_instructions_per_packet",
            "nic_other_data_misses_per_packet",
            "nic_other_last_level_misses_per_packet",
        ],
    }
}

pub(super) fn measure(options: &Options, report: &mut dyn Report) -> Result<(), Error> {
    let all = options.counted.len() * options.repetitions;
    let mut done = 0;
    for &connections in &options.counted {
        let mut runs = Vec::new();
        for _ in 0..options.repetitions {
            report.progress(done, all, &format!("{connections} connections under callgrind"));
            done += 1;
            let Some(run) = run(options, connections)? else {
                report.notice(
                    "instructions are left out: valgrind is not there (apt install valgrind)",
                );
                return Ok(());
            };
            runs.push(run);
        }
        let varied: Varied =
            vec![("where", Place::Nic.name().into()), ("connections", connections.into())];
        report_runs(Case::Instructions, &varied, &runs, report);
    }
    Ok(())
}

/// What packets take; `None` where valgrind is not there.
fn run(options: &Options, connections: usize) -> Result<Option<Vec<Reading>>, Error> {
    let folder = Folder::new().map_err(failed)?;
    let own = std::env::current_exe().map_err(failed)?;
    let mut wharf = callgrind(&folder.0, NIC);
    wharf.arg(WORKER).arg(own).args(["bench", "handoff", "--counted"]).arg(&folder.0);
    wharf.args(["--connections", &connections.to_string()]);
    wharf.args(["--seconds", &options.duration.as_secs_f64().to_string()]);
    for (key, value) in set(&options.config) {
        wharf.args(["--set", &format!("{key}={value}")]);
    }
    let output = match wharf.stdin(Stdio::null()).output() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(failed)?,
    };
    let packets = String::from_utf8_lossy(&output.stdout).trim().parse::<f64>();
    let (true, Ok(packets)) = (output.status.success(), packets) else {
        let told = String::from_utf8_lossy(&output.stderr);
        return Err(failed(told.lines().last().unwrap_or("it says nothing")));
    };
    let profile = |name: &str| fs::read_to_string(folder.file(name)).map_err(failed);
    let (program, nic) = (profile(PROGRAM)?, profile(NIC)?);
    let mut readings = of_bypass(&program, packets)?;
    readings.extend(of_parts(&nic, packets)?);
    Ok(Some(readings))
}

/// What a user has set.
fn set(config: &Config) -> impl Iterator<Item = (&'static str, String)> + '_ {
    let usual: Vec<String> = Config::default().entries().map(|(_, value)| value).collect();
    let changed = config.entries().zip(usual).filter(|((_, value), usual)| value != usual);
    changed.map(|((key, value), _)| (key.name, value))
}

/// valgrind, which is yet to be told what it is to run.
fn callgrind(folder: &Path, name: &str) -> Command {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["-q", "--tool=callgrind", "--compress-strings=no", "--compress-pos=no"]);
    let mut file = OsString::from("--callgrind-out-file=");
    file.push(folder.join(name));
    valgrind.args(CACHES).arg(CALLERS).arg(file);
    // It counts `rep movsb` once for each byte.
    valgrind.env("GLIBC_TUNABLES", "glibc.cpu.x86_rep_movsb_threshold=1000000000");
    valgrind
}

fn failed(why: impl ToString) -> Error {
    Error::Failed { system: "callgrind", why: why.to_string() }
}

/// What the program's calls pay for `libwharf.so`, and what its copy of the payload takes.
fn of_bypass(profile: &str, packets: f64) -> Result<Vec<Reading>, Error> {
    let lines = profile::read(profile).ok_or_else(|| failed("it wrote no profile"))?;
    let (mut own, mut copy) = (Cost::default(), Cost::default());
    for line in lines.iter().filter(|line| line.object.contains("libwharf")) {
        *(if line.source.ends_with(COPIES) { &mut copy } else { &mut own }) += line.cost;
    }
    let costs = [(BYPASS, own), (COPY, copy)];
    Ok(costs.into_iter().flat_map(|(metrics, cost)| readings(metrics, cost, packets)).collect())
}

/// What the NIC's worker does, in all and by part.
fn of_parts(profile: &str, packets: f64) -> Result<Vec<Reading>, Error> {
    let lines = profile::read(profile).ok_or_else(|| failed("it wrote no profile"))?;
    let of = |is_it: &dyn Fn(Layer) -> bool| {
        let mut cost = Cost::default();
        let its = lines.iter().filter(|line| is_it(of_worker(line.function.split('\'')).whole()));
        its.for_each(|line| cost += line.cost);
        cost
    };
    let parts = Layer::NIC.into_iter().map(|part| (metrics(part), of(&|layer| layer == part)));
    let all = [(WHOLE_NIC, of(&|_| true))].into_iter().chain(parts);
    Ok(all.flat_map(|(metrics, cost)| readings(metrics, cost, packets)).collect())
}

fn readings(metrics: Metrics, cost: Cost, packets: f64) -> impl Iterator<Item = Reading> {
    let counts = [cost.instructions, cost.data_misses, cost.last_level_misses];
    let each = move |(metric, count)| Reading::new(metric, "", count as f64 / packets);
    metrics.into_iter().zip(counts).map(each)
}

/// What runs under callgrind: the NIC, its clients and its program, for `folder`, into which profiles of both processes go.
/// Gives the packets that passed the wire meanwhile.
///
/// # Errors
/// Connections did not come to the NIC or stay there; vgdb(1) is not there, or does not reach callgrind.
pub fn count(options: &Options, folder: &Path) -> Result<u64, Error> {
    let connections = options.counted.first().copied().unwrap_or(1);
    let mut options = options.clone();
    // They are to be full before it begins: while they fill, a program sends more than the NIC does.
    let buffer = (BUFFERS / connections.next_power_of_two()).max(LEAST_BUFFER) as u32;
    options.config.handoff.buffer = options.config.handoff.buffer.min(buffer);
    let testbed = Testbed::with_room(&options, 1, (connections + connections / 8) as u32)?;
    testbed.without_offloads()?;
    let valgrind = callgrind(folder, PROGRAM);
    let work = (Work::Send, connections, SEGMENT);
    let mut program = testbed.program_by(valgrind, Place::Nic, "at_accept", work)?;
    let mut clients = testbed.clients(program.to, Direction::Send, connections)?;
    program.accepted()?;
    testbed.wait("handing off", || testbed.at_nic() >= connections)?;
    let duration = options.duration.max(AT_LEAST);
    sleep(duration);
    let processes = [program.id(), std::process::id()];
    // Packets before: while callgrind writes, the program stands still, and the NIC sends what it has of it.
    let tell = |command: &str| -> Result<u64, Error> {
        let packets = testbed.wire_packets();
        let both = processes.map(|process| vgdb(process, command));
        both.into_iter().try_for_each(|told| ended(told?))?;
        Ok(packets)
    };
    let before = tell("zero")?;
    sleep(duration);
    let packets = tell("dump")? - before;
    if let Some(error) = clients.error() {
        return Err(error);
    }
    if testbed.at_nic() < connections {
        return Err(testbed.stayed());
    }
    drop(clients);
    drop(program);
    testbed.stop()?;
    if packets == 0 { Err(gone()) } else { Ok(packets) }
}

/// Tells callgrind, in a process of its, to do something.
fn vgdb(process: u32, command: &str) -> Result<Child, Error> {
    let mut vgdb = Command::new("vgdb");
    vgdb.args([&format!("--pid={process}"), "--wait=10", command]).stdin(Stdio::null());
    let started = vgdb.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    started.map_err(|error| failed(format!("vgdb(1): {error}")))
}

/// Waits until it is done.
fn ended(vgdb: Child) -> Result<(), Error> {
    let output = vgdb.wait_with_output().map_err(failed)?;
    match output.status.success() {
        true => Ok(()),
        false => Err(failed(String::from_utf8_lossy(&output.stderr).trim())),
    }
}

/// Where profiles are, until this ends.
struct Folder(PathBuf);

impl Folder {
    fn new() -> io::Result<Folder> {
        let path =
            std::env::temp_dir().join(format!("wharf-bench-{}.callgrind", std::process::id()));
        fs::create_dir(&path)?;
        Ok(Folder(path))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}{FIRST}"))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // It lies in a directory for such files, should it stay.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(readings: &[Reading], metric: &str) -> f64 {
        readings.iter().find(|reading| reading.metric == metric).unwrap().value
    }

    #[test]
    fn the_bypass_layer_is_its_library_without_the_copy() {
        let text = "events: Ir D1mr D1mw DLmw\n\
                    ob=/wharf\nfl=main.rs\nfn=main\n1 1000\ncob=/libwharf.so\ncfn=write\ncalls=10 1\n1 700\n\
                    ob=/libwharf.so\nfl=calls.rs\nfn=write\n1 300 5 10 5\n\
                    fi=/build/crates/wire/src/bytes.rs\n7 400 0 250\nfe=calls.rs\n2 100\n\
                    ob=/libc.so.6\nfl=memcpy.S\nfn=memcpy\n1 400 0 250\n";
        let readings = of_bypass(text, 10.0).unwrap();
        let values = BYPASS.map(|metric| value(&readings, metric));
        assert_eq!(values, [40.0, 1.5, 0.5]);
        let values = COPY.map(|metric| value(&readings, metric));
        assert_eq!(values, [40.0, 25.0, 0.0]);
    }

    #[test]
    fn the_nics_parts_are_all_of_it_and_have_what_serves_them() {
        let text = "events: Ir\nob=/wharf\n\
                    fn=tcp::stack::Stack::input'nic::lane::engine::EngineLane<A>::turn\n1 50\n\
                    cfn=memcpy\ncalls=1 1\n1 20\n\
                    fn=<tcp::stack::Stack as A>::b\n1 10\nfn=handoff::mirror::commit\n1 5\n\
                    fn=core::hash::BuildHasher::hash_one'nic::lane::handoff::rings::Rings::room\n1 5\n\
                    fn=wire::headers::parse'tcp::stack::Stack::input\n1 8\n\
                    fn=memcpy'2'nic::worker::Worker<W,H>::publish_counters\n1 20\nfn=nic::event_loop::run\n1 2\n";
        let readings = of_parts(text, 2.0).unwrap();
        let parts = Layer::NIC.map(|part| value(&readings, metrics(part)[0]));
        assert_eq!(parts, [5.0, 30.0, 4.0, 11.0]);
        assert_eq!(value(&readings, WHOLE_NIC[0]), 50.0);
        assert!(of_parts("", 1.0).is_err());
    }

    #[test]
    fn what_is_set_is_passed_on_and_nothing_else() {
        let mut config = Config::default();
        assert_eq!(set(&config).count(), 0);
        config.set("lro.enable", "false").unwrap();
        assert_eq!(set(&config).collect::<Vec<_>>(), [("lro.enable", "false".to_owned())]);
    }
}
