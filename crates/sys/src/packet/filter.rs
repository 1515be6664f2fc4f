//! Filters of packet sockets: classic BPF (linux/filter.h).

use std::io;
use std::os::fd::BorrowedFd;

use crate::sockopt;

const ALL: u32 = u32::MAX;
const NONE: u32 = 0;

/// A load, a comparison or a return.
const fn operation(code: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

const fn load(size: u32, at: u32) -> libc::sock_filter {
    operation(libc::BPF_LD | size | libc::BPF_ABS, at, 0, 0)
}

/// Skips `then` operations if equal, else `otherwise`.
const fn if_equal(k: u32, then: u8, otherwise: u8) -> libc::sock_filter {
    operation(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, k, then, otherwise)
}

const fn verdict(k: u32) -> libc::sock_filter {
    operation(libc::BPF_RET | libc::BPF_K, k, 0, 0)
}

/// `SKF_AD_OFF + SKF_AD_VLAN_TAG_PRESENT`: whether the kernel has removed a VLAN tag.
const VLAN_TAG_PRESENT: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_VLAN_TAG_PRESENT) as u32;

/// Accepts all but DHCP to a client and router advertisements, by the rules of `configures` in
/// bpf/redirect.c.
const NO_CONFIGURATION: [libc::sock_filter; 21] = [
    load(libc::BPF_B, VLAN_TAG_PRESENT),
    if_equal(0, 0, 18),
    load(libc::BPF_H, 12),
    if_equal(libc::ETH_P_IP as u32, 0, 7),
    load(libc::BPF_B, 14 + 9),
    if_equal(libc::IPPROTO_UDP as u32, 0, 14),
    load(libc::BPF_H, 14 + 6),
    operation(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, 0x1fff, 12, 0),
    operation(libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH, 14, 0, 0),
    operation(libc::BPF_LD | libc::BPF_H | libc::BPF_IND, 14 + 2, 0, 0),
    if_equal(68, 8, 9),
    if_equal(libc::ETH_P_IPV6 as u32, 0, 8),
    load(libc::BPF_B, 14 + 6),
    if_equal(libc::IPPROTO_UDP as u32, 0, 2),
    load(libc::BPF_H, 14 + 40 + 2),
    if_equal(546, 3, 4),
    if_equal(libc::IPPROTO_ICMPV6 as u32, 0, 3),
    load(libc::BPF_B, 14 + 40),
    if_equal(134, 0, 1),
    verdict(NONE),
    verdict(ALL),
];

/// Accepts nothing.
const NOTHING: [libc::sock_filter; 1] = [verdict(NONE)];

/// Filters out packets that configure the interface.
pub(super) fn keep_configuration_out(fd: BorrowedFd<'_>) -> io::Result<()> {
    attach(fd, NO_CONFIGURATION)
}

/// Filters out all packets.
pub(super) fn keep_all_out(fd: BorrowedFd<'_>) -> io::Result<()> {
    attach(fd, NOTHING)
}

/// Attaches a filter in place of the one that the socket has.
fn attach<const N: usize>(
    fd: BorrowedFd<'_>,
    mut program: [libc::sock_filter; N],
) -> io::Result<()> {
    // The kernel copies the program.
    let filter = libc::sock_fprog { len: N as u16, filter: program.as_mut_ptr() };
    sockopt::set(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the program accepts a frame.
    fn passes(frame: &[u8], tagged: bool) -> bool {
        let (mut a, mut x, mut at) = (0u32, 0usize, 0usize);
        let word = |offset: usize, size: u32| -> Option<u32> {
            let length = if size == libc::BPF_H { 2 } else { 1 };
            let bytes = frame.get(offset..offset + length)?;
            Some(bytes.iter().fold(0, |value, byte| value << 8 | u32::from(*byte)))
        };
        loop {
            let operation = NO_CONFIGURATION[at];
            let (code, k) = (u32::from(operation.code), operation.k);
            let size = code & 0x18;
            let jump = |holds: bool| usize::from(if holds { operation.jt } else { operation.jf });
            at += 1;
            if code & 7 == libc::BPF_RET {
                return k == ALL;
            } else if k == VLAN_TAG_PRESENT {
                a = tagged.into();
            } else if code == libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH {
                x = usize::from(frame[k as usize] & 15) * 4;
            } else if code & 7 == libc::BPF_LD {
                let from = if code & 0xe0 == libc::BPF_IND { x } else { 0 };
                // A load from beyond the end ends the program with 0 (the frame is not received).
                let Some(loaded) = word(from + k as usize, size) else { return false };
                a = loaded;
            } else if code & 0xf0 == libc::BPF_JEQ {
                at += jump(a == k);
            } else {
                at += jump(a & k != 0);
            }
        }
    }

    fn ipv4(protocol: u8, fragment: u16, options: u8, port: u16) -> Vec<u8> {
        let mut frame = vec![0; 14 + 20 + 4 * usize::from(options) + 8];
        frame[12..14].copy_from_slice(&[8, 0]);
        frame[14] = 0x45 + options;
        frame[20..22].copy_from_slice(&fragment.to_be_bytes());
        frame[23] = protocol;
        let udp = 14 + 20 + 4 * usize::from(options);
        frame[udp + 2..udp + 4].copy_from_slice(&port.to_be_bytes());
        frame
    }

    fn ipv6(next: u8, first: u16, second: u16) -> Vec<u8> {
        let mut frame = vec![0; 14 + 40 + 8];
        frame[12..14].copy_from_slice(&[0x86, 0xdd]);
        frame[20] = next;
        frame[54..56].copy_from_slice(&first.to_be_bytes());
        frame[56..58].copy_from_slice(&second.to_be_bytes());
        frame
    }

    #[test]
    fn only_packets_that_configure_an_interface_are_filtered_out() {
        assert!(!passes(&ipv4(17, 0, 0, 68), false));
        assert!(!passes(&ipv4(17, 0x4000, 2, 68), false), "options, and DF");
        assert!(!passes(&ipv6(17, 547, 546), false));
        assert!(!passes(&ipv6(58, 134 << 8, 0), false));
        for (frame, tagged) in [
            (ipv4(17, 0, 0, 68), true),
            (ipv4(17, 0, 0, 67), false),
            (ipv4(6, 0, 0, 68), false),
            (ipv4(17, 7, 0, 68), false),
            (ipv6(17, 546, 68), false),
            (ipv6(58, 135 << 8, 0), false),
            (ipv6(6, 134 << 8, 546), false),
            (ipv6(58, 134 << 8, 0), true),
            (vec![0xff; 60], false),
        ] {
            assert!(passes(&frame, tagged), "{frame:?} {tagged}");
        }
    }
}
