//! One sequence, three answers; and what is made of a difference.

use std::fmt::{self, Write};

use testkit::gro::{KernelGro, Seen};
use testkit::packet::PacketBuilder;
use wire::{Flags, GsoType, Headers, VirtioNetHdr};

use super::model::{self, Arrivals, Kernel, Out};
use super::packet::Packet;
use super::reasons::{Reason, Reasons, TABLE};
use super::wharf;

/// The kernel's GRO and what is known of it.
pub(crate) struct Oracles {
    pub(crate) gro: KernelGro,
    pub(crate) kernel: Kernel,
}

/// What a sequence came to.
#[derive(Debug)]
pub(crate) struct Verdict {
    /// How many frames it had.
    pub(crate) frames: u64,
    /// The kernel and wharf say the same, bytes and order.
    pub(crate) agrees: bool,
    /// They merge the same packets; what comes out has another order.
    pub(crate) only_order: bool,
    /// Why not, if not.
    pub(crate) reasons: Vec<Reason>,
    /// How many aggregates each has made, and of how many packets.
    pub(crate) kernel: Merged,
    pub(crate) wharf: Merged,
}

/// Aggregates, and the packets in them.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Merged {
    pub(crate) aggregates: u64,
    pub(crate) packets: u64,
}

impl Merged {
    fn of(outs: &[Out]) -> Self {
        let aggregates = outs.iter().filter(|out| out.vnet.is_some());
        let packets = aggregates.clone().map(|out| out.frames.len() as u64).sum();
        Merged { aggregates: aggregates.count() as u64, packets }
    }
}

/// An answer that the model does not foretell.
pub(crate) struct Disagreement {
    who: &'static str,
    frames: Vec<Vec<u8>>,
    expected: Vec<Out>,
    got: Vec<Out>,
}

impl Oracles {
    /// Sets up the kernel and finds out its version's ways; `None`, with the reason printed, where
    /// that cannot be.
    pub(crate) fn with<T: Send>(test: impl FnOnce(&mut Oracles) -> T + Send) -> Option<T> {
        KernelGro::with(|mut gro| {
            let kernel = probe(&mut gro);
            test(&mut Oracles { gro, kernel })
        })
    }

    /// What the kernel makes of frames. It does not say which frames an aggregate was.
    pub(crate) fn kernel(&mut self, frames: &[Vec<u8>]) -> Vec<Out> {
        self.gro.witnessed(frames).unwrap().into_iter().map(observed).collect()
    }

    /// Asks all three about the frames, or as many of them as the kernel has room for.
    pub(crate) fn check(&mut self, frames: &[Vec<u8>]) -> Result<Verdict, Disagreement> {
        let arrivals = Arrivals::new(frames).within_the_bucket(self.kernel);
        let frames = arrivals.frames();
        let kernel = self.kernel(frames);
        let model = model::run(&arrivals, self.kernel, Reasons::NONE);
        if !same(&kernel, &model) {
            let frames = frames.to_vec();
            return Err(Disagreement { who: "the kernel", frames, expected: model, got: kernel });
        }
        let wharf = wharf::run(frames);
        let model_of_wharf = model::run(&arrivals, self.kernel, Reasons::ALL);
        if wharf != model_of_wharf {
            let (frames, expected) = (frames.to_vec(), model_of_wharf);
            return Err(Disagreement { who: "wharf", frames, expected, got: wharf });
        }
        let agrees = same(&kernel, &wharf);
        Ok(Verdict {
            frames: frames.len() as u64,
            agrees,
            only_order: !agrees && sorted(&model) == sorted(&wharf),
            reasons: if agrees { Vec::new() } else { self.reasons(&arrivals) },
            kernel: Merged::of(&model),
            wharf: Merged::of(&wharf),
        })
    }

