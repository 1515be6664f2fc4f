//! `cargo xtask siw`: wharf's RDMA device beside Linux siw, in a QEMU guest of Debian's packages.
//!
//! Both roles, both directions, revisions 1 and 2 of MPA, with CRCs and without; and siw's refusal of markers. The guest
//! is on a network of QEMU's own (slirp), so that this needs no root.

mod build;
mod guest;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::Failure;
use crate::cargo::cargo;
use crate::process::run as run_program;
use crate::tree::Tree;
use guest::{Forwarded, Guest, HOST, PORTS};

/// How long a program may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// siw loses what comes between its reply and the callbacks that it sets behind it (`siw_accept`), and then waits for
/// ever, most of all in a slow guest: what fails is tried again.
const TRIES: u32 = 10;
/// The same in the guest.
const IN_TIME: &str = "timeout -s KILL 20";
/// Until a server that was started listens.
const TO_LISTEN: Duration = Duration::from_secs(2);
const RPING: Forwarded = PORTS[0];
const PERFTEST: Forwarded = PORTS[1];

/// What wharf asks of peers.
#[derive(Clone, Copy, Debug)]
struct Terms {
    revision: u8,
    crc: bool,
}

impl Terms {
    const ALL: [Terms; 4] = [
        Terms { revision: 2, crc: true },
        Terms { revision: 2, crc: false },
        Terms { revision: 1, crc: true },
        Terms { revision: 1, crc: false },
    ];

    fn words(self) -> String {
        let crc = if self.crc { "with" } else { "without" };
        format!("MPA revision {}, {crc} CRC", self.revision)
    }
}

/// A program whose server is in the guest, or here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Client {
    Here,
    Guest,
}

/// A client's command line, for the server's host and port.
type ClientLine = Box<dyn Fn(&str, u16) -> String>;

/// A pair of command lines: of the server, and of the client for the server's host and port.
struct Pair {
    name: &'static str,
    server: String,
    client: ClientLine,
    port: Forwarded,
}

/// `cargo xtask siw`.
pub(crate) fn run(arguments: &[&str]) -> Result<(), Failure> {
    if let Some(other) = arguments.first() {
        return Err(Failure::Usage(format!("siw takes no `{other}`")));
    }
    if let Some(install) = build::lacks() {
        println!("left out: siw in a guest: {install}");
        return Ok(());
    }
    all().map_err(Failure::Failed)
}

fn all() -> Result<(), String> {
    let tree = Tree::of_this_build();
    run_program(cargo(&tree).args(["build", "--quiet", "-p", "wharf", "-p", "verbs"]))?;
    println!("building the guest");
    let image = build::image(&tree.path("target/siw"))?;
    let mut guest = Guest::boot(&image)?;
    let mut failed = 0;
    let mut judge = |what: String, outcome: Result<(), String>| match outcome {
        Ok(()) => println!("ok      {what}"),
        Err(why) => {
            failed += 1;
            println!("FAILED  {what}\n{why}");
        }
    };
    for terms in Terms::ALL {
        let device = Device::start(&tree, terms)?;
        for client in [Client::Here, Client::Guest] {
            let what = format!("rping, client {client:?}, {}", terms.words());
            judge(what, device.pair(&mut guest, &rping(), client));
        }
        // siw forgets the first bytes of a CRC that a segment ends within (siw_get_trailer): much data goes without.
        if terms.revision == 2 && !terms.crc {
            for pair in measured() {
                for client in [Client::Here, Client::Guest] {
                    let what = format!("{}, client {client:?}, {}", pair.name, terms.words());
                    judge(what, device.pair(&mut guest, &pair, client));
                }
            }
            let what = format!("qperf, client Guest, {}", terms.words());
            judge(what, device.pair(&mut guest, &qperf(), Client::Guest));
        }
    }
    let device = Device::start(&tree, Terms { revision: 2, crc: false })?;
    let other = "rdma link delete siw0; rmmod siw && insmod /modules/siw-other.ko && \
                 rdma link add siw0 type siw netdev eth0";
    match guest.run(other)? {
        (true, _) => {
            for client in [Client::Here, Client::Guest] {
                let what = format!("rping, client {client:?}, siw asks by revision 1 and for CRC");
                judge(what, device.pair(&mut guest, &rping(), client));
            }
        }
        (false, why) => judge("siw that asks by revision 1".to_owned(), Err(why)),
    }
    // The last, as siw has connections then that were not ended.
    judge("siw refuses markers, and takes what wharf asks for".to_owned(), markers(&mut guest));
    match failed {
        0 => Ok(()),
        failed => Err(format!("{failed} failed beside siw")),
    }
}

fn rping() -> Pair {
    Pair {
        name: "rping",
        server: format!("rping -s -a 0.0.0.0 -p {} -C 20 -V", RPING.guest),
        client: Box::new(|host, port| format!("rping -c -a {host} -p {port} -C 20 -V")),
        port: RPING,
    }
}

/// perftest's, with some size and number.
fn measured() -> [Pair; 3] {
    ["ib_write_bw", "ib_read_bw", "ib_send_bw"].map(|name| {
        let line = format!("{name} -R -F -s 16384 -n 200");
        let server = format!("{line} -p {}", PERFTEST.guest);
        let client = move |host: &str, port| format!("{line} -p {port} {host}");
        Pair { name, server, client: Box::new(client), port: PERFTEST }
    })
}

