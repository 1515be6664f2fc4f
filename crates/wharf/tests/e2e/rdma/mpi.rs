//! Open MPI by libfabric's verbs, between two hosts.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::iter::once;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use testkit::lab::{Ended, wait_until};

use super::{Pair, ordinary, with_libraries};
use crate::setup::Ip;

/// What libfabric is to take: with `cm` and `ofi` alone there is no other way between the processes.
const BY_VERBS: [&str; 6] = ["--mca", "pml", "cm", "--mca", "mtl_ofi_provider_include", PROVIDER];
const PROVIDER: &str = "verbs;ofi_rxm";
const BY_TCP: [&str; 6] = ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self"];

/// What is needed.
pub(super) const PROGRAMS: [&str; 2] = ["mpicc", "mpirun"];

/// How often as long as others a program of MPI may take.
const TIMES: usize = 5;

/// How mpirun starts Open MPI's daemon on the other host, as docs/reference/rdma.md says: what the daemon starts has verbs then.
/// Open MPI splits this at spaces, and has no quotes in it. So wharf is found by `PATH`, as its folder may have a space.
const LAUNCH_AGENT: &str = "wharf run --rdma -- orted";

/// What stands for ssh: it leaves what is to run on the other host in a file, as one line, and ends.
const AGENT: &str = "#!/bin/sh
shift
echo \"$*\" >\"$0.new\" && mv \"$0.new\" \"$0.line\"
";

/// The programs, in a folder that goes with the test.
struct Mpi<'a> {
    pair: &'a Pair,
    folder: PathBuf,
    /// That of either host, if each has one for all of its processes.
    cpus: Option<[usize; 2]>,
    /// One at a time: their processes spin, and all of a user's have their files in one folder of Open MPI's.
    _alone: MutexGuard<'static, ()>,
}

/// `PATH` of a host on which wharf is installed.
fn with_wharf() -> OsString {
    let wharf = Path::new(env!("CARGO_BIN_EXE_wharf")).parent().unwrap().to_owned();
    let others = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths(once(wharf).chain(std::env::split_paths(&others))).unwrap()
}

