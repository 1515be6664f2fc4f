//! Commands as bytes: what is written reads back, and bytes that read as a command are what it writes.

use handoff::command::{CommandError, NicCommand, NicCounts, NicKind, OsCommand, OsCounts, OsKind};
use handoff::command::{NicControl, OsControl, nic, os};
use handoff::{Cid, Epoch, Named, Refusal};
use proptest::prelude::*;

proptest! {
    #[test]
    fn any_bytes_are_refused_or_written_the_same_again(bytes: [u8; 16]) {
        crate::given::commands(bytes);
    }

    /// Most random bytes have no opcode: here they do, and few bits are set.
    #[test]
    fn bytes_with_an_opcode_are_too(
        opcode in prop::sample::select(vec![1_u8, 2, 3, 4, 5, 6, 7, 0x81, 0x82, 0x83, 0x84, 0x85]),
        detail in 0_u8..32,
        cid: u32,
        epoch: u16,
        first in prop_oneof![Just(0), any::<u32>()],
        second in prop_oneof![0_u32..40, 0x100_u32..0x200, any::<u32>()],
    ) {
        let mut bytes = [0; 16];
        (bytes[0], bytes[1]) = (opcode, detail);
        bytes[2..4].copy_from_slice(&epoch.to_le_bytes());
        bytes[4..8].copy_from_slice(&cid.to_le_bytes());
        bytes[8..12].copy_from_slice(&first.to_le_bytes());
        bytes[12..].copy_from_slice(&second.to_le_bytes());
        crate::given::commands(bytes);
    }
}

#[test]
fn a_command_lies_in_its_bytes_as_documented() {
    let send = nic::Send {
        paddr: 0x0403_0201,
        len: 0x0807_0605,
        ..nic::Send::new(Cid(9), Epoch(0x1_0203))
    };
    let bytes = [3, 0, 3, 2, 9, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    assert_eq!(NicCommand::from(send).encode(), bytes);
    let refused =
        os::Ctrl { cmd: OsControl::Refused(Refusal::Mptcp), ..os::Ctrl::new(Cid(1), Epoch(1)) };
    assert_eq!(
        OsCommand::from(refused).encode(),
        [0x83, 3, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]
    );
}

#[test]
fn the_names_are_the_papers() {
    let names: Vec<_> = NicKind::ALL.iter().map(|kind| kind.name()).collect();
    let figure_4 = ["handoff", "restore", "send", "recvd", "ctrl", "forward", "post"];
    assert_eq!(names, figure_4.map(|name| format!("ch_nic_{name}")));
    let names: Vec<_> = OsKind::ALL.iter().map(|kind| kind.name()).collect();
    let figure_5 = ["recv", "ack", "ctrl", "resource", "restore"];
    assert_eq!(names, figure_5.map(|name| format!("ch_os_{name}")));
}

#[test]
fn no_side_takes_the_others_commands() {
    let bytes = NicCommand::from(nic::Recvd::new(Cid(1), Epoch(1))).encode();
    assert_eq!(OsCommand::decode(bytes), Err(CommandError::Opcode(4)));
    let bytes = OsCommand::from(os::Ack::new(Cid(1), Epoch(1))).encode();
    assert_eq!(NicCommand::decode(bytes), Err(CommandError::Opcode(0x82)));
}

#[test]
fn what_a_command_does_not_use_is_zero() {
    let mut bytes = NicCommand::from(nic::Recvd::new(Cid(1), Epoch(1))).encode();
    bytes[8] = 1;
    assert_eq!(NicCommand::decode(bytes), Err(CommandError::Reserved));
    let close = nic::Ctrl { cmd: NicControl::Close, ..nic::Ctrl::new(Cid(1), Epoch(1)) };
    let mut bytes = NicCommand::from(close).encode();
    bytes[15] = 1;
    assert_eq!(NicCommand::decode(bytes), Err(CommandError::Reserved));
}

#[test]
fn commands_are_counted_by_name() {
    let (mut nic, mut os) = (NicCounts::default(), OsCounts::default());
    nic.add(NicCommand::from(nic::Send::new(Cid(1), Epoch(1))).kind());
    nic.add(NicKind::Send);
    os.add(OsKind::Ack);
    assert_eq!(nic.entries().find(|(name, _)| *name == "ch_nic_send"), Some(("ch_nic_send", 2)));
    assert_eq!((nic.sum(), os.sum(), os.entries().count()), (2, 1, 5));
}
