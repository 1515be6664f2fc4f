//! Servers in other languages, of sources in `programs`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use testkit::missing::lacks;

use super::clients::LENGTHS;
use super::{PORT, Server};
use crate::handoff_programs::{Stage, files};

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/e2e/runtimes/programs");
/// Debian's, for which its packages of modules are.
pub(super) const PYTHON: &str = "/usr/bin/python3";
/// Little memory, and no file of its own in the folder for temporary files.
const JAVA: [&str; 4] = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:-UsePerfData"];

fn source(name: &str) -> String {
    format!("{SOURCES}/{name}")
}

/// The server of this command, once it listens.
pub(super) fn started(stage: &Stage, run: Command) -> Option<Server> {
    Some(Server { program: stage.serves(run, PORT), beside: Vec::new(), log: None })
}

/// The server of these words, once it listens.
pub(super) fn served(stage: &Stage, policy: &str, words: &[&str]) -> Option<Server> {
    started(stage, stage.wharf_run(policy, words))
}

/// Writes the files that a server of HTTP has.
pub(super) fn write_files(stage: &Stage) {
    files(&stage.folder.0, &LENGTHS);
}

/// A server that is linked with libc.
pub(super) fn go(stage: &Stage, policy: &str) -> Option<Server> {
    write_files(stage);
    let program = stage.build("server.go", &["env", "CGO_ENABLED=1", "go", "build"], &[]);
    served(stage, policy, &[&program, &PORT.to_string()])
}

pub(super) fn asio(stage: &Stage, policy: &str) -> Option<Server> {
    let program = stage.folder.text("asio");
    let mut compiler = Command::new("g++");
    compiler.args(["-O0", "-std=c++17", "-pthread", "-o", &program, &source("asio.cc")]);
    let ended = compiler.output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    served(stage, policy, &[&program, &PORT.to_string()])
}

pub(super) fn java_nio(stage: &Stage, policy: &str) -> Option<Server> {
    let words = [source("Nio.java"), PORT.to_string()];
    served(stage, policy, &[&JAVA[..], &words.each_ref().map(String::as_str)].concat())
}

/// Netty's archives, from Maven Central; why not, if they are not to be had.
fn archives() -> Result<PathBuf, String> {
    static FOUND: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    const PLUGIN: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.6.0";
    let find = || {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("netty-4.1.115");
        if folder.exists() {
            return Ok(folder);
        }
        let part = folder.with_extension(format!("part{}", std::process::id()));
        let mut maven = Command::new("mvn");
        maven.args(["-q", "-B", "-f", &source("netty.xml")]);
        maven.arg(format!("{PLUGIN}:copy-dependencies"));
        maven.arg(format!("-DoutputDirectory={}", part.display()));
        let ended = maven.output().map_err(|error| error.to_string())?;
        if !ended.status.success() {
            return Err(String::from_utf8_lossy(&ended.stdout).into_owned());
        }
        // Another process may have been first.
        let _ = fs::rename(&part, &folder);
        Ok(folder)
    };
    FOUND.get_or_init(find).clone()
}

pub(super) fn netty(stage: &Stage, policy: &str) -> Option<Server> {
    let archives = match archives() {
        Ok(folder) => format!("{}/*", folder.display()),
        Err(why) => {
            lacks(format!("Netty of Maven Central: {why}"));
            return None;
        }
    };
    let words = ["-cp".to_owned(), archives, source("Netty.java"), PORT.to_string()];
    served(stage, policy, &[&JAVA[..], &words.each_ref().map(String::as_str)].concat())
}

/// The primary accepts, and passes connections to its workers.
pub(super) fn node_passes(stage: &Stage, policy: &str) -> Option<Server> {
    served(stage, policy, &["node", &source("cluster.js"), &PORT.to_string(), "passes"])
}

/// The workers accept.
pub(super) fn node_shares(stage: &Stage, policy: &str) -> Option<Server> {
    served(stage, policy, &["node", &source("cluster.js"), &PORT.to_string(), "shares"])
}

pub(super) fn asyncio(stage: &Stage, policy: &str) -> Option<Server> {
    served(stage, policy, &["python3", "-u", &source("loops.py"), &PORT.to_string(), "asyncio"])
}

pub(super) fn uvloop(stage: &Stage, policy: &str) -> Option<Server> {
    served(stage, policy, &[PYTHON, "-u", &source("loops.py"), &PORT.to_string(), "uvloop"])
}

pub(super) fn erlang(stage: &Stage, policy: &str) -> Option<Server> {
    served(stage, policy, &["escript", &source("echo.erl"), &PORT.to_string()])
}

pub(super) fn gunicorn(stage: &Stage, policy: &str) -> Option<Server> {
    write_files(stage);
    fs::copy(source("app.py"), stage.folder.path("app.py")).unwrap();
    let at = format!("0.0.0.0:{PORT}");
    let words = ["/usr/bin/gunicorn", "--bind", &at, "--workers", "2", "--worker-class", "gevent"];
    served(stage, policy, &[&words[..], &["--keep-alive", "1000", "app:app"]].concat())
}

pub(super) fn php(stage: &Stage, policy: &str) -> Option<Server> {
    write_files(stage);
    let at = format!("0.0.0.0:{PORT}");
    let mut run = stage.wharf_run(policy, &["php", "-S", &at, &source("echo.php")]);
    run.env("PHP_CLI_SERVER_WORKERS", "4");
    started(stage, run)
}
