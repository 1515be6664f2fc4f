//! redis, which a client asks one GET after the other.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{Case, Options, Reading, Readings, Row, System, Testbed};
use crate::Error;
use crate::hosts::SERVER;
use crate::sink::io;

/// The server and the client's program.
const PROGRAMS: [&str; 2] = ["redis-server", "redis-benchmark"];
/// Requests in a second of the time that a run has: fewer than redis answers.
const REQUESTS_PER_SECOND: f64 = 10_000.0;
/// How long the server may take to listen.
const PATIENCE: Duration = Duration::from_secs(10);

/// A program that is not installed.
pub(super) fn missing() -> Option<&'static str> {
    PROGRAMS.into_iter().find(|program| {
        let mut command = Command::new(program);
        command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_err()
    })
}

pub(super) fn row(options: &Options) -> Row<'_> {
    let varied = vec![("clients", 1.into())];
    Row::new(Case::Redis, varied, move |system| run(options, system))
}

fn run(options: &Options, system: System) -> Readings {
    let testbed = Testbed::new(system, options)?;
    let (server, port) = testbed.hosts.server.run(Server::start)??;
    let to = SocketAddr::from((SERVER, port));
    testbed.hosts.client.run(|| wait_for(to))?.map_err(io("wait for redis"))?;
    let requests = (options.duration.as_secs_f64() * REQUESTS_PER_SECOND).ceil().max(1.0);
    let answer = testbed.hosts.client.run(|| ask(port, requests as u64))??;
    drop(server);
    testbed.stop()?;
    Ok(vec![Reading::new("requests_per_second", "1/s", answer)])
}

/// A server, until it is dropped.
struct Server(Child);

impl Server {
    fn start() -> Result<(Server, u16), Error> {
        // A port that is free now; only this server is here to use it.
        let free = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(io("find a port"))?;
        let port = free.local_addr().map_err(io("find a port"))?.port();
        drop(free);
        let mut command = Command::new(PROGRAMS[0]);
        command.args(["--save", "", "--appendonly", "no", "--protected-mode", "no", "--port"]);
        command.arg(port.to_string()).current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok((Server(command.spawn().map_err(io("start redis-server"))?), port))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn wait_for(server: SocketAddr) -> io::Result<()> {
    let since = Instant::now();
    loop {
        match TcpStream::connect_timeout(&server, PATIENCE) {
            Ok(_) => return Ok(()),
            Err(error) if since.elapsed() > PATIENCE => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// GETs a second, as redis-benchmark counts them.
fn ask(port: u16, requests: u64) -> Result<f64, Error> {
    let mut command = Command::new(PROGRAMS[1]);
    command.args(["-h", &SERVER.to_string(), "-p", &port.to_string()]);
    command.args(["-c", "1", "-n", &requests.to_string(), "-t", "get", "--csv"]);
    let ended = command.stdin(Stdio::null()).output().map_err(io("run redis-benchmark"))?;
    let text = String::from_utf8_lossy(&ended.stdout);
    per_second(&text).ok_or_else(|| {
        let said = String::from_utf8_lossy(&ended.stderr);
        let why =
            format!("redis-benchmark ended ({}) without a figure: {}", ended.status, said.trim());
        Error::Failed { system: "redis", why }
    })
}

/// The second field of the line of GET: `"GET","24509.80",...`.
fn per_second(csv: &str) -> Option<f64> {
    let line = csv.lines().find(|line| line.starts_with("\"GET\""))?;
    line.split(',').nth(1)?.trim_matches('"').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_read_from_what_redis_benchmark_prints() {
        let csv = "\"test\",\"rps\",\"avg_latency_ms\"\n\"GET\",\"24509.80\",\"0.038\"\n";
        assert_eq!(per_second(csv), Some(24_509.8));
        assert_eq!(per_second("Could not connect"), None);
    }
}
