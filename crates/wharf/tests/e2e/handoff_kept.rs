//! wharf as a service: a service manager keeps its connections when it is killed with its guard, and the next wharf puts
//! them back.

use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use sys::process::Signal;
use testkit::lab::{Program, have, wait_until};

use crate::ends::{guards, kill_with_guard};
use crate::handoff::{EVENTS, TELLS, THREADS, bytes, connect, echoes, ends, serve};
use crate::setup::{HOST, Hosts, Ip, Plan, Port, WIRE, give, wharf};

/// Of a service manager (systemd.service(5)) what concerns descriptors: it keeps what it is given (`FDSTORE=1`,
/// `FDSTOREREMOVE=1`), writes their names to a file, and starts the service with them when it is told to by SIGHUP. By
/// SIGTERM it ends it.
pub(crate) const MANAGER: &str = "
import array, ctypes, os, signal, socket, sys
file, words = sys.argv[1], sys.argv[2:]
name = 'wharf-manager-%d' % os.getpid()
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind('\\0' + name)
kept, times = {}, 0
def show():
    # What was told has two names in turn: which of how many it is, too.
    names = (name + '.%d' % times if name[0] == 't' else name for name in sorted(kept))
    with open(file + '.new', 'w') as f: f.write(' '.join(names))
    os.rename(file + '.new', file)
def start():
    pid = os.fork()
    if pid: return pid
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
    passed = [(name, fd) for name in kept for fd in kept[name]]
    high = [__import__('fcntl').fcntl(fd, 0, 10000) for _, fd in passed]
    for at, fd in enumerate(high): os.dup2(fd, 3 + at)
    os.closerange(3 + len(high), 20000)
    env = dict(os.environ, NOTIFY_SOCKET='@' + name, LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(high)),
               LISTEN_FDNAMES=':'.join(name for name, _ in passed))
    os.execve(words[0], words, env)
signals = {signal.SIGHUP, signal.SIGTERM, signal.SIGCHLD}
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
show()
pid = start()
print('started', pid, flush=True)
s.settimeout(0.01)
while True:
    try:
        data, given, _, _ = socket.recv_fds(s, 4096, 16)
        lines = dict(line.split('=', 1) for line in data.decode().splitlines())
        if 'READY' in lines: print('ready', flush=True)
        if 'FDSTORE' in lines:
            assert lines['FDPOLL'] == '0'
            kept.setdefault(lines['FDNAME'], []).extend(given)
            times += lines['FDNAME'][0] == 't'
        if 'FDSTOREREMOVE' in lines:
            for fd in kept.pop(lines['FDNAME'], []): os.close(fd)
        show()
    except TimeoutError: pass
    told = signal.sigtimedwait(signals, 0)
    if told and told.si_signo == signal.SIGTERM:
        os.kill(pid, signal.SIGINT)
    elif told and told.si_signo == signal.SIGHUP:
        pid = start()
        print('started', pid, flush=True)
    elif told and told.si_signo == signal.SIGCHLD:
        for ended in iter(lambda: os.waitpid(-1, os.WNOHANG) if pid else (0, 0), (0, 0)):
            print('ended', ended[1], flush=True)
            pid = 0
";

struct Service {
    manager: Program,
    wharf: u32,
    names: PathBuf,
    hosts: Hosts,
}

impl Service {
    /// wharf in front of a server, as somebody's service.
    fn start() -> Option<Service> {
        if !have(&["python3", "ip"]) {
            return None;
        }
        let hosts = Plan::new(Port::Auto).hosts()?;
        give(&hosts.server, WIRE, &Ip::BOTH, Ip::server);
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let names = format!("wharf-kept-{}-{number}", std::process::id());
        let names = std::env::temp_dir().join(names);
        let mut manager = Command::new("python3");
        manager.args(["-u", "-c", MANAGER]).arg(&names).arg(wharf().get_program());
        manager.args(["up", "--wire", WIRE, "--host", HOST, "--take-addresses"]);
        let mut manager = hosts.server.spawn(manager.args(["--set", "workers=1"]));
        let wharf = pid(&manager.line_with("started "));
        manager.line_with("ready");
        Some(Service { manager, wharf, names, hosts })
    }

    /// Starts another wharf, which says that it is up.
    fn start_again(&mut self) {
        self.manager.signal(Signal::HangUp);
        self.wharf = pid(&self.manager.line_with("started "));
        self.manager.line_with("ready");
    }

    /// Has all connections go to the NIC, by these streams as well, whose connections are there then.
    fn to_nic(&self, streams: &[TcpStream]) {
        let on_nic = wait_until(|| {
            let ended = self.hosts.wharf(&["handoff", "--to", "nic", "--all"]);
            assert!(ended.status.success(), "{ended}");
            streams.iter().for_each(|stream| echoes(stream, &bytes(10_000, 1)));
            let listed = self.hosts.wharf(&["connections", "--where", "nic"]);
            listed.stdout.lines().count() == 1 + streams.len()
        });
        assert!(on_nic, "{}", self.hosts.wharf(&["connections"]));
    }

    /// Kills wharf.
    fn kill(&mut self) {
        sys::process::kill(self.wharf, Signal::Kill).unwrap();
        self.manager.line_with("ended ");
    }

    /// Kills wharf and its guard at once.
    fn kill_both(&mut self) {
        kill_with_guard(&self.hosts, self.wharf);
        self.manager.line_with("ended ");
    }

