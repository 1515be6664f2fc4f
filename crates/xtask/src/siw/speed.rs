//! What siw does beside itself, in the guest, over its loopback interface: a figure without a target, as its CPU is emulated.

use std::time::Duration;

use super::guest::Guest;
use super::network::GUEST;
use super::sockets;
use super::wait::{TO_LISTEN, becomes};

const PORT: u16 = 18_520;
const PATIENCE: Duration = Duration::from_secs(60);

/// What perftest measures between two processes of the guest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Speed {
    pub(super) words: &'static str,
    /// The column of perftest's table, and its unit.
    column: usize,
    unit: &'static str,
}

pub(super) const ALL: [Speed; 2] = [
    Speed { words: "ib_write_bw -s 65536 -n 1000", column: 3, unit: "MB/s on average" },
    Speed { words: "ib_read_lat -s 8 -n 1000", column: 4, unit: "us as a rule" },
];

impl Speed {
    /// Runs both; the figure.
    pub(super) fn measure(&self, guest: &mut Guest) -> Result<String, String> {
        let (program, words) = self.words.split_once(' ').unwrap_or((self.words, ""));
        let line = format!("{program} -R -F -p {PORT} {words}");
        guest.start("server", &line)?;
        let listens = becomes(TO_LISTEN, || Ok(sockets::listen(&guest.sockets()?, PORT)))?;
        let said = match listens {
            true => self.call(guest, &format!("{line} {GUEST}")),
            false => Err("the server does not listen".to_owned()),
        };
        guest.end("server")?;
        let said = said?;
        let figure = self.figure(&said).ok_or_else(|| format!("no figure in: {said}"))?;
        Ok(format!("{figure} {}", self.unit))
    }

    fn call(&self, guest: &mut Guest, line: &str) -> Result<String, String> {
        guest.start("client", line)?;
        let mut ended = None;
        becomes(PATIENCE, || {
            ended = guest.ended("client")?;
            Ok(ended.is_some())
        })?;
        let said = guest.said("client")?;
        guest.end("client")?;
        if ended == Some(true) { Ok(said) } else { Err(format!("the client fails: {said}")) }
    }

    /// The figure in the line below the heads of the columns.
    fn figure<'a>(&self, said: &'a str) -> Option<&'a str> {
        let mut lines = said.lines().skip_while(|line| !line.trim_start().starts_with("#bytes"));
        lines.nth(1)?.split_whitespace().nth(self.column)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figure_of_perftest_is_found() {
        let said = " Data ex. method : rdma_cm\n #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   \
                    MsgRate[Mpps]\n 65536      1000             81.23              80.92              0.001295\n---\n";
        assert_eq!(ALL[0].figure(said), Some("80.92"));
        assert_eq!(ALL[0].figure("#bytes"), None);
    }
}
