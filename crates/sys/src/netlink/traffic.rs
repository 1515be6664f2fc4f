//! What tc(8) has on an interface that decides about packets: filters, and queueing disciplines that do more than queue.

use super::{Connection, NLM_F_DUMP, append, attributes, number, text};
use crate::Result;

/// linux/rtnetlink.h, linux/pkt_sched.h.
const TCA_KIND: u16 = 1;
/// `TC_H_MAKE(TC_H_CLSACT, TC_H_MIN_INGRESS)`, and that of egress.
const HOOKS: [u32; 2] = [0xffff_fff2, 0xffff_fff3];
/// `struct tcmsg`: family and padding, index, handle, parent, info.
const TCMSG: usize = 20;
/// linux/if_link.h.
const IFLA_XDP: u16 = 43;
const IFLA_XDP_ATTACHED: u16 = 2;
/// `struct ifinfomsg`.
const IFINFOMSG: usize = 16;

/// Disciplines that let each packet pass, sooner or later, unless there is no room. Others delay, mark or drop by what
/// somebody has set.
const QUEUES: [&str; 13] = [
    "noqueue",
    "noop",
    "pfifo",
    "bfifo",
    "pfifo_fast",
    "pfifo_head_drop",
    "mq",
    "fq",
    "fq_codel",
    "codel",
    "fq_pie",
    "pie",
    "sfq",
];

/// Disciplines that are nothing but a place for filters.
const HOOKED: [&str; 2] = ["clsact", "ingress"];

/// A queueing discipline.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Discipline {
    /// Nobody has set it, if this is 0.
    handle: u32,
    kind: String,
}

impl Discipline {
    /// One of the interface with this index.
    fn new(message: &[u8], index: u32) -> Option<Discipline> {
        (number(message.get(4..8)?)? == index).then_some(())?;
        let handle = number(message.get(8..12)?)?;
        let mut all = attributes(message, TCMSG);
        let (_, kind) = all.find(|(kind, _)| *kind == TCA_KIND)?;
        Some(Discipline { handle, kind: text(kind) })
    }

    fn decides(&self) -> bool {
        let kind = self.kind.as_str();
        self.handle != 0 && !QUEUES.contains(&kind) && !HOOKED.contains(&kind)
    }
}

fn message(index: u32, parent: u32) -> Vec<u8> {
    let mut message = vec![0; TCMSG];
    message[4..8].copy_from_slice(&index.to_ne_bytes());
    message[12..16].copy_from_slice(&parent.to_ne_bytes());
    message
}

