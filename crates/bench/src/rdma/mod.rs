//! `rdma`: verbs by `wharf rdma` beside the kernel's TCP sockets and libfabric's TCP, always over TCP on the loopback
//! interface: large writes, small ones, and small ones there and back.
//!
//! Each end has a device of its own, and is on a CPU of its own together with its device, as if they were two machines;
//! round trips are also measured with all of them on one CPU. Programs sleep where they wait.

mod testbed;

use std::path::PathBuf;
use std::time::Duration;

use crate::peers::Program;
use crate::throughput::median;
use crate::{Error, Figure, Report, peers};
use testbed::{Measured, Testbed};

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Case {
    /// RDMA writes of 64 KB, 16 at once, with CRC.
    Write,
    /// RDMA writes of 8 bytes, inline, posted in lists of 32 of which the last is signaled.
    Rate,
    /// 8 bytes there and back, by writes with immediate data.
    Latency,
}

impl Case {
    /// All, in the order in which they are run.
    pub const ALL: [Case; 3] = [Case::Write, Case::Rate, Case::Latency];

    /// Its name in figures and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Case::Write => "write",
            Case::Rate => "rate",
            Case::Latency => "latency",
        }
    }

    const fn bytes(self) -> u32 {
        match self {
            Case::Write => 65_536,
            Case::Rate | Case::Latency => 8,
        }
    }

    /// What counts.
    const fn metric(self) -> &'static str {
        match self {
            Case::Write => "throughput",
            Case::Rate => "writes_per_second",
            Case::Latency => "median_rtt",
        }
    }

    const fn cores(self) -> &'static [Cores] {
        match self {
            Case::Write | Case::Rate => &[Cores::Two],
            Case::Latency => &[Cores::One, Cores::Two],
        }
    }
}

/// Where the two ends run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cores {
    /// All on one CPU.
    One,
    /// Each on its own.
    Two,
}

impl Cores {
    const fn name(self) -> &'static str {
        match self {
            Cores::One => "one",
            Cores::Two => "two",
        }
    }

    /// The CPU of the client and that of the server.
    fn of(self, all: &[usize]) -> Option<[usize; 2]> {
        match (self, all) {
            (Cores::One, [one, ..]) => Some([*one, *one]),
            (Cores::Two, [one, two, ..]) => Some([*one, *two]),
            _ => None,
        }
    }
}

/// What memory is registered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Memory {
    /// The programs' own.
    Private,
    /// That of a memfd, which the device reads and writes as a file.
    File,
}

impl Memory {
    /// Both.
    pub const ALL: [Memory; 2] = [Memory::Private, Memory::File];

    /// Its name in figures and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Memory::Private => "private",
            Memory::File => "file",
        }
    }
}

/// What moves the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum System {
    /// A TCP socket that blocks.
    Kernel,
    /// Verbs, by `wharf rdma`.
    Wharf,
    /// libfabric's provider tcp.
    Libfabric,
}

impl System {
    /// All, in the order in which they take turns.
    const ALL: [System; 3] = [System::Kernel, System::Wharf, System::Libfabric];

    const fn name(self) -> &'static str {
        match self {
            System::Kernel => "kernel",
            System::Wharf => "wharf",
            System::Libfabric => "libfabric-tcp",
        }
    }

    /// What its program calls it.
    const fn transport(self) -> &'static str {
        match self {
            System::Kernel => "tcp",
            System::Wharf => "verbs",
            System::Libfabric => "fabric",
        }
    }
}

/// The parameters of the scenario.
#[derive(Clone, Debug)]
pub struct Options {
    /// What is measured.
    pub cases: Vec<Case>,
    /// What memory is registered.
    pub memory: Memory,
    /// How long each run is measured.
    pub duration: Duration,
    /// Runs of which the median counts.
    pub repetitions: usize,
    /// `libwharf_rdma.so`.
    pub library: PathBuf,
}

