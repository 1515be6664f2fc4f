//! A process for each connection: PostgreSQL, which forks, and sshd, which executes itself again.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use testkit::lab::{have, wait_until};
use testkit::missing::lacks;

use super::Stage;

/// A user that may be nobody: PostgreSQL does not run as root.
const USER: u32 = 65_534;

/// Debian keeps each version's programs in a folder of its own.
fn postgresql() -> Option<PathBuf> {
    let all = fs::read_dir("/usr/lib/postgresql").ok()?;
    all.filter_map(|entry| Some(entry.ok()?.path().join("bin")))
        .find(|path| path.join("postgres").exists())
}

/// The words that run a program as that user.
fn as_user(program: PathBuf, arguments: &[&str]) -> Vec<String> {
    let user = [format!("--reuid={USER}"), format!("--regid={USER}"), "--clear-groups".to_owned()];
    let switch =
        sys::process::is_root().then(|| [vec!["setpriv".to_owned()], user.to_vec()].concat());
    let program = program.to_str().unwrap().to_owned();
    let arguments = arguments.iter().map(|&word| word.to_owned());
    switch.unwrap_or_default().into_iter().chain([program]).chain(arguments).collect()
}

#[test]
fn postgresql_runs_on_the_nic() {
    if !have(&["psql", "pgbench", "setpriv"]) {
        return;
    }
    let Some(programs) = postgresql() else { return lacks("postgresql") };
    let Some(stage) = Stage::new(&[]) else { return };
    let data = stage.folder.text("data");
    if sys::process::is_root() {
        std::os::unix::fs::chown(&stage.folder.0, Some(USER), Some(USER)).unwrap();
    }
    let make = as_user(programs.join("initdb"), &["-D", &data, "-A", "trust", "-N", "-U", "root"]);
    let made = stage.hosts.server.output(Command::new(&make[0]).args(&make[1..]));
    assert!(made.status.success(), "{made}");
    fs::write(stage.folder.path("data/pg_hba.conf"), "host all all 10.77.0.0/24 trust\n").unwrap();
    let words = ["-D", &data, "-p", "5432", "-h", "0.0.0.0", "-k", "", "-F"];
    let serve = as_user(programs.join("postgres"), &words);
    let serve: Vec<&str> = serve.iter().map(String::as_str).collect();
    let server = stage.serve("after=8KB", 5432, &serve);
    // It listens before it serves.
    let serves = || server.errors().contains("ready to accept connections");
    assert!(wait_until(serves), "{}", server.errors());
    let asks = |program: &str, words: &[&str]| {
        let mut client = Command::new(program);
        client.args(["-h", "10.77.0.2", "-U", "root"]).args(words);
        let ended = stage.hosts.client.output(&mut client);
        assert!(ended.status.success() && !ended.stderr.contains("ERROR"), "{ended}");
        ended.stdout
    };
    asks("pgbench", &["-i", "-q", "-s", "1", "postgres"]);
    let told = asks("pgbench", &["-c", "4", "-j", "2", "-t", "100", "-n", "postgres"]);
    assert!(told.contains("400/400"), "{told}");
    let all: String = (1..=2_000_000).map(|number| format!("{number}\n")).collect();
    let query = "select generate_series(1, 2000000)";
    assert!(asks("psql", &["-At", "-c", query, "postgres"]) == all, "other rows came");
    // Of psql's and pgbench's own, the server's process has had each alone.
    stage.were_handed_off(0, 6);
    stage.was_refused_nothing();
}

/// Each connection's process executes the program again, which gets it: it is the kernel's then.
#[test]
fn sshd_serves_its_connections() {
    if !sys::process::is_root() {
        return lacks("root, for sshd");
    }
    let Some(stage) = Stage::new(&["/usr/sbin/sshd", "ssh", "ssh-keygen"]) else { return };
    let [host, user, known] = ["host", "user", "known"].map(|name| stage.folder.text(name));
    for key in [&host, &user] {
        let mut make = Command::new("ssh-keygen");
        let made =
            stage.hosts.server.output(make.args(["-q", "-t", "ed25519", "-N", "", "-f", key]));
        assert!(made.status.success(), "{made}");
    }
    // Where it keeps its children apart.
    fs::create_dir_all("/run/sshd").unwrap();
    let bytes = crate::handoff::bytes(3_000_000, 1);
    fs::write(stage.folder.path("sent"), &bytes).unwrap();
    let keys = format!("AuthorizedKeysFile={user}.pub");
    let words = ["/usr/sbin/sshd", "-D", "-e", "-p", "2222", "-h", &host, "-f", "/dev/null"];
    let options = ["-o", &keys, "-o", "StrictModes=no", "-o", "PidFile=none"];
    let _server = stage.serve("at_accept", 2222, &[&words[..], &options].concat());
    let known = format!("UserKnownHostsFile={known}");
    let copy = format!("cat > {0}; cat {0}", stage.folder.text("copied"));
    let mut client = Command::new("ssh");
    client.args(["-p", "2222", "-i", &user, "-o", &known, "-o", "StrictHostKeyChecking=no"]);
    client.args(["-F", "none", "-o", "BatchMode=yes", "root@10.77.0.2", &copy]);
    client.stdin(fs::File::open(stage.folder.path("sent")).unwrap());
    let back = stage.hosts.client.run(|| client.output()).unwrap();
    assert!(back.status.success(), "{}", String::from_utf8_lossy(&back.stderr));
    assert!(back.stdout == bytes, "other bytes came back");
    // What the NIC had of it went back, and says why.
    let of = |group, name| stage.counter(group, name);
    let why = ["fork", "exec", "refused"].map(|reason| of("handoff_restored", reason));
    assert_eq!(why.iter().sum::<u64>(), of("handoff", "restored"), "{:?}", stage.counters());
}