/// Whether tc decides about packets that leave by the interface with this index, or arrive there: a discipline
/// that does more than queue, or a filter of `clsact` or `ingress`. The connection is one of [`Protocol::Route`].
/// BPF that is linked (`BPF_LINK_CREATE`) is seen by [`crate::bpf`].
///
/// [`Protocol::Route`]: super::Protocol::Route
///
/// # Errors
/// The kernel's error. An interface that is gone has none.
pub fn decides(connection: &mut Connection, index: u32) -> Result<bool> {
    // Asked for one alone the kernel tells all who listen to changes.
    let what = "list the queueing disciplines";
    let all = connection.request(what, libc::RTM_GETQDISC, NLM_F_DUMP, &message(0, 0))?;
    let here: Vec<_> = all.iter().filter_map(|one| Discipline::new(one, index)).collect();
    if here.iter().any(Discipline::decides) {
        return Ok(true);
    }
    if !here.iter().any(|one| HOOKED.contains(&one.kind.as_str())) {
        return Ok(false);
    }
    for hook in HOOKS {
        let kind = libc::RTM_GETTFILTER;
        let what = "list the filters of tc";
        match connection.request(what, kind, NLM_F_DUMP, &message(index, hook)) {
            Ok(filters) if filters.is_empty() => {}
            Ok(_) => return Ok(true),
            // It is gone by now.
            Err(error) if super::is_absent(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

/// Whether an XDP program is attached to the interface with this index. The connection is one of [`Protocol::Route`].
///
/// [`Protocol::Route`]: super::Protocol::Route
///
/// # Errors
/// The kernel's error, such as `ENODEV` for an interface that is gone.
pub fn has_xdp(connection: &mut Connection, index: u32) -> Result<bool> {
    let mut message = vec![0; IFINFOMSG];
    message[4..8].copy_from_slice(&index.to_ne_bytes());
    // RTEXT_FILTER_SKIP_STATS, of IFLA_EXT_MASK: statistics are the largest part.
    append(&mut message, 29, &(1_u32 << 3).to_ne_bytes());
    let answers = connection.request("look at an interface", libc::RTM_GETLINK, 0, &message)?;
    Ok(answers.iter().any(|answer| xdp_attached(answer)))
}

fn xdp_attached(message: &[u8]) -> bool {
    let xdp = attributes(message, IFINFOMSG).find(|(kind, _)| *kind == IFLA_XDP);
    let attached = |(_, xdp)| attributes(xdp, 0).find(|(kind, _)| *kind == IFLA_XDP_ATTACHED);
    xdp.and_then(attached).is_some_and(|(_, value)| value.iter().any(|byte| *byte != 0))
}

#[cfg(test)]
mod tests {
    use super::super::Protocol;
    use super::*;
    use crate::interface::index;
    use crate::netlink::link::{VethEnd, create_veth};
    use crate::netlink::qdisc::set_fifo;
    use crate::netns::Namespace;
    use crate::process;
    use crate::xdp::{Mode, Redirect};
    use proptest::prelude::*;
    use std::process::Command;

    fn discipline(handle: u32, kind: &str) -> Discipline {
        let mut message = message(3, 0);
        message[8..12].copy_from_slice(&handle.to_ne_bytes());
        append(&mut message, TCA_KIND, kind.as_bytes());
        assert_eq!(Discipline::new(&message, 4), None);
        Discipline::new(&message, 3).unwrap()
    }

    #[test]
    fn what_somebody_has_set_and_does_more_than_queue_decides() {
        assert!(discipline(0x8001_0000, "tbf\0").decides());
        assert!(!discipline(0x8001_0000, "fq\0").decides());
        // A default: net.core.default_qdisc.
        assert!(!discipline(0, "cake\0").decides());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_discipline_or_none(bytes: Vec<u8>) {
            let index = bytes.get(4..8).and_then(number).unwrap_or(0);
            let _ = Discipline::new(&bytes, index).map(|discipline| discipline.decides());
            let _ = xdp_attached(&bytes);
        }
    }

    /// Whether it was done: a kernel may lack a part of tc, and a machine all of it.
    fn tc(words: &str) -> bool {
        let done = Command::new("tc").args(words.split(' ')).output();
        done.is_ok_and(|output| output.status.success())
    }

    #[test]
    fn filters_and_shapers_of_an_interface_are_seen() {
        if !process::has_net_admin() {
            return testkit::missing::lacks("CAP_NET_ADMIN, to make a veth");
        }
        let namespace = Namespace::new().unwrap();
        let lacking = namespace.run(|| {
            create_veth(&VethEnd::new("near0"), &VethEnd::new("far0")).unwrap();
            let near = index("near0").unwrap();
            let mut connection = Connection::open(Protocol::Route).unwrap();
            let mut seen = || decides(&mut connection, near).unwrap();
            assert!(!seen());
            set_fifo("near0", 100).unwrap();
            assert!(!seen(), "a queue decides nothing");
            let mut lacking = Vec::new();
            if tc("qdisc replace dev near0 root tbf rate 1gbit burst 100kb latency 10ms") {
                assert!(seen());
                assert!(tc("qdisc del dev near0 root"));
                assert!(!seen());
            } else {
                lacking.push("tbf");
            }
            if tc("qdisc add dev near0 clsact") {
                assert!(!seen(), "without filters it does nothing");
                for hook in ["ingress", "egress"] {
                    let filter = "protocol ip pref 1 u32 match u32 0 0";
                    if !tc(&format!("filter add dev near0 {hook} {filter}")) {
                        lacking.push(hook);
                        continue;
                    }
                    assert!(seen(), "{hook}");
                    assert!(tc(&format!("filter del dev near0 {hook}")));
                    assert!(!seen(), "{hook}");
                }
            } else {
                lacking.push("clsact");
            }
            lacking
        });
        let lacking = lacking.unwrap();
        if !lacking.is_empty() {
            testkit::missing::lacks(format!("tc: {lacking:?}"));
        }
    }

    #[test]
    fn an_xdp_program_of_an_interface_is_seen() {
        if !process::has_bpf() {
            return testkit::missing::lacks("root, to load an XDP program");
        }
        let namespace = Namespace::new().unwrap();
        let seen = namespace.run(|| {
            create_veth(&VethEnd::new("near0"), &VethEnd::new("far0")).unwrap();
            let near = index("near0").unwrap();
            let mut connection = Connection::open(Protocol::Route).unwrap();
            let before = has_xdp(&mut connection, near).unwrap();
            let program = Redirect::attach(near, Mode::Auto).unwrap();
            let with = has_xdp(&mut connection, near).unwrap();
            drop(program);
            [before, with, has_xdp(&mut connection, near).unwrap()]
        });
        assert_eq!(seen.unwrap(), [false, true, false]);
    }
}
