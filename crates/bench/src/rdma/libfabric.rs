//! libfabric's TCP provider, by the ping-pong that comes with it. It polls where it waits.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{MEAN_RTT, Reading};
use crate::Error;
use crate::running::Running;

/// The program, of Debian's libfabric-bin.
pub(super) const FI_PINGPONG: &str = "fi_pingpong";

/// Round trips of a run. On one CPU each of them takes two slices of time.
const ROUND_TRIPS: u32 = 500;
/// How long the server may need to listen.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it is looked for.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Where its server listens.
const PORT: u16 = 47_592;

/// Whether it is not installed.
pub(super) fn is_missing() -> bool {
    Command::new(FI_PINGPONG).arg("-h").output().is_err()
}

fn command(bytes: u32) -> Command {
    let mut command = Command::new(FI_PINGPONG);
    command.args(["-p", "tcp", "-e", "msg", "-I", &ROUND_TRIPS.to_string()]);
    // A client that comes before the server listens says so.
    command.args(["-S", &bytes.to_string()]).stderr(Stdio::null());
    command
}

/// The mean of its round trips.
pub(super) fn round_trip(cpus: [usize; 2], bytes: u32) -> Result<Reading, Error> {
    let [client, server] = cpus;
    let mut serving = command(bytes);
    serving.args(["-B", &PORT.to_string()]);
    let _server = Running::start(serving, server)?;
    let begun = Instant::now();
    loop {
        let mut asking = command(bytes);
        asking.args(["-P", &PORT.to_string(), "127.0.0.1"]);
        let mut asking = Running::start(asking, client)?;
        if let Some(value) = table(&mut asking)? {
            return Ok(Reading { metric: MEAN_RTT, unit: "us", value });
        }
        // The server does not listen yet.
        if begun.elapsed() > PATIENCE {
            let why = format!("{FI_PINGPONG} has printed no figures");
            return Err(Error::Failed { system: "libfabric-tcp", why });
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Twice the microseconds of a transfer, from the line with the figures: `bytes #sent #ack total time MB/sec usec/xfer
/// Mxfers/sec`.
fn table(of: &mut Running) -> Result<Option<f64>, Error> {
    loop {
        let line = of.hear()?;
        if line.is_empty() {
            return Ok(None);
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [_, _, _, _, _, _, transfer, _] = words[..]
            && let Ok(transfer) = transfer.parse::<f64>()
        {
            return Ok(Some(2.0 * transfer));
        }
    }
}