/// One value of one run.
#[derive(Clone, Copy, Debug)]
struct Reading {
    metric: &'static str,
    unit: &'static str,
    value: f64,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
struct Row {
    case: Case,
    cores: Cores,
    cpus: [usize; 2],
}

/// The runs of one system.
type Runs = Vec<Vec<Reading>>;

/// The programs that are measured.
#[derive(Debug)]
struct Programs {
    /// Of verbs, and of sockets.
    verbs: Program,
    /// Of libfabric, where it can be built.
    fabric: Option<Program>,
}

impl Programs {
    fn of(&self, system: System) -> Option<&Program> {
        match system {
            System::Kernel | System::Wharf => Some(&self.verbs),
            System::Libfabric => self.fabric.as_ref(),
        }
    }
}

/// Measures every case of `options`.
///
/// # Errors
/// What the kernel says; the program of verbs cannot be built, or fails.
pub fn rdma(options: &Options, report: &mut dyn Report) -> Result<(), Error> {
    if options.repetitions == 0 {
        return Err(Error::Usage("there is one repetition at least".to_owned()));
    }
    let verbs = peers::verbs().map_err(Error::Usage)?;
    let fabric = peers::fabric();
    let fabric = fabric.map_err(|why| report.notice(&format!("libfabric is left out: {why}"))).ok();
    let programs = Programs { verbs, fabric };
    report.notice("siw needs a kernel module: `cargo xtask siw` has it in a guest");
    let rows = rows(options, report)?;
    for (done, row) in rows.iter().enumerate() {
        row.measure(options, &programs, (done, rows.len()), report)?;
    }
    Ok(())
}

fn rows(options: &Options, report: &mut dyn Report) -> Result<Vec<Row>, Error> {
    let all = sys::affinity::cpus().map_err(crate::sink::io("look for CPUs"))?;
    let mut rows = Vec::new();
    for &case in &options.cases {
        for &cores in case.cores() {
            match cores.of(&all) {
                Some(cpus) => rows.push(Row { case, cores, cpus }),
                None => report.notice(&format!("{} is left out: it needs two CPUs", case.name())),
            }
        }
    }
    Ok(rows)
}

impl Row {
    fn title(&self) -> String {
        format!("{}, {} bytes, cores: {}", self.case.name(), self.case.bytes(), self.cores.name())
    }

    /// Runs the systems in turns.
    fn measure(
        &self,
        options: &Options,
        programs: &Programs,
        (done, all): (usize, usize),
        report: &mut dyn Report,
    ) -> Result<(), Error> {
        let mut runs = System::ALL.map(|_| Runs::new());
        for repetition in 0..options.repetitions {
            for (system, runs) in System::ALL.into_iter().zip(&mut runs) {
                let Some(program) = programs.of(system) else { continue };
                let step = done * options.repetitions + repetition;
                let what = format!("{}, {}", self.title(), system.name());
                report.progress(step, all * options.repetitions, &what);
                let measured = Testbed::new(self, system, options, program)?.measure()?;
                runs.push(self.readings(&measured));
            }
        }
        for (system, runs) in System::ALL.into_iter().zip(&runs) {
            self.report(system, runs, options.memory, report);
        }
        let [kernel, wharf, libfabric] = &runs;
        for (theirs, name) in [(kernel, "times_kernel"), (libfabric, "times_libfabric")] {
            let ratios = ratios(wharf, theirs, (self.case.metric(), name));
            self.report(System::Wharf, &ratios, options.memory, report);
        }
        Ok(())
    }

    fn readings(&self, measured: &Measured) -> Vec<Reading> {
        let Measured { bytes, messages, seconds, median, p99, cpu } = measured;
        let reading = |metric, unit, value| Reading { metric, unit, value };
        let of_case = |unit, value| reading(self.case.metric(), unit, value);
        let mut all = match self.case {
            Case::Write => vec![of_case("bit/s", bytes * 8.0 / seconds)],
            Case::Rate => vec![of_case("1/s", messages / seconds)],
            Case::Latency => vec![
                of_case("us", median / 1e3),
                reading("mean_rtt", "us", seconds / messages * 1e6),
                reading("p99_rtt", "us", p99 / 1e3),
            ],
        };
        // Nanoseconds a byte are seconds a gigabyte.
        all.extend(cpu.iter().map(|(of, cpu)| reading(of, "s/GB", cpu / bytes)));
        all
    }

    /// Reports the median of each metric.
    fn report(&self, system: System, runs: &Runs, memory: Memory, report: &mut dyn Report) {
        let Some(first) = runs.first() else { return };
        for Reading { metric, unit, .. } in first {
            let of = |run: &Vec<Reading>| run.iter().find(|r| r.metric == *metric).map(|r| r.value);
            let samples: Vec<f64> = runs.iter().filter_map(of).collect();
            report.figure(Figure {
                bench: "rdma",
                case: self.case.name().to_owned(),
                system: system.name().to_owned(),
                varied: vec![
                    ("bytes", self.case.bytes().into()),
                    ("cores", self.cores.name().into()),
                    ("memory", memory.name().into()),
                ],
                metric,
                unit,
                value: median(samples.iter().copied()),
                samples,
            });
        }
    }
}

/// A metric, as so many times what it is of another in the same repetition.
fn ratios(ours: &Runs, theirs: &Runs, (of, metric): (&str, &'static str)) -> Runs {
    let value = |run: &Vec<Reading>| run.iter().find(|r| r.metric == of).map(|r| r.value);
    let ratio = |(ours, theirs)| {
        let value = value(ours)? / value(theirs)?;
        Some(vec![Reading { metric, unit: "", value }])
    };
    ours.iter().zip(theirs).filter_map(ratio).collect()
}
