//! Servers of the distribution's packages, with a configuration each.

use std::fs;
use std::process::Command;

use testkit::missing::lacks;

use super::clients::TUNNEL;
use super::servers::{served, started, write_files};
use super::{PORT, Server, origin};
use crate::handoff_programs::Stage;
use crate::setup::Ip;

/// A user that Apache may be: without one of another name it does not run as root.
const USER: u32 = 65_534;
/// Not the one for operators, which runs it as a user of its own.
pub(super) const RABBITMQ: &str = "/usr/lib/rabbitmq/bin/rabbitmq-server";
const LIGHTTPD: &str =
    "server.event-handler = \"linux-sysepoll\"\nserver.max-keep-alive-requests = 0\n";

/// Writes a configuration and returns its path. `FOLDER` stands for the test's folder in it, `PORT` for the port.
fn configured(stage: &Stage, name: &str, text: &str) -> String {
    let folder = stage.folder.0.to_str().unwrap();
    let text = text.replace("FOLDER", folder).replace("PORT", &PORT.to_string());
    fs::write(stage.folder.path(name), text).unwrap();
    stage.folder.text(name)
}

/// Two processes of eight threads, a listener thread in each, and connections that are kept.
const APACHE: &str = "
ServerRoot /usr/lib/apache2
ServerName server
LoadModule mpm_event_module modules/mod_mpm_event.so
LoadModule authz_core_module modules/mod_authz_core.so
DefaultRuntimeDir FOLDER
PidFile FOLDER/pid
ErrorLog FOLDER/errors
Mutex file:FOLDER default
Listen PORT
DocumentRoot FOLDER
StartServers 2
ServerLimit 2
ThreadsPerChild 16
MaxRequestWorkers 32
MaxKeepAliveRequests 0
KeepAliveTimeout 1000
";

pub(super) fn apache(stage: &Stage, policy: &str) -> Option<Server> {
    if !sys::process::has_bpf() {
        lacks("root, for Apache's user");
        return None;
    }
    write_files(stage);
    std::os::unix::fs::chown(&stage.folder.0, Some(USER), Some(USER)).unwrap();
    let file = configured(stage, "apache.conf", APACHE);
    let user = [format!("--reuid={USER}"), format!("--regid={USER}")];
    let switch = ["setpriv", &user[0], &user[1], "--clear-groups"];
    let apache = ["apache2", "-f", &file, "-DFOREGROUND"];
    let mut server = served(stage, policy, &[switch, apache].concat())?;
    server.log = Some(stage.folder.path("errors"));
    Some(server)
}

pub(super) fn lighttpd(stage: &Stage, policy: &str) -> Option<Server> {
    write_files(stage);
    let text = "server.document-root = \"FOLDER\"\nserver.port = PORT\nserver.max-worker = 2\n";
    let file = configured(stage, "lighttpd.conf", &[text, LIGHTTPD].concat());
    served(stage, policy, &["lighttpd", "-D", "-f", &file])
}

/// Some files are cached, and others come from the server behind it each time.
const VARNISH: &str = r#"
vcl 4.1;
backend behind { .host = "ORIGIN"; .port = "PORT"; }
sub vcl_backend_response { if (bereq.url ~ "[13]$") { set beresp.uncacheable = true; } }
"#;

/// With a server behind it, at the client's host.
pub(super) fn varnish(stage: &Stage, policy: &str) -> Option<Server> {
    write_files(stage);
    let text = "server.document-root = \"FOLDER\"\nserver.port = PORT\n";
    let file = configured(stage, "lighttpd.conf", &[text, LIGHTTPD].concat());
    let origin = stage.hosts.client.spawn(Command::new("lighttpd").args(["-D", "-f", &file]));
    let file = VARNISH.replace("ORIGIN", &Ip::V4.client().to_string());
    let file = configured(stage, "varnish.vcl", &file);
    let (at, state) = (format!("0.0.0.0:{PORT}"), stage.folder.text("varnish"));
    let words = ["varnishd", "-F", "-j", "none", "-n", &state, "-f", &file, "-a", &at];
    let mut server = served(stage, policy, &[&words[..], &["-s", "malloc,50m"]].concat())?;
    server.beside.push(origin);
    Some(server)
}

const HAPROXY: &str = "
global
 nbthread 2
defaults
 mode tcp
 timeout connect 100s
 timeout client 1000s
 timeout server 1000s
listen all
 bind :PORT
 server behind ORIGIN
";

/// The origin of a proxy, which is started.
fn behind(stage: &Stage) -> String {
    origin::start(stage);
    format!("{}:{}", Ip::V4.client(), origin::PORT)
}