    /// Names of what is kept: of what a guard is told of the wire, and of the rest.
    fn all_names(&self) -> (Vec<String>, Vec<String>) {
        let names = std::fs::read_to_string(&self.names).unwrap_or_default();
        let names = names.split(' ').filter(|name| !name.is_empty()).map(str::to_owned);
        names.partition(|name| name.starts_with('t'))
    }

    fn names(&self) -> Vec<String> {
        self.all_names().1
    }

    fn wire(&self) -> String {
        self.hosts.ip(&format!("-o address show dev {WIRE}"))
    }

    fn says(&self, words: &str) -> bool {
        wait_until(|| self.manager.errors().contains(words))
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.names);
    }
}

fn pid(line: &str) -> u32 {
    line.trim_start_matches("started ").parse().unwrap()
}

/// wharf and its guard are killed while connections are busy. Neither end notices, and they move to the next wharf.
fn outlive(script: &str) {
    let Some(mut service) = Service::start() else { return };
    let _server = serve(&service.hosts, "at_accept", script);
    let streams: Vec<_> = (0..4).map(|at| connect(&service.hosts, Ip::BOTH[at % 2])).collect();
    for _ in 0..2 {
        service.to_nic(&streams);
        std::thread::scope(|scope| {
            for (number, stream) in streams.iter().enumerate() {
                scope.spawn(move || echoes(stream, &bytes(20_000_000, number as u64)));
            }
            std::thread::sleep(Duration::from_millis(50));
            service.kill_both();
            std::thread::sleep(Duration::from_millis(200));
            service.start_again();
        });
        streams.iter().for_each(|stream| echoes(stream, &bytes(1000, 5)));
    }
    assert!(service.says("4 connections are the kernel's again, 0 are lost"));
    streams.into_iter().for_each(ends);
}

#[test]
fn connections_outlive_a_wharf_that_is_killed_with_its_guard() {
    outlive(EVENTS);
}

#[test]
fn connections_of_threads_outlive_a_wharf_that_is_killed_with_its_guard() {
    outlive(THREADS);
}

/// What is kept is what there is; nothing is left of it when wharf stops.
#[test]
fn what_is_kept_goes_with_what_it_is_of() {
    let Some(mut service) = Service::start() else { return };
    let nothing = ["host", "inventory", "mirror"];
    assert!(wait_until(|| service.names() == nothing), "{:?}", service.names());
    let server = serve(&service.hosts, "at_accept", EVENTS);
    let stream = connect(&service.hosts, Ip::V4);
    let all = || {
        echoes(&stream, &bytes(1000, 1));
        service.names().len() == nothing.len() + 4
    };
    assert!(wait_until(all), "{:?}", service.names());
    // One that the guard has put back is not put back again.
    service.kill();
    assert!(service.says("1 connections are the kernel's again, 0 are lost"));
    assert!(wait_until(|| guards(&service.hosts).is_empty()));
    echoes(&stream, &bytes(1000, 2));
    service.start_again();
    let all = || {
        echoes(&stream, &bytes(1000, 3));
        service.names().len() == nothing.len() + 4
    };
    assert!(wait_until(all), "{:?}", service.names());
    assert_eq!(service.manager.errors().matches("wharf has died").count(), 1);
    ends(stream);
    assert!(wait_until(|| service.names().len() == nothing.len() + 3), "{:?}", service.names());
    drop(server);
    assert!(wait_until(|| service.names() == nothing), "{:?}", service.names());
    service.manager.signal(Signal::Terminate);
    service.manager.line_with("ended 0");
    let none = || service.all_names() == (Vec::new(), Vec::new());
    assert!(wait_until(none), "{:?}", service.all_names());
}

/// The wire gets back what it had, though nobody was there for a while.
#[test]
fn the_next_wharf_puts_the_wire_back() {
    let Some(mut service) = Service::start() else { return };
    // The name changes with what is kept under it.
    let told = || service.all_names().0;
    let settled = || {
        let before = told();
        std::thread::sleep(Duration::from_millis(300));
        before.len() == 1 && told() == before
    };
    assert!(wait_until(settled), "{:?}", told());
    let before = told();
    service.hosts.ip(&format!("address add 10.77.0.22/24 dev {HOST}"));
    assert!(wait_until(|| told() != before && settled()), "{:?}", told());
    service.kill_both();
    assert!(!service.wire().contains("10.77.0."), "{}", service.wire());
    service.start_again();
    service.manager.signal(Signal::Terminate);
    service.manager.line_with("ended 0");
    let wire = service.wire();
    assert!(["10.77.0.2/24", "10.77.0.22/24", "fd77::2/64"].iter().all(|one| wire.contains(one)));
}

/// Where no other wharf comes, the program is told after a while, and nobody puts its connection back later.
#[test]
fn a_program_does_not_wait_for_ever_for_the_next_wharf() {
    let Some(mut service) = Service::start() else { return };
    let mut server = serve(&service.hosts, "at_accept", TELLS);
    let streams = [connect(&service.hosts, Ip::V4)];
    service.to_nic(&streams);
    service.kill_both();
    server.line_within("reset", Duration::from_secs(90));
    service.start_again();
    let errors = service.manager.errors();
    assert!(!errors.contains("the kernel's again"), "{errors}");
}
