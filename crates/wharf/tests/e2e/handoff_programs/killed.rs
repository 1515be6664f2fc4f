//! wharf is killed in the middle of transfers, and another is started: no byte is lost, nor comes twice.

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use sys::process::Signal;
use testkit::lab::wait_until;

use super::http::{Answer, Http, PARTS};
use super::pairs::{LONG, ordinary};
use super::web::load;
use super::{Stage, connect, files};
use crate::handoff::bytes;

const HALF: usize = PARTS / 2;

/// What transfers and the one who kills wharf tell each other.
#[derive(Default)]
struct Kill {
    begun: AtomicUsize,
    is_done: AtomicBool,
}

impl Kill {
    /// So many parts of a transfer have gone. It has begun with the first, and goes on until the half of it: no more comes
    /// before wharf was killed.
    fn at(&self, part: usize) {
        match part {
            1 => _ = self.begun.fetch_add(1, Ordering::SeqCst),
            HALF => assert!(wait_until(|| self.is_done.load(Ordering::SeqCst))),
            _ => {}
        }
    }
}

impl Stage {
    /// By each connection comes a long file, or goes a long body that comes back from this path. All have begun when wharf
    /// is killed, and go on when there is another.
    fn kill_in_the_middle(&mut self, open: &mut [Http], file: &(String, Vec<u8>), echo: &str) {
        let (kill, count) = (Kill::default(), open.len());
        std::thread::scope(|scope| {
            for (number, http) in open.iter_mut().enumerate() {
                let kill = &kill;
                let transfer = move || {
                    let told = |part| kill.at(part);
                    if number % 2 == 0 {
                        let Answer { body, .. } = http.get_by_parts(&file.0, told).unwrap();
                        assert!(body == file.1, "other bytes of the file, {}", body.len());
                    } else {
                        let sent = bytes(LONG, number as u64);
                        let Answer { body, .. } = http.post_by_parts(echo, &sent, told).unwrap();
                        assert!(body == sent, "other bytes came back, {}", body.len());
                    }
                };
                scope.spawn(transfer);
            }
            assert!(wait_until(|| kill.begun.load(Ordering::SeqCst) == count));
            self.restart_wharf();
            kill.is_done.store(true, Ordering::SeqCst);
        });
    }

    /// The same of a server that keeps its connections: they are used again then, and move to the NIC that there is.
    fn outlives_in_the_middle(&mut self, mut open: Vec<Http>, file: &(String, Vec<u8>)) {
        self.shows(8080, open.len());
        self.kill_in_the_middle(&mut open, file, "");
        let are_on_nic = wait_until(|| {
            for http in &mut open {
                assert!(http.get(&file.0).unwrap().body == file.1, "other bytes of the file");
            }
            self.on_nic(8080) == open.len()
        });
        assert!(are_on_nic, "{}: {:?}", self.on_nic(8080), self.counters());
    }
}

#[test]
fn a_server_in_go_outlives_it() {
    let Some(mut stage) = Stage::new(&["go"]) else { return };
    let (_go, all) = stage.go("at_accept", &[100, LONG]);
    let open = load(&stage.hosts, 8080, &all[..1], 2);
    stage.outlives_in_the_middle(open, &all[1]);
}

#[test]
fn an_ordinary_users_server_in_go_outlives_it() {
    if !sys::process::has_bpf() {
        return;
    }
    let Some(mut stage) = Stage::new(&["go", "setpriv"]) else { return };
    let (_go, all) = ordinary(&stage, &[100, LONG]);
    let open = load(&stage.hosts, 8080, &all[..1], 2);
    stage.outlives_in_the_middle(open, &all[1]);
}

/// A program of CGI that gives back what it gets.
const ECHO: &str = "#!/bin/sh
printf 'Content-Type: application/octet-stream\r\n\r\n'
exec cat
";

#[test]
fn busyboxs_server_outlives_it() {
    let Some(mut stage) = Stage::new(&["busybox", "sh"]) else { return };
    let all = files(&stage.folder.0, &[LONG]);
    std::fs::create_dir(stage.folder.path("cgi-bin")).unwrap();
    let script = stage.folder.path("cgi-bin/echo");
    std::fs::write(&script, ECHO).unwrap();
    let made = Command::new("chmod").arg("+x").arg(&script).status().unwrap();
    assert!(made.success());
    let words = ["busybox", "httpd", "-f", "-p", "8080", "-h", "."];
    let run = stage.wharf_run_with("at_accept", &["--bypass", "pair"], &words);
    let _server = stage.serves(run, 8080);
    let mut open: Vec<_> = (0..4).map(|_| Http::new(connect(&stage.hosts, 8080))).collect();
    stage.shows(8080, open.len());
    stage.kill_in_the_middle(&mut open, &all[0], "cgi-bin/echo");
    // It answers once by each connection.
    drop(open);
    let mut http = Http::new(connect(&stage.hosts, 8080));
    assert!(http.get(&all[0].0).unwrap().body == all[0].1, "other bytes of the file");
}

/// Streams at a time in one connection, which ask for files and send one.
#[test]
fn http_2_of_go_outlives_it() {
    let Some(mut stage) = Stage::new(&["go"]) else { return };
    let server = stage.build("server.go", &["go", "build"], &[]);
    let client = stage.build("client.go", &["go", "build"], &[]);
    files(&stage.folder.0, &[100, LONG]);
    let _go = stage.serve("at_accept", 8443, &[&server, "8080", "8443"]);
    let mut run = Command::new(client);
    run.arg(stage.url(8443)).args(["file0", "file1"]).current_dir(&stage.folder.0);
    let mut client = stage.hosts.client.spawn(&mut run);
    client.line_with("one answer, by 1 connection");
    stage.shows(8443, 1);
    client.signal(Signal::HangUp);
    client.line_with("all streams have begun");
    stage.restart_wharf();
    client.signal(Signal::HangUp);
    client.line_with("all bytes, by 1 connection");
    let is_on_nic = wait_until(|| {
        client.signal(Signal::HangUp);
        client.line_with("one answer, by 1 connection");
        stage.on_nic(8443) == 1
    });
    assert!(is_on_nic, "{:?}", stage.counters());
}