pub(super) fn haproxy(stage: &Stage, policy: &str) -> Option<Server> {
    let text = HAPROXY.replace("ORIGIN", &behind(stage));
    let file = configured(stage, "haproxy.cfg", &text);
    served(stage, policy, &["haproxy", "-db", "-f", &file])
}

/// What both ends of the tunnel have.
const STUNNEL: &str = "foreground = yes\npid =\nsyslog = no\n[echo]\n";

/// With another at the client's host, which has a client's bytes encrypted.
pub(super) fn stunnel(stage: &Stage, policy: &str) -> Option<Server> {
    let [key, certificate] = ["key", "certificate"].map(|name| stage.folder.text(name));
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]);
    openssl.args(["-nodes", "-days", "2", "-subj", "/CN=server"]);
    let made = stage.hosts.server.output(openssl.args(["-keyout", &key, "-out", &certificate]));
    assert!(made.status.success(), "{made}");
    let ends = format!("accept = 0.0.0.0:PORT\nconnect = {}\n", behind(stage));
    let files = format!("cert = {certificate}\nkey = {key}\n");
    let file = configured(stage, "server.conf", &[STUNNEL, &ends, &files].concat());
    let mut server = served(stage, policy, &["stunnel4", &file])?;
    let to = Ip::V4.server();
    let ends = format!("client = yes\naccept = {TUNNEL}\nconnect = {to}:PORT\n");
    let file = configured(stage, "client.conf", &[STUNNEL, &ends].concat());
    let mut client = stage.hosts.client.spawn(Command::new("stunnel4").arg(&file));
    let listens = testkit::lab::wait_until(|| {
        let connects = || std::net::TcpStream::connect(TUNNEL).is_ok();
        !client.runs() || stage.hosts.client.run(connects)
    });
    assert!(listens && client.runs(), "{}", client.wait());
    server.beside.push(client);
    Some(server)
}

/// No users, no durability, and its files by calls that wait: its connections are what matters.
const MARIADB: [&str; 9] = [
    "--no-defaults",
    "--user=root",
    "--bind-address=0.0.0.0",
    "--skip-name-resolve",
    "--skip-grant-tables",
    "--innodb-buffer-pool-size=32M",
    "--innodb-log-file-size=4M",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-use-native-aio=0",
];

fn database(stage: &Stage, policy: &str, more: &[&str]) -> Option<Server> {
    let data = format!("--datadir={}", stage.folder.text("data"));
    let mut make = Command::new("mariadb-install-db");
    make.args(["--no-defaults", "--user=root", "--skip-test-db", &data]);
    let made = stage.hosts.server.output(&mut make);
    assert!(made.status.success(), "{made}");
    let more_of_it =
        [format!("--port={PORT}"), format!("--socket={}", stage.folder.text("socket")), data];
    let own = more_of_it.each_ref().map(String::as_str);
    served(stage, policy, &[&["mariadbd"], &MARIADB[..], &own, more].concat())
}

/// A thread for each connection.
pub(super) fn mariadb(stage: &Stage, policy: &str) -> Option<Server> {
    database(stage, policy, &[])
}

/// Groups of threads, with a set of epoll each.
pub(super) fn mariadb_thread_pool(stage: &Stage, policy: &str) -> Option<Server> {
    database(stage, policy, &["--thread-handling=pool-of-threads", "--thread-pool-size=2"])
}

pub(super) fn mosquitto(stage: &Stage, policy: &str) -> Option<Server> {
    let text = "listener PORT 0.0.0.0\nallow_anonymous true\npersistence false\n";
    let file = configured(stage, "mosquitto.conf", text);
    served(stage, policy, &["mosquitto", "-c", &file])
}

/// It speaks MQTT only.
const RABBITMQ_CONF: &str = "
listeners.tcp = none
mqtt.listeners.tcp.default = PORT
mqtt.allow_anonymous = true
loopback_users = none
log.console = true
log.console.level = error
log.file = false
";

pub(super) fn rabbitmq(stage: &Stage, policy: &str) -> Option<Server> {
    let file = configured(stage, "rabbitmq.conf", RABBITMQ_CONF);
    let plugins = configured(stage, "plugins", "[rabbitmq_mqtt].");
    let folder = stage.folder.0.to_str().unwrap();
    let mut run = stage.wharf_run(policy, &[RABBITMQ]);
    run.env("HOME", folder).env("RABBITMQ_NODENAME", "rabbit@localhost");
    run.env("RABBITMQ_CONFIG_FILE", file).env("RABBITMQ_ENABLED_PLUGINS_FILE", plugins);
    for (name, path) in [("MNESIA_BASE", "mnesia"), ("LOG_BASE", "log"), ("PID_FILE", "pid")] {
        run.env(format!("RABBITMQ_{name}"), stage.folder.text(path));
    }
    started(stage, run)
}
