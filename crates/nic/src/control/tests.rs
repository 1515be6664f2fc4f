//! Server and client against each other, with names of this process's own.

use std::io::{self, BufRead, BufReader, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use super::*;

/// A handler with one configuration and one counter.
#[derive(Clone, Default)]
struct Dummy(Arc<Mutex<Config>>);

impl Handler for Dummy {
    fn stats(&self) -> Value {
        let counters = counters_json([Entry { group: "wire", name: "rx_packets", value: 7 }]);
        json!({"host": "dummy", "counters": counters})
    }

    fn get(&self, key: Option<&str>) -> Result<Value, String> {
        settings_json(&self.0.lock().unwrap(), key)
    }

    fn connections(&self) -> Result<Value, String> {
        Ok((0..2_000).map(|cid| json!({"cid": cid, "local": "x".repeat(cid % 200)})).collect())
    }

    fn set(&self, key: &str, value: &str) -> Result<(), String> {
        let mut config = self.0.lock().unwrap();
        config.set_at_run_time(key, value).map_err(|error| error.to_string())
    }
}

/// Interface names have at most 15 bytes.
fn unique(name: &str) -> String {
    format!("{name}{}", std::process::id())
}

fn bind(host: &str) -> std::io::Result<Control> {
    Control::bind(host, &Config::default().control)
}

fn raw(host: &str) -> BufReader<UnixStream> {
    let file = place::path(place::namespace().unwrap(), host);
    if let Ok(stream) = UnixStream::connect(file) {
        return BufReader::new(stream);
    }
    let address = SocketAddr::from_abstract_name(format!("{}{host}", place::PREFIX)).unwrap();
    BufReader::new(UnixStream::connect_addr(&address).unwrap())
}

fn ask(stream: &mut BufReader<UnixStream>, line: &[u8]) -> Value {
    stream.get_mut().write_all(line).unwrap();
    let mut answer = String::new();
    stream.read_line(&mut answer).unwrap();
    serde_json::from_str(&answer).unwrap()
}

#[test]
fn a_client_reads_and_changes_what_the_handler_has() {
    let host = unique("rw");
    let dummy = Dummy::default();
    let _serving = bind(&host).unwrap().serve(dummy.clone()).unwrap();
    let mut client = Client::connect(Some(&host)).unwrap();

    assert_eq!(client.stats().unwrap()["counters"][0]["value"], 7);
    assert_eq!(client.get(None).unwrap().len(), crate::config::KEYS.len());
    client.set("lro.max_timeout", "1ms").unwrap();
    assert_eq!(dummy.0.lock().unwrap().lro.max_timeout, 1_000_000);
    let read_back = client.get(Some("lro.max_timeout")).unwrap();
    assert_eq!(read_back, [("lro.max_timeout".to_owned(), "1ms".to_owned())]);

    let refused = client.set("wire.frames", "2048").unwrap_err();
    assert!(matches!(&refused, ClientError::Refused(words) if words.contains("while wharf runs")));
    let refused = client.get(Some("lro.enabel")).unwrap_err();
    assert!(matches!(&refused, ClientError::Refused(words) if words.contains("`lro.enable`")));
}

#[test]
fn a_name_is_taken_once_and_free_again_afterwards() {
    let host = unique("once");
    let serving = bind(&host).unwrap().serve(Dummy::default()).unwrap();
    assert_eq!(bind(&host).unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
    assert!(running().unwrap().contains(&host));
    drop(serving);
    assert!(!running().unwrap().contains(&host));
    drop(bind(&host).unwrap());
}

#[test]
fn a_silent_client_does_not_delay_others() {
    let host = unique("stuck");
    let _serving = bind(&host).unwrap().serve(Dummy::default()).unwrap();
    let _silent = raw(&host);
    let mut halfway = raw(&host);
    halfway.get_mut().write_all(b"{\"stats\"").unwrap();
    assert!(Client::connect(Some(&host)).unwrap().stats().is_ok());
    assert_eq!(ask(&mut halfway, b":true}\n")["ok"]["host"], "dummy");
}

#[test]
fn an_invalid_request_is_answered_and_the_connection_stays() {
    let host = unique("odd");
    let _serving = bind(&host).unwrap().serve(Dummy::default()).unwrap();
    let mut stream = raw(&host);
    for odd in [
        &b"\n"[..],
        b"stats\n",
        b"[]\n",
        b"{}\n",
        b"{\"stats\":false}\n",
        b"{\"get\":1}\n",
        b"{\"get\":\"no.such\"}\n",
        b"{\"set\":{}}\n",
        b"{\"set\":{\"lro.enable\":null}}\n",
        b"{\"set\":{\"lro.enable\":true,\"gso.enable\":true}}\n",
        b"{\"stats\":true,\"get\":null}\n",
        b"\xff\xfe\n",
    ] {
        assert!(ask(&mut stream, odd)["error"].is_string(), "{}", String::from_utf8_lossy(odd));
    }
    assert_eq!(ask(&mut stream, b"{\"set\":{\"lro.enable\":false}}\n"), json!({"ok": true}));
    assert_eq!(ask(&mut stream, b"{\"set\":{\"lro.max_segments\":9}}\n"), json!({"ok": true}));
}

#[test]
fn an_answer_that_is_too_long_for_a_line_is_several() {
    let host = unique("more");
    let _serving = bind(&host).unwrap().serve(Dummy::default()).unwrap();
    let mut client = Client::connect(Some(&host)).unwrap();
    for _ in 0..2 {
        let all = client.connections().unwrap();
        assert!(all.iter().map(|one| one["cid"].as_u64().unwrap()).eq(0..2_000));
    }
    let mut stream = raw(&host);
    let first = ask(&mut stream, b"{\"connections\":true}\n");
    assert_eq!(first["more"], true, "it is one line");
}

/// A control socket that ends leaves no thread with the handler, whatever its clients do.
#[test]
fn no_client_has_the_handler_after_the_end() {
    let host = unique("end");
    let dummy = Dummy::default();
    let serving = bind(&host).unwrap().serve(dummy.clone()).unwrap();
    let mut idle = raw(&host);
    assert!(ask(&mut idle, b"{\"stats\":true}\n")["ok"].is_object());
    let mut halfway = raw(&host);
    halfway.get_mut().write_all(b"{\"stats\"").unwrap();
    // A client that sends requests whose answers exceed its buffer, and reads none.
    let mut deaf = raw(&host);
    deaf.get_mut().set_nonblocking(true).unwrap();
    while deaf.get_mut().write_all(&b"{\"get\":null}\n".repeat(1_000)).is_ok() {}
    drop(serving);
    assert_eq!(Arc::strong_count(&dummy.0), 1);
    let mut rest = String::new();
    assert_eq!(idle.read_line(&mut rest).unwrap(), 0, "{rest}");
}

#[test]
fn a_line_without_end_is_cut_off() {
    let host = unique("long");
    let _serving = bind(&host).unwrap().serve(Dummy::default()).unwrap();
    let mut stream = raw(&host);
    let answer = ask(&mut stream, &vec![b'x'; line::LINE_MAX + 4096]);
    assert!(answer["error"].as_str().unwrap().contains("65536 bytes"));
    let mut rest = String::new();
    // Bytes that the server had not read when it closed may reset the connection.
    assert!(matches!(stream.read_line(&mut rest), Ok(0) | Err(_)));
}

/// A handler whose answers wait until it is opened.
#[derive(Clone, Default)]
struct Slow(Arc<(Mutex<Waiting>, Condvar)>);

#[derive(Default)]
struct Waiting {
    requests: usize,
    open: bool,
}

impl Slow {
    fn until<'a>(&'a self, holds: impl Fn(&Waiting) -> bool) -> MutexGuard<'a, Waiting> {
        let (waiting, changed) = &*self.0;
        changed.wait_while(waiting.lock().unwrap(), |waiting| !holds(waiting)).unwrap()
    }

    fn change(&self, change: impl Fn(&mut Waiting)) {
        change(&mut self.0.0.lock().unwrap());
        self.0.1.notify_all();
    }
}

