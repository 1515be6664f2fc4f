//! The programs that the tests run, from the distribution's packages.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::cargo::may_lack;
use crate::outcome::Outcome;
use crate::process::{is_installed, is_root, run, run_captured};
use crate::tree::Tree;

/// A program, or a file, and the Debian package that has it.
const PROGRAMS: [(&str, &str); 56] = [
    ("ip", "iproute2"),
    ("ping", "iputils-ping"),
    ("iperf3", "iperf3"),
    ("ethtool", "ethtool"),
    ("curl", "curl"),
    ("nc", "netcat-openbsd"),
    ("sha256sum", "coreutils"),
    ("setpriv", "util-linux"),
    ("unshare", "util-linux"),
    ("chromium", "chromium"),
    ("dnsmasq", "dnsmasq-base"),
    ("dhclient", "isc-dhcp-client"),
    ("radvd", "radvd"),
    ("busybox", "busybox"),
    ("gcc", "gcc"),
    ("/usr/include/stdio.h", "libc6-dev"),
    ("g++", "g++"),
    ("/usr/include/asio.hpp", "libasio-dev"),
    ("go", "golang-go"),
    ("caddy", "caddy"),
    ("/usr/include/liburing.h", "liburing-dev"),
    ("python3", "python3"),
    ("nginx", "nginx-light"),
    ("haproxy", "haproxy"),
    ("apache2", "apache2-bin"),
    ("varnishd", "varnish"),
    ("escript", "erlang-base"),
    ("lighttpd", "lighttpd"),
    ("redis-server", "redis-server"),
    ("redis-benchmark", "redis-tools"),
    ("memcached", "memcached"),
    ("pg_ctlcluster", "postgresql"),
    ("pgbench", "postgresql"),
    ("sshd", "openssh-server"),
    ("wget", "wget"),
    ("node", "nodejs"),
    // It has the compiler's modules, too, by which a file of source runs.
    ("java", "default-jre-headless"),
    ("valgrind", "valgrind"),
    ("strace", "strace"),
    ("tcpdump", "tcpdump"),
    ("ibv_devices", "ibverbs-utils"),
    ("rping", "rdmacm-utils"),
    ("ib_write_bw", "perftest"),
    ("qperf", "qperf"),
    ("fio", "fio"),
    ("fi_pingpong", "libfabric-bin"),
    ("mpirun", "openmpi-bin"),
    ("mpicc", "libopenmpi-dev"),
    ("NPopenmpi", "netpipe-openmpi"),
    ("hpcc", "hpcc"),
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("tgtd", "tgt"),
    ("iscsi-inq", "libiscsi-bin"),
    ("/usr/include/infiniband/verbs.h", "libibverbs-dev"),
    ("/usr/include/rdma/rdma_cma.h", "librdmacm-dev"),
    ("/usr/include/rdma/fabric.h", "libfabric-dev"),
];

/// What the end-to-end tests `runtimes` need besides, where the environment asks for all of them.
const RUNTIMES: [(&str, &str); 13] = [
    // Netty comes from Maven Central.
    ("mvn", "maven"),
    ("/usr/lib/python3/dist-packages/uvloop/__init__.py", "python3-uvloop"),
    ("/usr/lib/python3/dist-packages/gevent/__init__.py", "python3-gevent"),
    ("/usr/bin/gunicorn", "gunicorn"),
    ("php", "php-cli"),
    ("stunnel4", "stunnel4"),
    ("openssl", "openssl"),
    ("mariadbd", "mariadb-server"),
    ("mariadb-install-db", "mariadb-server"),
    ("mariadb", "mariadb-client"),
    ("sysbench", "sysbench"),
    ("mosquitto", "mosquitto"),
    ("/usr/lib/rabbitmq/bin/rabbitmq-server", "rabbitmq-server"),
];
const ALL_RUNTIMES: (&str, &str) = ("WHARF_RUNTIMES", "all");

/// What asks whether a package may start its service (invoke-rc.d(8)).
const MAY_START: &str = "/usr/sbin/policy-rc.d";

/// For which a server in Rust is built there, to be linked statically.
const TARGET: &str = "x86_64-unknown-linux-musl";

/// Installs what is missing: the compiler's target, and programs on a system with apt; fails by a program's name otherwise.
pub(crate) fn install(_: &Tree) -> Outcome {
    let added = run_captured(Command::new("rustup").args(["target", "add", TARGET]));
    // It comes from no package: where rustup's server is not reached, one test is left out.
    let lacks = match added {
        Ok((true, _)) => Vec::new(),
        Ok((false, why)) | Err(why) => vec![format!("a server linked with musl: {why}")],
    };
    let missing = missing();
    if missing.is_empty() {
        return Ok(lacks);
    }
    let mut packages: Vec<&str> = missing.iter().map(|(_, package)| *package).collect();
    packages.dedup();
    let names: Vec<&str> = missing.iter().map(|(program, _)| *program).collect();
    let names = names.join(", ");
    if !is_root() || !is_installed("apt-get") {
        let how = format!("apt-get install {}", packages.join(" "));
        let why = format!("what needs {names}, not installed here: as root, `{how}`");
        return if may_lack() { Ok([lacks, vec![why]].concat()) } else { Err(why) };
    }
    println!("    installing {}", packages.join(" "));
    let apt = |arguments: &[&str]| {
        run(Command::new("apt-get")
            .arg("-qq")
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive"))
    };
    apt(&["update"])?;
    without_services(|| {
        apt(&[&["install", "--yes", "--no-install-recommends"], &packages[..]].concat())
    })?;
    Ok(lacks)
}

/// Does this while no package starts a service: the tests start their own.
fn without_services(work: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    let path = Path::new(MAY_START);
    // Whoever wrote one knows what may start here.
    let is_ours = !path.exists() && fs::write(path, "#!/bin/sh\nexit 101\n").is_ok();
    if is_ours {
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(path, mode).map_err(|error| format!("{MAY_START}: {error}"))?;
    }
    let done = work();
    if is_ours {
        fs::remove_file(path).map_err(|error| format!("{MAY_START}: {error}"))?;
    }
    done
}

fn missing() -> Vec<(&'static str, &'static str)> {
    let (name, value) = ALL_RUNTIMES;
    let has_all = std::env::var(name).is_ok_and(|asked| asked == value);
    let runtimes = if has_all { &RUNTIMES[..] } else { &[] };
    let all = PROGRAMS.iter().chain(runtimes).copied();
    all.filter(|(program, _)| !is_installed(program)).collect()
}