/// Its server lets the kernel choose a port, which QEMU does not forward: the guest is its client. siw has no queues as
/// large as its tests of bandwidth ask for.
fn qperf() -> Pair {
    Pair {
        name: "qperf",
        server: "qperf".to_owned(),
        client: Box::new(move |host, _| format!("qperf -t 2 -cm 1 {host} rc_lat")),
        port: RPING,
    }
}

/// wharf's device, for programs here.
struct Device {
    child: Child,
    wharf: String,
    address: String,
}

impl Device {
    fn start(tree: &Tree, terms: Terms) -> Result<Self, String> {
        let wharf = tree.path("target/debug/wharf").display().to_string();
        let address = format!("@wharf-siw-{}", std::process::id());
        let mut command = Command::new(&wharf);
        command.args(["rdma", "--address", &address]);
        command.args(["--mpa-revision", &terms.revision.to_string()]);
        if !terms.crc {
            command.arg("--no-crc");
        }
        command.stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("{wharf}: {error}"))?;
        let mut line = String::new();
        let stdout = child.stdout.take().ok_or("wharf has no output")?;
        BufReader::new(stdout).read_line(&mut line).map_err(|error| error.to_string())?;
        match line.is_empty() {
            true => Err("wharf rdma has not started".to_owned()),
            false => Ok(Device { child, wharf, address }),
        }
    }

    /// A program here that uses the device.
    fn program(&self, line: &str) -> Result<Child, String> {
        let mut command = Command::new(&self.wharf);
        command
            .args(["run", "--rdma", "--"])
            .args(line.split(' '))
            .env("WHARF_RDMA", &self.address);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().map_err(|error| format!("{line}: {error}"))
    }

    /// Runs both; they are right if the client succeeds.
    fn pair(&self, guest: &mut Guest, pair: &Pair, client: Client) -> Result<(), String> {
        let mut tried = self.attempt(guest, pair, client);
        for _ in 1..TRIES {
            if tried.is_ok() {
                break;
            }
            tried = self.attempt(guest, pair, client);
        }
        tried
    }

    fn attempt(&self, guest: &mut Guest, pair: &Pair, client: Client) -> Result<(), String> {
        if client == Client::Here {
            let server = format!("{IN_TIME} {} > /tmp/server 2>&1 &", pair.server);
            guest.run(&server)?;
            sleep(TO_LISTEN);
            let line = (pair.client)("127.0.0.1", pair.port.here);
            let ended = finish(self.program(&line)?);
            // One that serves on and on is ended.
            let server = pair.server.split(' ').next().unwrap_or_default();
            let (_, said) = guest.run(&format!("killall -9 {server}; sleep 1; cat /tmp/server"))?;
            return ended.map_err(|why| format!("{why}\nthe server: {said}"));
        }
        let server = self.program(&pair.server)?;
        sleep(TO_LISTEN);
        let line = (pair.client)(HOST, pair.port.guest);
        let ended = guest.run(&format!("{IN_TIME} {line}"));
        let said = end(server);
        match ended? {
            (true, _) => Ok(()),
            (false, why) => Err(format!("{why}\nthe server: {said}")),
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for a program, which is to succeed.
fn finish(mut program: Child) -> Result<(), String> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if let Some(status) = program.try_wait().map_err(|error| error.to_string())? {
            let said = end(program);
            return if status.success() { Ok(()) } else { Err(format!("{status}: {said}")) };
        }
        sleep(Duration::from_millis(20));
    }
    Err(format!("it does not end: {}", end(program)))
}

/// Ends a program; what it has said.
fn end(mut program: Child) -> String {
    let _ = program.kill();
    match program.wait_with_output() {
        Ok(output) => {
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
        }
        Err(error) => error.to_string(),
    }
}

/// Requests of MPA (RFC 5044 section 7.1) and what siw replies: flags and revision.
fn markers(guest: &mut Guest) -> Result<(), String> {
    const MARKERS: u8 = 0x80;
    const CRC: u8 = 0x40;
    const REJECT: u8 = 0x20;
    let server =
        format!("timeout 60 rping -s -P -a 0.0.0.0 -p {} > /tmp/server 2>&1 &", RPING.guest);
    guest.run(&server)?;
    sleep(TO_LISTEN);
    let mut wrong = Vec::new();
    for (flags, expected) in [(MARKERS, REJECT), (MARKERS | CRC, REJECT | CRC), (0, 0), (CRC, CRC)]
    {
        let reply = ask(flags);
        if reply.as_ref().ok() != Some(&(expected, 1)) {
            wrong.push(format!("{flags:#x}: {reply:?}, not {expected:#x}"));
        }
    }
    guest.run("killall -9 rping")?;
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

/// A request of revision 1 with these flags; flags and revision of the reply.
fn ask(flags: u8) -> Result<(u8, u8), String> {
    let text = |error: std::io::Error| error.to_string();
    let mut stream = TcpStream::connect(("127.0.0.1", RPING.here)).map_err(text)?;
    stream.set_read_timeout(Some(Duration::from_secs(15))).map_err(text)?;
    // The key, flags, revision, and no private data.
    let request = [&b"MPA ID Req Frame"[..], &[flags, 1, 0, 0]].concat();
    stream.write_all(&request).map_err(text)?;
    let mut reply = [0; 20];
    stream.read_exact(&mut reply).map_err(text)?;
    if &reply[..16] != b"MPA ID Rep Frame" {
        return Err(format!("it replies {reply:x?}"));
    }
    Ok((reply[16], reply[17]))
}