impl Handler for Slow {
    fn stats(&self) -> Value {
        self.change(|waiting| waiting.requests += 1);
        drop(self.until(|waiting| waiting.open));
        Value::Null
    }

    fn get(&self, _: Option<&str>) -> Result<Value, String> {
        Err("it is slow".to_owned())
    }

    fn set(&self, _: &str, _: &str) -> Result<(), String> {
        Err("it is slow".to_owned())
    }
}

#[test]
fn one_client_too_many_is_refused() {
    let host = unique("many");
    let slow = Slow::default();
    let _serving = bind(&host).unwrap().serve(slow.clone()).unwrap();
    // A client that sends no request is disconnected after a while; one that waits for its answer is not. Another test that
    // looks which wharfs run has a place for a moment: a client that is refused for that comes again.
    let mut crowd = Vec::new();
    while crowd.len() < 64 {
        let mut client = raw(&host);
        client.get_mut().set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let is_there = client.get_mut().write_all(b"{\"stats\":true}\n").is_ok();
        let (before, mut refusal) = (crowd.len(), String::new());
        let has_asked = || slow.until(|_| true).requests > before;
        let waits = |error: io::Error| error.kind() == io::ErrorKind::WouldBlock;
        while is_there && !has_asked() && client.read_line(&mut refusal).is_err_and(waits) {}
        if has_asked() {
            crowd.push(client);
        }
    }
    let refused = Client::connect(Some(&host)).unwrap().stats().unwrap_err();
    assert!(matches!(&refused, ClientError::Refused(words) if words.contains("too many")));
    slow.change(|waiting| waiting.open = true);
}

#[test]
fn the_error_names_a_wharf_that_does_not_run() {
    let host = unique("here");
    let _serving = bind(&host).unwrap().serve(Dummy::default()).unwrap();
    match Client::connect(Some("elsewhere")) {
        Err(ClientError::NoSuch { host: asked, running }) => {
            assert_eq!(asked, "elsewhere");
            assert!(running.contains(&host));
        }
        other => panic!("{other:?}"),
    }
}
