//! nginx, as one process with one thread.

use std::ffi::OsStr;
use std::fs;

use super::files::Files;
use crate::Error;
use crate::handoff::Place;
use crate::handoff::installed::Installed;
use crate::handoff::testbed::Testbed;
use crate::sink::io;

const PORT: u16 = 8_080;

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

/// Starts it at the server; `None` if it is not there.
pub(super) fn start(
    testbed: &Testbed,
    (place, policy): (Place, &str),
    files: &Files,
) -> Result<Option<Installed>, Error> {
    fs::write(files.root().join("conf"), CONFIGURATION).map_err(io("write for nginx"))?;
    let root = files.root().join("");
    let options = ["-e", "errors", "-c", "conf"].map(OsStr::new);
    let equip = |command: &mut std::process::Command| {
        command.args([OsStr::new("-p"), root.as_os_str()]).args(options);
        command.current_dir(files.root());
        Ok(())
    };
    Installed::start(testbed, (place, policy), ("nginx", PORT), equip, |_| Ok(()))
}
