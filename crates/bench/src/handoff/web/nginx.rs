//! nginx, as one process with one thread.

use std::ffi::OsStr;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::files::Files;
use crate::Error;
use crate::handoff::Place;
use crate::handoff::testbed::Testbed;
use crate::hosts::SERVER;
use crate::sink::io;

const PORT: u16 = 8_080;
/// Where Debian has it, should an ordinary user's path not have that.
const PROGRAMS: [&str; 2] = ["nginx", "/usr/sbin/nginx"];
/// How long it may take to listen.
const PATIENCE: Duration = Duration::from_secs(10);

const CONFIGURATION: &str = "
daemon off; master_process off; pid pid; error_log errors crit;
worker_rlimit_nofile 8192;
events { worker_connections 4096; }
http {
    access_log off; sendfile on; tcp_nopush on; keepalive_requests 100000; keepalive_timeout 600;
    open_file_cache max=1000 inactive=600s;
    client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi; scgi_temp_path scgi;
    server { listen 8080 backlog=4096; root .; }
}
";

/// It ends with this.
#[derive(Debug)]
pub(super) struct Nginx {
    child: Child,
    pub(super) to: SocketAddr,
}

impl Nginx {
    /// Starts it at the server; `None` if it is not there.
    pub(super) fn start(
        testbed: &Testbed,
        place: Place,
        policy: &str,
        files: &Files,
    ) -> Result<Option<Nginx>, Error> {
        fs::write(files.root().join("conf"), CONFIGURATION).map_err(io("write for nginx"))?;
        let to = (SERVER, PORT).into();
        for program in PROGRAMS {
            let mut command = Command::new(program);
            let root = files.root().join("");
            command.args([OsStr::new("-p"), root.as_os_str(), OsStr::new("-e")]);
            command.args([OsStr::new("errors"), OsStr::new("-c"), OsStr::new("conf")]);
            command.current_dir(files.root());
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            match testbed.spawn(place, policy, &mut command) {
                Ok(child) => {
                    let nginx = Nginx { child, to };
                    nginx.listens(testbed)?;
                    return Ok(Some(nginx));
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(io("start nginx")(error)),
            }
        }
        Ok(None)
    }

    fn listens(&self, testbed: &Testbed) -> Result<(), Error> {
        let begun = Instant::now();
        while testbed.hosts.client.run(|| TcpStream::connect(self.to))?.is_err() {
            if begun.elapsed() > PATIENCE {
                let why = "it does not listen".to_owned();
                return Err(Error::Failed { system: "nginx", why });
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
