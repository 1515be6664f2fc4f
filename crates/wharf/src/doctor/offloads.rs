//! What the kernel does with super-packets: some kernels refuse certain forms, or cut them wrongly.

use std::time::{Duration, Instant};

use nic::port::tap::TapHost;
use nic::selftest::{self, Shape, Verdict};
use sys::ethtool::Ethtool;
use sys::interface::{self, Interface};
use sys::tap::{Offloads, Tap, TapError};

use super::{Finding, without_tap};

/// How long the kernel may take to activate a veth; usually less than a second.
const LINK_PATIENCE: Duration = Duration::from_secs(10);
/// The ends of the veth on which it is tried.
const NEAR: &str = "doctor-a";
const FAR: &str = "doctor-b";
/// Features that make an interface take super-packets as they are.
const FEATURES: [&str; 4] = [
    "tx-tcp-segmentation",
    "tx-tcp6-segmentation",
    "tx-tcp-ecn-segmentation",
    "tx-udp-segmentation",
];
/// The forms that are tried.
const TRIED: &str = "TCP and UDP, IPv4 and IPv6, full and short last segments";

/// What the kernel takes from a TAP's writer.
pub(super) fn tap() -> Vec<Finding> {
    let check = "TAP: aggregates";
    let tried = || -> Result<_, TapError> {
        let mut tap = Tap::create("doctor%d", 1)?;
        let taken = tap.set_offload(Offloads::ALL)?;
        let os = |cause: std::io::Error| TapError::Os {
            operation: "try",
            name: tap.name.clone(),
            cause,
        };
        interface::set_up(&tap.name).map_err(|error| os(error.into()))?;
        let queue = tap.queues.remove(0);
        let refused = selftest::refused_by(&mut TapHost::new(queue));
        Ok((
            taken,
            refused.map_err(|cause| TapError::Os { operation: "try", name: tap.name, cause })?,
        ))
    };
    match tried() {
        Ok((taken, refused)) => vec![of_refused(check, &refused), vxlan(taken)],
        Err(error) => vec![without_tap(check, &error)],
    }
}

fn of_refused(check: &str, refused: &[(Shape, Verdict)]) -> Finding {
    if refused.is_empty() {
        return Finding::ok(check, format!("taken: {TRIED}"));
    }
    let advice = "wharf does not merge these, and hands over their segments one by one (host_cut in `wharf stats`); a \
                  later kernel may take them";
    Finding::limited(check, format!("refused: {}", words(refused)), advice)
}

/// Whether what is in a tunnel comes to wharf as super-packets.
fn vxlan(taken: Offloads) -> Finding {
    let check = "TAP: VXLAN";
    if taken.udp_tunnel {
        return Finding::ok(check, "super-packets in a tunnel come whole (UDP_TUNNEL_GSO)");
    }
    let advice = "Linux 6.17 hands them over whole; where a card cuts them wrongly: ethtool -K IF \
                  tx-udp_tnl-segmentation off tx-udp_tnl-csum-segmentation off";
    Finding::limited(check, "the kernel cuts super-packets in a tunnel itself", advice)
}

/// How super-packets arrive at the other end of a veth: whole, and cut by the kernel. The pair is there.
pub(super) fn veth() -> Vec<Finding> {
    let tried = || -> sys::Result<_> {
        wait_until_operational()?;
        let (near, far) = (Interface::by_name(NEAR)?.index, Interface::by_name(FAR)?.index);
        let carry = || {
            selftest::segmentation(near, far, |_| true)
                .map_err(|error| sys::Error::new("send super-packets", error))
        };
        let whole = carry()?;
        let ethtool = Ethtool::open(NEAR)?;
        for feature in FEATURES {
            ethtool.set_feature(feature, false)?;
        }
        Ok((whole, carry()?))
    };
    match tried() {
        Ok((whole, cut)) => vec![
            of_verdicts(
                "veth: super-packets",
                &whole,
                |_| true,
                "on both ends: ethtool -K IF tso off tx-udp-segmentation off",
            ),
            of_verdicts(
                "kernel: TSO",
                &cut,
                |shape| !shape.udp,
                "leave it to the card, or to wharf behind its interface: ethtool -K IF tso on",
            ),
            of_verdicts(
                "kernel: USO",
                &cut,
                |shape| shape.udp,
                "leave it to the card, or to wharf behind its interface: ethtool -K IF tx-udp-segmentation on",
            ),
        ],
        Err(error) => {
            let advice = "wharf cuts and merges all the same; what the kernel does is not known";
            vec![Finding::limited("veth: super-packets", error.to_string(), advice)]
        }
    }
}

/// Waits for both ends: a kernel thread gives them their queueing disciplines some time after they are up, and until then
/// packets are lost.
fn wait_until_operational() -> sys::Result<()> {
    let begun = Instant::now();
    loop {
        let both = Interface::by_name(NEAR)?.operational && Interface::by_name(FAR)?.operational;
        if both || begun.elapsed() > LINK_PATIENCE {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn of_verdicts(
    check: &str,
    verdicts: &[(Shape, Verdict)],
    is_of: impl Fn(&Shape) -> bool,
    advice: &str,
) -> Finding {
    let of = |test: fn(Verdict) -> bool| -> Vec<(Shape, Verdict)> {
        verdicts.iter().copied().filter(|(shape, verdict)| is_of(shape) && test(*verdict)).collect()
    };
    let (bad, lost) = (of(Verdict::is_bad), of(|verdict| verdict == Verdict::Lost));
    if !bad.is_empty() {
        return Finding::limited(check, format!("wrong: {}", words(&bad)), advice);
    }
    if let [first, ..] = &lost[..] {
        let found = format!("did not arrive: {}", first.0.words());
        return Finding::limited(check, found, "nothing is known of the others; try again");
    }
    Finding::ok(check, "right, with full and short last segments, IPv4 and IPv6")
}

/// The forms, of which a few are named.
fn words(verdicts: &[(Shape, Verdict)]) -> String {
    let all: Vec<String> = verdicts.iter().map(|(shape, _)| shape.words()).collect();
    super::some(&all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Status;

    #[test]
    fn a_form_that_is_cut_wrongly_or_refused_is_named_with_what_helps() {
        let wrong = Shape { udp: true, v6: true, cwr: false, full: true };
        let verdict = |shape| if shape == wrong { Verdict::Wrong } else { Verdict::Right };
        let verdicts: Vec<_> = Shape::all().map(|shape| (shape, verdict(shape))).collect();
        let uso = of_verdicts("USO", &verdicts, |shape| shape.udp, "ethtool -K IF ...");
        assert_eq!(
            (uso.status, &uso.found[..]),
            (Status::Limited, "wrong: UDPv6 with a full last segment")
        );
        assert_eq!(uso.advice, "ethtool -K IF ...");
        assert_eq!(of_verdicts("TSO", &verdicts, |shape| !shape.udp, "").status, Status::Ok);
        let refused = of_refused("TAP", &[(wrong, Verdict::Refused(22))]);
        assert_eq!(refused.found, "refused: UDPv6 with a full last segment");
        assert!(refused.status == Status::Limited && refused.advice.contains("host_cut"));
        let lost = of_verdicts("USO", &[(wrong, Verdict::Lost)], |_| true, "");
        assert_eq!(lost.found, "did not arrive: UDPv6 with a full last segment");
        assert_eq!(of_refused("TAP", &[]).status, Status::Ok);
    }
}
