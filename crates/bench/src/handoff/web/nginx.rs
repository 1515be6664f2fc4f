//! nginx, as one process with one thread.

use std::ffi::OsStr;
use std::fs;

use super::files::Files;
use super::responder::SOCKET;
use crate::Error;
use crate::handoff::Place;
use crate::handoff::installed::Installed;
use crate::handoff::testbed::Testbed;
use crate::sink::io;

const PORT: u16 = 8_080;

/// With where it listens, and what it serves besides files.
fn configuration(listen: &str, (upstream, location): (&str, &str)) -> String {
    format!(
        "
daemon off; master_process off; pid pid; error_log errors crit;
worker_rlimit_nofile 8192;
events {{ worker_connections 4096; }}
http {{
    access_log off; sendfile on; tcp_nopush on; keepalive_requests 100000; keepalive_timeout 600;
    open_file_cache max=1000 inactive=600s;
    client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi; scgi_temp_path scgi;
    {upstream}
    server {{ listen {listen} backlog=4096; root .; {location} }}
}}
"
    )
}

/// Dynamic content by the responder, to which some connections are kept. No page goes by way of a file.
fn with_responder(listen: &str) -> String {
    let upstream = format!("upstream responder {{ server unix:{SOCKET}; keepalive 64; }}");
    let params = [
        ("REQUEST_METHOD", "$request_method"),
        ("SCRIPT_NAME", "$fastcgi_script_name"),
        ("QUERY_STRING", "$query_string"),
        ("CONTENT_LENGTH", "$content_length"),
        ("CONTENT_TYPE", "$content_type"),
        ("SERVER_SOFTWARE", "nginx"),
        ("SERVER_PROTOCOL", "$server_protocol"),
        ("GATEWAY_INTERFACE", "CGI/1.1"),
        ("REMOTE_ADDR", "$remote_addr"),
    ];
    let params: String =
        params.iter().map(|(name, value)| format!("fastcgi_param {name} {value}; ")).collect();
    let location = format!(
        "location /dynamic/ {{ fastcgi_pass responder; fastcgi_keep_conn on; \
         fastcgi_max_temp_file_size 0; {params}}}"
    );
    configuration(listen, (&upstream, &location))
}

/// Starts it at the server, with the responder or without; `None` if it is not there.
pub(super) fn start(
    testbed: &Testbed,
    (place, policy): (Place, &str),
    files: &Files,
    is_dynamic: bool,
) -> Result<Option<Installed>, Error> {
    let listen = PORT.to_string();
    let configuration =
        if is_dynamic { with_responder(&listen) } else { configuration(&listen, ("", "")) };
    fs::write(files.root().join("conf"), configuration).map_err(io("write for nginx"))?;
    let root = files.root().join("");
    let options = ["-e", "errors", "-c", "conf"].map(OsStr::new);
    let equip = |command: &mut std::process::Command| {
        command.args([OsStr::new("-p"), root.as_os_str()]).args(options);
        command.current_dir(files.root());
        Ok(())
    };
    Installed::start(testbed, (place, policy), ("nginx", PORT), equip, |_| Ok(()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a failed unwrap is the failed test
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::process::{Child, Command};
    use std::time::{Duration, Instant};

    use testkit::missing::lacks;

    use super::*;
    use crate::handoff::web::client::tests::client;
    use crate::handoff::web::page::Page;
    use crate::handoff::web::request::Request;
    use crate::handoff::web::responder::answer_at;

    /// It ends with this.
    struct Server(Child);

    impl Drop for Server {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn clients_get_what_they_ask_for() {
        let root = std::env::temp_dir().join(format!("wharf-nginx-{}", std::process::id()));
        let files = Files::write(&root).unwrap();
        fs::write(root.join("conf"), with_responder("unix:http")).unwrap();
        let listener = UnixListener::bind(root.join(SOCKET)).unwrap();
        let there = root.clone();
        // It ends with the tests.
        std::thread::spawn(move || answer_at(&listener, &there));
        let start = |name| {
            let mut command = Command::new(name);
            command.arg("-p").arg(root.join("")).args(["-e", "errors", "-c", "conf"]);
            command.current_dir(&root).spawn()
        };
        let Ok(server) = start("nginx").or_else(|_| start("/usr/sbin/nginx")) else {
            return lacks("nginx");
        };
        let server = Server(server);
        let begun = Instant::now();
        let connect = || UnixStream::connect(root.join("http"));
        while connect().is_err() {
            assert!(begun.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut stream = connect().unwrap();
        let pages = [
            None,
            Some(Page::Standard),
            Some(Page::Custom { user: 7, last_ad: 359 }),
            Some(Page::Posted { user: 9_999 }),
        ];
        let asked = (0..24).map(|n| {
            let Request { file, .. } = Request::pick(u64::MAX / 24 * n, None);
            Request { file, page: pages[n as usize % pages.len()] }
        });
        let mut buffer = vec![0; 100_000];
        for request in asked {
            stream.write_all(request.text(false).as_bytes()).unwrap();
            let mut client = client(request);
            while client.body != Some(0) {
                let count = stream.read(&mut buffer).unwrap();
                assert!(count > 0);
                client.take(&buffer[..count]).unwrap();
            }
        }
        let posts = fs::read_to_string(root.join("posts")).unwrap();
        assert_eq!(posts.lines().filter(|line| line.starts_with("user=9999 file=")).count(), 6);
        drop((server, files));
    }
}