    /// The reasons that change something on the way from the kernel's rules to wharf's, taken up
    /// one after the other. As the ends differ, there is one.
    fn reasons(&self, arrivals: &Arrivals<'_>) -> Vec<Reason> {
        let mut taken = Reasons::NONE;
        let mut before = model::run(arrivals, self.kernel, taken);
        let mut found = Vec::new();
        for (reason, ..) in TABLE {
            taken = taken.with(reason);
            let after = model::run(arrivals, self.kernel, taken);
            if !same(&before, &after) {
                found.push(reason);
            }
            before = after;
        }
        found
    }

    /// The same disagreement in as few frames as leaving out one by one gets to.
    pub(crate) fn minimise(&mut self, found: Disagreement) -> Disagreement {
        let mut best = found;
        let mut at = 0;
        while at < best.frames.len() {
            let mut fewer = best.frames.clone();
            fewer.remove(at);
            match self.check(&fewer) {
                Err(smaller) if smaller.who == best.who => best = smaller,
                _ => at += 1,
            }
        }
        best
    }
}

/// Which frames came out together, whatever the order.
fn sorted(outs: &[Out]) -> Vec<&[usize]> {
    let mut groups: Vec<&[usize]> = outs.iter().map(|out| &out.frames[..]).collect();
    groups.sort();
    groups
}

/// What can be seen is the same, in the same order.
pub(crate) fn same(a: &[Out], b: &[Out]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.vnet == b.vnet && a.bytes == b.bytes)
}

/// What an AF_PACKET socket says. Of a packet as it came it may say that the checksum was
/// verified.
pub(crate) fn observed(seen: Seen) -> Out {
    let vnet = (seen.vnet.gso_type != GsoType::None || seen.vnet.needs_csum)
        .then_some(VirtioNetHdr { hdr_len: 0, ..seen.vnet });
    Out { vnet, bytes: seen.bytes, frames: Vec::new(), fixed_id: false }
}

/// What this kernel does with three pairs of segments that another version treats otherwise.
fn probe(gro: &mut KernelGro) -> Kernel {
    let mut merges = |change: fn(PacketBuilder, bool) -> PacketBuilder| {
        let segment = |n: u16| {
            let b = PacketBuilder::tcp4().id(1 + n).seq(1 + 100 * u32::from(n));
            change(b, n == 0).payload_pattern(100).build()
        };
        gro.witnessed(&[segment(0), segment(1)]).unwrap().len() == 1
    };
    assert!(merges(|b, _| b), "the kernel merges nothing");
    Kernel {
        vlan: merges(|b, _| b.vlan(100)),
        cwr: merges(|b, first| if first { b.flags(Flags::ACK.with(Flags::CWR)) } else { b }),
        fixed_id: merges(|b, _| b.id(7).dont_fragment(false)),
    }
}

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} does not do what the model of it does", self.who)?;
        for (n, frame) in self.frames.iter().enumerate() {
            writeln!(f, "  frame {n}: {}", describe(frame))?;
        }
        for (what, outs) in [("expected", &self.expected), ("got", &self.got)] {
            writeln!(f, "{what}:")?;
            for out in outs {
                let of = if out.frames.is_empty() {
                    String::new()
                } else {
                    format!("{:?} ", out.frames)
                };
                writeln!(f, "  {of}{:?} {}", out.vnet, describe(&out.bytes))?;
            }
        }
        Ok(())
    }
}

/// The headers in bytes, apart from each other.
fn describe(frame: &[u8]) -> String {
    let mut text = format!("{} bytes", frame.len());
    let mut part = |name: &str, bytes: &[u8]| {
        let _ = write!(text, "; {name} ");
        bytes.iter().for_each(|byte| _ = write!(text, "{byte:02x}"));
    };
    match Packet::read(frame) {
        Some(packet) => {
            part("link", &frame[..packet.network_at]);
            part("ip", packet.ip());
            part("tcp", packet.tcp());
            let _ = write!(
                text,
                "; payload {}, {:?}, checksums {} {}",
                packet.end as isize - packet.payload_at as isize,
                packet.length,
                packet.ip_checksum_ok(),
                packet.tcp_checksum_ok
            );
        }
        None => {
            part("frame", &frame[..frame.len().min(100)]);
            let _ = write!(text, "; {:?}", Headers::parse(frame));
        }
    }
    text
}
