//! What programs import of libibverbs and librdmacm, and what those export: here, and in each release of rdma-core from 44 on.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use testkit::lab::have;

use super::library;
use super::manager::case_of;

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

/// What the stock libraries export and ours need not, as no object of a device goes in or comes out.
const LEFT: [&[&str]; 4] = [
    // Numbers for numbers.
    &["ibv_rate_to_mbps", "ibv_rate_to_mult", "mbps_to_ibv_rate", "mult_to_ibv_rate"],
    // Structures of the headers for those of the kernel, and back: they name no object by a pointer.
    &[
        "ibv_copy_ah_attr_from_kern",
        "ibv_copy_path_rec_from_kern",
        "ibv_copy_path_rec_to_kern",
        "ibv_copy_qp_attr_from_kern",
    ],
    // Ranges of addresses.
    &["ibv_dofork_range", "ibv_dontfork_range"],
    // The name of a driver, whose devices are those of the stock library.
    &["ibv_register_driver"],
];

/// A function that a release of rdma-core exports.
struct Function {
    name: &'static str,
    version: &'static str,
    release: u32,
}

/// The functions of each release, from `symbols.txt`, which says where they are taken from.
fn functions() -> Vec<Function> {
    let lines = include_str!("symbols.txt").lines().filter(|line| !line.starts_with('#'));
    let function = |line: &'static str| match line.split(' ').collect::<Vec<_>>()[..] {
        [name, version, release] => Function { name, version, release: release.parse().unwrap() },
        _ => panic!("{line:?}"),
    };
    lines.map(function).collect()
}

/// The symbols in a table of symbols, of which a line has one at its end, with its version.
fn symbols(kind: &str, file: &Path, has: impl Fn(&str) -> bool) -> BTreeSet<String> {
    let nm = Command::new("nm").args(["-D", kind]).arg(file).output().unwrap();
    assert!(nm.status.success(), "{}: {}", file.display(), String::from_utf8_lossy(&nm.stderr));
    let table = String::from_utf8_lossy(&nm.stdout).into_owned();
    let symbols = table.lines().filter_map(|line| line.split_whitespace().last());
    symbols.filter(|symbol| has(symbol)).map(str::to_owned).collect()
}

/// The names of these symbols.
fn names(kind: &str, file: &Path, has: impl Fn(&str) -> bool) -> BTreeSet<String> {
    let name = |symbol: String| symbol.split('@').next().unwrap().to_owned();
    symbols(kind, file, has).into_iter().map(name).collect()
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

/// Ours is in front of the stock libraries: a function that it lacks is theirs, whatever that is called with. Programs are
/// built for other releases than the one that is installed.
#[test]
fn what_takes_objects_of_ours_is_exported() {
    if !have(&["nm", "ibv_devices", "rping"]) {
        return;
    }
    let exported = names("--defined-only", &library(), |symbol| !symbol.contains('@'));
    let left = LEFT.concat();
    let needless: Vec<_> = left.iter().filter(|name| exported.contains(**name)).collect();
    assert!(needless.is_empty(), "{needless:?} are exported");
    let functions = functions();
    let unknown: Vec<_> =
        left.iter().filter(|name| !functions.iter().any(|of| of.name == **name)).collect();
    assert!(unknown.is_empty(), "no release has {unknown:?}");
    let is_missing = |of: &&Function| !exported.contains(of.name) && !left.contains(&of.name);
    let missing = functions.iter().filter(is_missing);
    let missing: Vec<_> =
        missing.map(|of| format!("{} (rdma-core {})", of.name, of.release)).collect();
    assert!(missing.is_empty(), "{missing:#?}");
    for name in ["libibverbs.so.1", "librdmacm.so.1"] {
        let file = Path::new("/usr/lib/x86_64-linux-gnu").join(name);
        // Versions are symbols, too, without an at sign. What is private is for the drivers of rdma-core, which that loads and
        // calls with objects of its own.
        let is_public =
            |symbol: &str| symbol.contains('@') && !symbol.contains("@IBVERBS_PRIVATE_");
        let stock = symbols("--defined-only", &file, is_public);
        assert!(!stock.is_empty(), "{name} exports nothing");
        // A newer library than the table knows has to be looked at.
        let is_known = |symbol: &&String| {
            let (name, version) = symbol.split_once('@').unwrap();
            let version = version.trim_start_matches('@');
            functions.iter().any(|of| of.name == name && of.version == version)
        };
        let unknown: Vec<_> = stock.iter().filter(|symbol| !is_known(symbol)).collect();
        assert!(unknown.is_empty(), "{name} exports what symbols.txt lacks: {unknown:?}");
    }
}

#[test]
fn newer_calls_register_memory() {
    case_of("newer.c", "regions");
}

#[test]
fn a_port_has_one_speed_by_whatever_call() {
    case_of("newer.c", "speed");
}

#[test]
fn newer_calls_that_are_not_served_fail() {
    case_of("newer.c", "not_served");
}
