//! Which layers the host's threads and the NIC's were in, by perf(1), which looks some thousand times a second.

use std::collections::BTreeMap;
use std::io::{self, BufRead};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use super::layers::{Function, Layer, Whose, layer};

/// Looks a second.
const FREQUENCY: &str = "4000";
/// How long to look at least, so that a layer of one per cent is seen.
const AT_LEAST: Duration = Duration::from_secs(1);

/// Where samples were: how many of each layer, and of all that were those threads'.
pub(in crate::handoff) type Counts = BTreeMap<Layer, u64>;

/// Looks at the threads of programs and at a worker for a time, or somewhat longer.
///
/// # Errors
/// Why there are no samples, in words.
pub(super) fn look(programs: &[u32], worker: u32, duration: Duration) -> Result<Counts, String> {
    let file = std::env::temp_dir().join(format!("wharf-bench-{}.perf", std::process::id()));
    let whose = |thread| match thread {
        id if programs.contains(&id) => Some(Whose::Program),
        id if id == worker => Some(Whose::Worker),
        _ => None,
    };
    let threads: Vec<u32> = programs.iter().copied().chain([worker]).collect();
    let seen = record(&file, &threads, duration.max(AT_LEAST)).and_then(|()| read(&file, whose));
    // It lies in a directory for such files, should it stay.
    let _ = std::fs::remove_file(&file);
    let Seen { counts, kernel } = seen?;
    match (counts.is_empty(), kernel) {
        (true, _) => Err("perf(1) saw neither the program nor wharf's worker".to_owned()),
        (false, false) => {
            Err("perf(1) may not look into the kernel: run it as root, or set the sysctls \
                               kernel.perf_event_paranoid=1 and kernel.kptr_restrict=0"
                .to_owned())
        }
        (false, true) => Ok(counts),
    }
}

/// Has perf write down what it sees until a program of its own, which sleeps, has ended: it starts that once it looks.
fn record(file: &Path, threads: &[u32], duration: Duration) -> Result<(), String> {
    let threads = threads.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let mut perf = Command::new("perf");
    perf.args(["record", "-q", "-e", "cpu-clock", "-F", FREQUENCY, "-g", "-t", &threads, "-o"]);
    perf.arg(file).args(["--", "sleep", &duration.as_secs_f64().to_string()]);
    ended(perf.stdin(Stdio::null()).output())
}

/// Why perf did not do it, if that is so: the first that it says.
fn ended(output: io::Result<Output>) -> Result<(), String> {
    let output = output.map_err(not_started)?;
    if output.status.success() {
        return Ok(());
    }
    let told = String::from_utf8_lossy(&output.stderr);
    // Its errors have a heading.
    let mut lines = told.lines().map(str::trim).filter(|line| !matches!(*line, "" | "Error:"));
    Err(format!("perf(1) does not look: {}", lines.next().unwrap_or("it says nothing")))
}

fn not_started(error: io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "perf(1) is not there".to_owned(),
        _ => format!("perf(1) does not start: {error}"),
    }
}

fn read(file: &Path, whose: impl Fn(u32) -> Option<Whose>) -> Result<Seen, String> {
    let mut script = Command::new("perf")
        .args(["script", "--no-inline", "-F", "tid,ip,sym,dso", "-i"])
        .arg(file)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(not_started)?;
    let out = script.stdout.take().ok_or("perf(1) says nothing")?;
    let seen = count(io::BufReader::new(out).lines().map_while(Result::ok), whose);
    let status = script.wait().map_err(|error| format!("perf(1): {error}"))?;
    match status.success() {
        true => Ok(seen),
        false => Err(format!("perf(1) cannot read what it wrote: {status}")),
    }
}

/// What samples have.
#[derive(PartialEq, Eq, Debug, Default)]
struct Seen {
    counts: Counts,
    /// A function of the kernel, by its name.
    kernel: bool,
}

/// Counts the samples that `perf script` has printed: a line with the thread, one for each function of the chain, the
/// innermost first, and an empty one.
fn count(lines: impl Iterator<Item = String>, whose: impl Fn(u32) -> Option<Whose>) -> Seen {
    let mut seen = Seen::default();
    let mut thread = None;
    let mut chain: Vec<String> = Vec::new();
    for line in lines.chain([String::new()]) {
        if !line.trim().is_empty() {
            match thread {
                None => thread = line.trim().parse().ok(),
                Some(_) => chain.push(line),
            }
            continue;
        }
        let functions: Vec<Function<'_>> = chain.iter().filter_map(|line| function(line)).collect();
        seen.kernel |= functions.iter().any(Function::is_kernel);
        let found = thread.and_then(&whose).and_then(|whose| layer(whose, &functions));
        found.into_iter().for_each(|layer| *seen.counts.entry(layer).or_default() += 1);
        thread = None;
        chain.clear();
    }
    seen
}

/// A line `ADDRESS NAME (FILE)`; the name may have blanks.
fn function(line: &str) -> Option<Function<'_>> {
    let (_, rest) = line.trim().split_once(' ')?;
    let (name, file) = rest.rsplit_once(" (")?;
    Some(Function { name, file: file.trim_end_matches(')') })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_counted_by_thread_and_layer() {
        let text = "   7 \n\tffffffff810 tcp_ack ([kernel.kallsyms])\n\tffffffff820 ksys_write ([kernel.kallsyms])\n\n\
                    \x20 9 \n\t00000000 <tcp::Stack as Some<A>>::input (/usr/bin/wharf)\n\n\
                    \x20 8 \n\tffffffff810 tcp_ack ([kernel.kallsyms])\n\n";
        let whose = |thread| match thread {
            7 => Some(Whose::Program),
            9 => Some(Whose::Worker),
            _ => None,
        };
        let seen = count(text.lines().map(str::to_owned), whose);
        assert_eq!(seen.counts, Counts::from([(Layer::Tcp, 1), (Layer::NicTcp, 1)]));
        assert!(seen.kernel);
    }

    #[test]
    fn a_perf_that_may_not_look_into_the_kernel_is_told_from_one_that_does() {
        let text = "   7 \n\t00007f810 write (/usr/lib/libc.so.6)\n\n\
                    \x20 7 \n\tffffffff810 [unknown] ([unknown])\n\n";
        let seen = count(text.lines().map(str::to_owned), |_| Some(Whose::Program));
        assert_eq!(seen.counts, Counts::from([(Layer::Application, 2)]));
        assert!(!seen.kernel);
        assert_eq!(count(std::iter::empty(), |_| None), Seen::default());
    }

    #[test]
    fn what_keeps_perf_from_looking_is_told_in_its_own_words() {
        let told = |script: &str| ended(Command::new("sh").args(["-c", script]).output());
        assert_eq!(told("true"), Ok(()));
        assert_eq!(
            told("printf 'Error:\nNo permission.\nMore.\n' >&2; exit 255").unwrap_err(),
            "perf(1) does not look: No permission."
        );
        assert_eq!(told("exit 1").unwrap_err(), "perf(1) does not look: it says nothing");
        let absent = ended(Command::new("/nonexistent/perf").output());
        assert_eq!(absent.unwrap_err(), "perf(1) is not there");
    }
}