impl<'a> Mpi<'a> {
    /// Between these hosts.
    fn of(pair: &'a Pair) -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        static ALONE: Mutex<()> = Mutex::new(());
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let folder =
            std::env::temp_dir().join(format!("wharf-mpi-{}-{number}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        // Ordinary users run what is in it, and leave what is asked for.
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        fs::write(folder.join("agent"), AGENT).unwrap();
        fs::set_permissions(folder.join("agent"), fs::Permissions::from_mode(0o755)).unwrap();
        Mpi { pair, folder, cpus: None, _alone }
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).to_str().unwrap().to_owned()
    }

    /// So many processes of a program, half of them on either host, to their end. They are in the folder.
    fn run(&self, by: &[&str], count: usize, program: &[&str]) -> Ended {
        let line = self.folder.join("agent.line");
        let _ = fs::remove_file(&line);
        let host = |ip: std::net::IpAddr| format!("{ip}:{}", count / 2);
        let hosts = [Ip::V4.client(), Ip::V4.server()].map(host).join(",");
        let (agent, count) = (self.path("agent"), count.to_string());
        let common = [
            // It looks for programs of a terminal, and asks root whether it is.
            &["mpirun", "--allow-run-as-root", "--oversubscribe", "--leave-session-attached"][..],
            &["--mca", "plm_rsh_agent", &agent, "--mca", "plm_rsh_no_tree_spawn", "1"],
            &["--launch-agent", LAUNCH_AGENT],
            &["--mca", "mpi_yield_when_idle", "1", "--mca", "mtl", "ofi"],
            &["--host", &hosts, "-np", &count],
        ];
        // It would bind the first process of either host to the first CPU of both.
        let binding = self.cpus.map_or(&[][..], |_| &["--bind-to", "none"]);
        let words = [&common.concat()[..], binding, by, program].concat();
        let mut run = self.pair.run(&words);
        run.env("HOME", &self.folder).current_dir(&self.folder);
        let [here, there] = self.cpus.map_or([None; 2], |cpus| cpus.map(Some));
        let mut mpirun = self.pair.client.spawn(&mut on_cpu(run, here));
        let asked = wait_until(|| line.exists() || !mpirun.runs());
        assert!(asked && line.exists(), "{}", mpirun.wait());
        let line = fs::read_to_string(&line).unwrap();
        assert!(line.contains(LAUNCH_AGENT), "{line}");
        // As ssh has it done: by a shell of the same user.
        let mut shell = with_libraries(ordinary(&["sh", "-c", line.trim()]));
        shell.env("PATH", with_wharf()).env_remove("WHARF_RDMA");
        shell.env("HOME", &self.folder).current_dir(&self.folder);
        let other = self.pair.server.spawn(&mut on_cpu(shell, there));
        // Of some programs all is slow on a busy machine, as processes wait for each other by spinning.
        let _ = (1..TIMES).any(|_| wait_until(|| !mpirun.runs()));
        let ended = mpirun.wait();
        assert!(ended.status.success(), "{ended}\nat the other host: {}", other.errors());
        other.wait();
        ended
    }
}

/// The same with all that it starts on this CPU.
fn on_cpu(command: Command, cpu: Option<usize>) -> Command {
    let Some(cpu) = cpu else { return command };
    let mut pinned = Command::new("taskset");
    pinned.args(["-c", &cpu.to_string()]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => pinned.env(name, value),
            None => pinned.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        pinned.current_dir(folder);
    }
    pinned
}

impl Drop for Mpi<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn collectives_of_open_mpi_are_as_by_tcp() {
    let Some(pair) = Pair::new(&PROGRAMS) else { return };
    collectives(&pair, &[2, 4]);
}

fn lines_with(text: &str, part: &str) -> Vec<String> {
    text.lines().filter(|line| line.contains(part)).map(str::to_owned).collect()
}

/// The same digests by verbs and by TCP, of so many processes.
pub(super) fn collectives(pair: &Pair, counts: &[usize]) {
    let mpi = Mpi::of(pair);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/rdma/collectives.c");
    let mut mpicc = Command::new("mpicc");
    mpicc.args(["-Wall", "-Werror", "-O1", "-o"]).arg(mpi.path("collectives")).arg(source);
    let built = mpicc.output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let digests = |by: &[&str], count: usize| {
        let ended = mpi.run(by, count, &[&mpi.path("collectives")]);
        let mut digests = lines_with(&ended.stdout, "rank ");
        digests.sort();
        digests
    };
    for count in counts.iter().copied() {
        let (by_verbs, by_tcp) = (digests(&BY_VERBS, count), digests(&BY_TCP, count));
        assert_eq!(by_verbs.len(), count, "{by_verbs:?}");
        assert_eq!(by_verbs, by_tcp);
    }
}

/// It sends messages to and fro, of 5 bytes to 4 MB, and looks at each byte.
#[test]
fn netpipe_finds_every_byte_right() {
    let Some(pair) = Pair::new(&["mpirun", "NPopenmpi"]) else { return };
    netpipe(&pair);
}

/// The same by verbs and by TCP.
pub(super) fn netpipe(pair: &Pair) {
    let mpi = Mpi::of(pair);
    let sizes = |by: &[&str]| {
        let checks = ["NPopenmpi", "-i", "-n", "20", "-u", "4194305", "-o", "netpipe.out"];
        lines_with(&mpi.run(by, 2, &checks).stderr, " times -->")
    };
    let (by_verbs, by_tcp) = (sizes(&BY_VERBS), sizes(&BY_TCP));
    assert!(by_verbs.iter().all(|line| line.ends_with("Integrity check passed")), "{by_verbs:?}");
    assert!(by_verbs.last().is_some_and(|line| line.contains(" 4194305 bytes ")), "{by_verbs:?}");
    assert_eq!(by_verbs, by_tcp);
}

/// Half of the time of a round trip of messages of each size, in microseconds: of some trials the least, which is what NetPIPE
/// tells.
fn latencies(mpi: &Mpi<'_>, by: &[&str]) -> Vec<(u32, f64)> {
    let out = mpi.folder.join("latency.out");
    let _ = fs::remove_file(&out);
    // Of 8 bytes to 1 KB, without the sizes just above and below (-p); 1,000 round trips a trial.
    let sizes = ["-l", "8", "-u", "1024", "-p", "0", "-n", "1000"];
    let ended = mpi.run(by, 2, &[&["NPopenmpi", "-o", "latency.out"], &sizes[..]].concat());
    let told = fs::read_to_string(&out).unwrap_or_else(|error| panic!("{error}: {ended}"));
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        // The size, the bandwidth in Mb/s, and the time in seconds.
        let [size, _, time] = words[..] else { panic!("{line}: {ended}") };
        (size.parse::<u32>().unwrap(), time.parse::<f64>().unwrap() * 1e6)
    };
    told.lines().map(row).collect()
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// Tells how long small messages take by verbs and by Open MPI's own TCP, in turns. It does not depend on how long that is.
#[test]
#[ignore = "a measurement: WHARF_RDMA_LATENCY says how often"]
fn latency_of_small_messages() {
    let Ok(times) = std::env::var("WHARF_RDMA_LATENCY") else { return };
    let times: u32 = times.parse().expect("WHARF_RDMA_LATENCY is a number");
    let Some(pair) = Pair::new(&["mpirun", "NPopenmpi"]) else { return };
    let mut mpi = Mpi::of(&pair);
    // Each host has a CPU, as far as there are so many.
    if let [one, two, ..] = sys::affinity::cpus().unwrap()[..] {
        mpi.cpus = Some([one, two]);
    }
    let mut all: BTreeMap<u32, [Vec<f64>; 2]> = BTreeMap::new();
    for _ in 0..times {
        for (way, by) in [BY_VERBS, BY_TCP].iter().enumerate() {
            for (size, time) in latencies(&mpi, by) {
                all.entry(size).or_default()[way].push(time);
            }
        }
    }
    eprintln!("{:>8} {:>10} {:>10} {:>6}", "bytes", "verbs, us", "TCP, us", "ratio");
    for (size, ways) in all {
        let [verbs, tcp] = ways.map(median);
        eprintln!("{size:>8} {verbs:>10.2} {tcp:>10.2} {:>6.2}", verbs / tcp);
    }
}

/// What hpcc finds that does not depend on time: residuals, errors and sizes.
const FINDS: [&str; 18] = [
    "Success",
    "CommWorldProcs",
    "HPL_N",
    "HPL_RnormI",
    "HPL_Anorm1",
    "HPL_AnormI",
    "HPL_Xnorm1",
    "HPL_XnormI",
    "HPL_BnormI",
    "PTRANS_n",
    "PTRANS_residual",
    "MPIRandomAccess_N",
    "MPIRandomAccess_Errors",
    "MPIRandomAccess_LCG_N",
    "MPIRandomAccess_LCG_Errors",
    "FFT_N",
    "MPIFFT_N",
    "MPIFFT_maxErr",
];

#[test]
fn hpcc_passes_its_own_verification() {
    let Some(pair) = Pair::new(&["mpirun", "hpcc"]) else { return };
    hpcc(&pair);
}

/// Linpack, transposition, random updates, Fourier transforms and its measurements of latency and bandwidth, of a small problem:
/// it verifies its results.
pub(super) fn hpcc(pair: &Pair) {
    let mpi = Mpi::of(pair);
    fs::write(mpi.folder.join("hpccinf.txt"), include_str!("hpccinf.txt")).unwrap();
    let report = mpi.folder.join("hpccoutf.txt");
    let finds = |by: &[&str]| {
        let _ = fs::remove_file(&report);
        let ended = mpi.run(by, 2, &["hpcc"]);
        let told = fs::read_to_string(&report).unwrap_or_else(|error| panic!("{error}: {ended}"));
        let passed = ["(passed)", "PASSED", "1 tests completed and passed", "End of HPC Challenge"];
        assert!(passed.iter().all(|word| told.contains(word)), "{told}");
        let failed = [" FAILED", "(failed)", "ERROR", "Node(s) with error 1"];
        assert!(!failed.iter().any(|word| told.contains(word)), "{told}");
        let found = |name: &&str| {
            let line = told.lines().find(|line| line.split('=').next() == Some(*name));
            line.unwrap_or_else(|| panic!("{name}: {told}")).to_owned()
        };
        FINDS.iter().map(found).collect::<Vec<_>>()
    };
    let by_verbs = finds(&BY_VERBS);
    let right = ["Success=1", "MPIRandomAccess_Errors=0", "MPIRandomAccess_LCG_Errors=0"];
    assert!(right.iter().all(|line| by_verbs.iter().any(|found| found == line)), "{by_verbs:?}");
    assert_eq!(by_verbs, finds(&BY_TCP));
}
