//! Open MPI by libfabric's verbs, between two hosts.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::lab::{have, wait_until};

use super::Pair;
use crate::setup::Ip;

/// What libfabric is to take: with `cm` and `ofi` alone there is no other way between the processes.
const BY_VERBS: [&str; 6] = ["--mca", "pml", "cm", "--mca", "mtl_ofi_provider_include", PROVIDER];
const PROVIDER: &str = "verbs;ofi_rxm";
const BY_TCP: [&str; 6] = ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self"];

/// What is needed.
pub(super) const PROGRAMS: [&str; 2] = ["mpicc", "mpirun"];

/// What stands for ssh: it leaves what is to run on the other host in a file, as one line, and ends.
const AGENT: &str = "#!/bin/sh
shift
echo \"$*\" >\"$0.new\" && mv \"$0.new\" \"$0.line\"
";

/// The programs, in a folder that goes with the test.
struct Mpi {
    pair: Pair,
    folder: PathBuf,
}

impl Mpi {
    /// Between these hosts.
    fn of(pair: Pair) -> Mpi {
        let folder = std::env::temp_dir().join(format!(
            "wharf-mpi-{}-{}",
            std::process::id(),
            pair.wharfs.len()
        ));
        fs::create_dir(&folder).unwrap();
        // Ordinary users run what is in it, and leave what is asked for.
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/rdma/collectives.c");
        let mut mpicc = Command::new("mpicc");
        mpicc.args(["-Wall", "-Werror", "-O1", "-o"]).arg(folder.join("collectives")).arg(source);
        let built = mpicc.output().unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        fs::write(folder.join("agent"), AGENT).unwrap();
        fs::set_permissions(folder.join("agent"), fs::Permissions::from_mode(0o755)).unwrap();
        Mpi { pair, folder }
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).to_str().unwrap().to_owned()
    }

    /// The digests of so many processes, half of them on either host.
    fn digests(&self, by: &[&str], count: usize) -> Vec<String> {
        let line = self.folder.join("agent.line");
        let _ = fs::remove_file(&line);
        let host = |ip: std::net::IpAddr| format!("{ip}:{}", count / 2);
        let hosts = [Ip::V4.client(), Ip::V4.server()].map(host).join(",");
        let (agent, program, count) =
            (self.path("agent"), self.path("collectives"), count.to_string());
        let common = [
            // It looks for programs of a terminal, and asks root whether it is.
            &["mpirun", "--allow-run-as-root", "--oversubscribe", "--leave-session-attached"][..],
            &["--mca", "plm_rsh_agent", &agent, "--mca", "plm_rsh_no_tree_spawn", "1"],
            &["--mca", "mpi_yield_when_idle", "1", "--mca", "mtl", "ofi"],
            &["--host", &hosts, "-np", &count],
        ];
        let words = [&common.concat()[..], by, &[&program]].concat();
        let mut mpirun = self.pair.client.spawn(self.pair.run(&words).env("HOME", &self.folder));
        let asked = wait_until(|| line.exists() || !mpirun.runs());
        assert!(asked && line.exists(), "{}", mpirun.wait());
        let other = fs::read_to_string(&line).unwrap();
        let mut other = self.pair.run(&["sh", "-c", other.trim()]);
        let other = self.pair.server.spawn(other.env("HOME", &self.folder));
        let ended = mpirun.wait();
        assert!(ended.status.success(), "{ended}\nat the other host: {}", other.errors());
        other.wait();
        let digests = ended.stdout.lines().filter(|line| line.starts_with("rank "));
        let mut digests: Vec<String> = digests.map(str::to_owned).collect();
        digests.sort();
        digests
    }
}

impl Drop for Mpi {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn collectives_of_open_mpi_are_as_by_tcp() {
    if !have(&PROGRAMS) {
        return;
    }
    let Some(pair) = Pair::new(&[]) else { return };
    collectives(pair, &[2, 4]);
}

/// The same digests by verbs and by TCP, of so many processes.
pub(super) fn collectives(pair: Pair, counts: &[usize]) {
    let mpi = Mpi::of(pair);
    for count in counts.iter().copied() {
        let (by_verbs, by_tcp) = (mpi.digests(&BY_VERBS, count), mpi.digests(&BY_TCP, count));
        assert_eq!(by_verbs.len(), count, "{by_verbs:?}");
        assert_eq!(by_verbs, by_tcp);
    }
}
