//! iSCSI over RDMA (iSER, RFC 7145): tgtd serves a file, and libiscsi's programs read and write it.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use testkit::lab::wait_until;

use super::{Folder, Pair, listens, ordinary};
use crate::setup::Ip;

const TARGET: &str = "iqn.2026-11.com.example:target";
const INITIATOR: &str = "iqn.2026-11.com.example:initiator";
/// tgtd's of iSER, and the one that it must have of iSCSI over TCP.
const PORT: u16 = 3260;
const OTHER_PORT: u16 = 5000;

#[test]
fn a_file_is_served_by_iser() {
    const LEN: usize = 1 << 20;
    /// What the test of writing writes, and how much of it at each end.
    const WRITTEN: (u8, usize) = (0xa6, 256 * 512);
    let Some(pair) = Pair::new(&["tgtd", "tgtadm", "iscsi-inq", "iscsi-test-cu"]) else { return };
    let folder = Folder::new("iscsi");
    let (file, control) = (folder.path("file"), folder.path("control"));
    fs::write(&file, vec![0; LEN]).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    let portal = format!("portal={}:{OTHER_PORT}", Ip::V4.server());
    let mut serve = pair.run(&["tgtd", "-f", "-C", "1", "--iscsi", &portal]);
    let mut server = pair.server.spawn(serve.env("TGT_IPC_SOCKET", &control));
    let ask = |words: &[&str]| {
        let words = [&["tgtadm", "-C", "1", "--lld", "iser"], words].concat();
        pair.server.output(ordinary(&words).env("TGT_IPC_SOCKET", &control))
    };
    // It listens before it hears what it is told.
    let hears = || ask(&["--mode", "sys", "--op", "show"]).status.success();
    let is_up = wait_until(|| !server.runs() || hears());
    assert!(is_up && server.runs() && listens(&pair.server, PORT), "{}", server.wait());
    let tell = |words: &[&str]| {
        let told = ask(&[words, &["--tid", "1"]].concat());
        assert!(told.status.success(), "{words:?}: {told}");
    };
    tell(&["--mode", "target", "--op", "new", "--targetname", TARGET]);
    let file_name = file.to_str().unwrap();
    tell(&["--mode", "logicalunit", "--op", "new", "--lun", "1", "-b", file_name]);
    // For iSER tgtd wants the address and the name of who comes to be let in, each.
    tell(&["--mode", "target", "--op", "bind", "-I", "ALL"]);
    tell(&["--mode", "target", "--op", "bind", "-Q", INITIATOR]);
    let url = format!("iser://{}:{PORT}/{TARGET}/1", Ip::V4.server());
    let asked = pair.call(&["iscsi-inq", "-i", INITIATOR, &url]);
    assert!(asked.status.success(), "{asked}\nat the server: {}", server.errors());
    assert!(asked.stdout.contains("DIRECT_ACCESS"), "{asked}");
    for test in ["SCSI.Read10.Simple", "SCSI.Write10.Simple"] {
        let options = ["-i", INITIATOR, "-I", INITIATOR, "--dataloss", "--fail", "-t", test];
        let words = [&["iscsi-test-cu"], &options[..], &[&url]].concat();
        let tested = pair.call(&words);
        assert!(tested.status.success(), "{tested}\nat the server: {}", server.errors());
        assert!(tested.stdout.contains("passed"), "{tested}");
    }
    let (byte, len) = WRITTEN;
    let content = fs::read(&file).unwrap();
    assert!(content[..len].iter().all(|read| *read == byte));
    assert!(content[LEN - len..].iter().all(|read| *read == byte));
    assert!(content[len..LEN - len].iter().all(|read| *read == 0));
}
