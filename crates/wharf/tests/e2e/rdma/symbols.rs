//! What programs import of libibverbs and librdmacm.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use testkit::lab::have;

use super::library;

/// Programs, and libraries that have a provider of verbs.
const FILES: [&str; 26] = [
    "/usr/bin/ibv_devices",
    "/usr/bin/ibv_devinfo",
    "/usr/bin/ib_write_bw",
    "/usr/bin/ib_write_lat",
    "/usr/bin/ib_read_bw",
    "/usr/bin/ib_read_lat",
    "/usr/bin/ib_send_bw",
    "/usr/bin/ib_send_lat",
    "/usr/bin/ib_atomic_bw",
    "/usr/bin/ib_atomic_lat",
    "/usr/bin/rping",
    "/usr/bin/ucmatose",
    "/usr/bin/rdma_client",
    "/usr/bin/rdma_server",
    "/usr/bin/udaddy",
    "/usr/bin/mckey",
    "/usr/bin/rdma_xclient",
    "/usr/bin/rdma_xserver",
    "/usr/bin/ibv_rc_pingpong",
    "/usr/bin/ibv_ud_pingpong",
    "/usr/bin/qperf",
    "/usr/bin/fio",
    "/usr/bin/qemu-system-x86_64",
    "/usr/sbin/tgtd",
    "/usr/lib/x86_64-linux-gnu/libiscsi.so.7",
    "/usr/lib/x86_64-linux-gnu/libfabric.so.1",
];

/// The names in a table of symbols, of which a line has one at its end, with its version.
fn names(kind: &str, file: &Path, has: impl Fn(&str) -> bool) -> BTreeSet<String> {
    let nm = Command::new("nm").args(["-D", kind]).arg(file).output().unwrap();
    assert!(nm.status.success(), "{}: {}", file.display(), String::from_utf8_lossy(&nm.stderr));
    let table = String::from_utf8_lossy(&nm.stdout).into_owned();
    let symbols = table.lines().filter_map(|line| line.split_whitespace().last());
    let name = |symbol: &str| symbol.split('@').next().unwrap().to_owned();
    symbols.filter(|symbol| has(symbol)).map(name).collect()
}

/// A symbol without a version serves whatever version is asked for (ld.so(8)).
#[test]
fn what_programs_import_is_exported() {
    if !have(&[
        "nm",
        "ibv_devices",
        "ib_write_bw",
        "rping",
        "qperf",
        "fio",
        "fi_pingpong",
        "qemu-system-x86_64",
        "tgtd",
        "iscsi-inq",
    ]) {
        return;
    }
    let exported = names("--defined-only", &library(), |symbol| !symbol.contains('@'));
    for file in FILES {
        let is_verbs = |symbol: &str| symbol.contains("@IBVERBS_") || symbol.contains("@RDMACM_");
        let imported = names("--undefined-only", Path::new(file), is_verbs);
        assert!(!imported.is_empty(), "{file} uses none of them");
        let missing: Vec<_> = imported.difference(&exported).collect();
        assert!(missing.is_empty(), "{file} needs {missing:?}");
    }
}
