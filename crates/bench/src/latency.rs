//! `latency`: whether holding segments back to merge them costs an application time. One connection
//! over veth sends a message and waits for the answer, as long as the message, again and again.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use nic::Nic;
use nic::config::Config;

use crate::case::Case;
use crate::hosts::{Hosts, SERVER};
use crate::sink::{Listening, io};
use crate::throughput::median;
use crate::{Error, Figure, Report};

/// An answer that takes so long will not come.
const STALLED: Duration = Duration::from_secs(10);
/// The largest message.
const MOST: usize = 1 << 20;

/// What is measured.
#[derive(Clone, Debug)]
pub struct Options {
    /// Lengths of the messages, in bytes.
    pub bytes: Vec<usize>,
    /// Messages in each round.
    pub messages: usize,
    /// Rounds of each case. LRO is turned on and off between them, on the same connection, so that
    /// a machine that grows slower does so for both.
    pub rounds: usize,
    /// wharf's settings.
    pub config: Config,
}

/// Reports the median round trip for each length, with LRO on and off and without wharf.
///
/// # Errors
/// What the kernel says, or the NIC.
pub fn latency(options: &Options, report: &mut dyn Report) -> Result<(), Error> {
    if options.bytes.iter().any(|bytes| !(1..=MOST).contains(bytes)) {
        return Err(Error::Usage(format!("a message has 1 to {MOST} bytes")));
    }
    if options.messages == 0 || options.rounds == 0 {
        return Err(Error::Usage("there must be one round of one message at least".to_owned()));
    }
    let total = options.bytes.len() * options.rounds;
    for (number, &bytes) in options.bytes.iter().enumerate() {
        let hosts = Hosts::new()?;
        let bare = Hosts::new()?;
        bare.bare_kernel()?;
        let nic = hosts.wharf(options.config.clone())?;
        let mut through_wharf = Conversation::start(&hosts, bytes)?;
        let mut through_kernel = Conversation::start(&bare, bytes)?;
        let mut times = [const { Vec::new() }; Case::ALL.len()];
        for round in 0..options.rounds {
            report.progress(number * options.rounds + round, total, &format!("{bytes} bytes"));
            for (case, times) in Case::ALL.into_iter().zip(&mut times) {
                let conversation = match case {
                    Case::KernelGro => &mut through_kernel,
                    Case::On | Case::Off => {
                        set_lro(&nic, case == Case::On)?;
                        &mut through_wharf
                    }
                };
                conversation.round(options.messages, times)?;
            }
        }
        for (case, times) in Case::ALL.into_iter().zip(times) {
            report.figure(Figure {
                bench: "latency",
                case: case.name().to_owned(),
                system: case.system().to_owned(),
                varied: vec![("bytes", bytes.into())],
                metric: "median_rtt",
                unit: "us",
                value: median(times.into_iter()),
                samples: Vec::new(),
            });
        }
        drop(through_wharf);
        nic.stop().map_err(io("end wharf"))?;
    }
    Ok(())
}

fn set_lro(nic: &Nic, on: bool) -> Result<(), Error> {
    let value = if on { "true" } else { "false" };
    nic.set("lro.enable", value).map_err(|error| {
        let cause = io::Error::other(error.to_string());
        Error::Io { what: "turn LRO on or off", cause }
    })
}

/// A client, and a server that sends back what it receives until the client goes.
struct Conversation {
    stream: TcpStream,
    message: Vec<u8>,
    answer: Vec<u8>,
}

impl Conversation {
    fn start(hosts: &Hosts, bytes: usize) -> Result<Self, Error> {
        let listening = Listening::new(&hosts.server)?;
        let to = listening.at(SERVER);
        let stream = hosts.client.run(move || connect(to))?.map_err(io("connect"))?;
        let server = listening.accept(1)?;
        for (stream, _) in server {
            stream.set_nonblocking(false).map_err(io("answer"))?;
            stream.set_nodelay(true).map_err(io("answer"))?;
            std::thread::Builder::new()
                .name("echo".to_owned())
                .spawn(move || echo(stream, bytes))
                .map_err(io("start a thread"))?;
        }
        Ok(Conversation { stream, message: vec![0x55; bytes], answer: vec![0; bytes] })
    }

    /// Times so many round trips, in microseconds, after a tenth as many that are not timed.
    fn round(&mut self, messages: usize, times: &mut Vec<f64>) -> Result<(), Error> {
        for number in 0..messages + messages / 10 {
            let since = Instant::now();
            self.stream.write_all(&self.message).map_err(io("send a message"))?;
            self.stream.read_exact(&mut self.answer).map_err(io("wait for an answer"))?;
            if number >= messages / 10 {
                times.push(since.elapsed().as_secs_f64() * 1e6);
            }
        }
        Ok(())
    }
}

fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&to, STALLED)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(STALLED))?;
    stream.set_write_timeout(Some(STALLED))?;
    Ok(stream)
}

/// Ends when the client goes.
fn echo(mut stream: TcpStream, bytes: usize) {
    let mut buffer = vec![0; bytes];
    while stream.read_exact(&mut buffer).is_ok() && stream.write_all(&buffer).is_ok() {}
}
