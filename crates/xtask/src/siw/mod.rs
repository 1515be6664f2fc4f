//! `cargo xtask siw`: wharf's RDMA device beside Linux siw, in a QEMU guest of Debian's packages.
//!
//! Both roles, both directions, revisions 1 and 2 of MPA, with CRCs and without; what is told of an access that is not
//! allowed; and siw's refusal of markers. It needs no root (`network`).

mod build;
mod device;
mod guest;
mod markers;
mod network;
mod pair;

use crate::Failure;
use crate::cargo::cargo;
use crate::process::run as run_program;
use crate::tree::Tree;
use build::Module;
use device::{Device, Terms};
use guest::Guest;
use pair::{Client, Pair};

/// The word by which this command runs itself in namespaces of its own.
const INSIDE: &str = "inside";

/// `cargo xtask siw`.
pub(crate) fn run(arguments: &[&str]) -> Result<(), Failure> {
    match arguments {
        [] => {}
        [INSIDE] => return inside().map_err(Failure::Failed),
        [other, ..] => return Err(Failure::Usage(format!("siw takes no `{other}`"))),
    }
    if let Some(why) = build::lacks().or_else(network::lacks) {
        println!("left out: siw in a guest: {why}");
        return Ok(());
    }
    outside().map_err(Failure::Failed)
}

/// Whatever is to be fetched or built, before there is no network.
fn outside() -> Result<(), String> {
    let tree = Tree::of_this_build();
    run_program(cargo(&tree).args(["build", "--quiet", "-p", "wharf", "-p", "verbs"]))?;
    println!("building the guest");
    build::image(&tree.path("target/siw"))?;
    network::inside(&["siw", INSIDE])
}

fn inside() -> Result<(), String> {
    let tree = Tree::of_this_build();
    network::make()?;
    let mut tried = Tried {
        tree: &tree,
        guest: Guest::boot(&build::built(&tree.path("target/siw"))?)?,
        ok: 0,
        failed: 0,
    };
    // siw has no parameter for the revision that it asks by.
    for (revision, module) in [(2, &build::REVISION_2), (1, &build::REVISION_1)] {
        tried.guest.load(module)?;
        for crc in [true, false] {
            let terms = Terms { revision, crc };
            tried.pairs(terms, &pair::on_all_terms())?;
            tried.sides(terms, &[pair::server_first()], &[Client::Here])?;
            if revision == 2 {
                tried.pairs(terms, &pair::on_usual_terms())?;
            }
        }
    }
    tried.siw_asks_for_crc(&build::WITH_CRC)?;
    // The last, as siw has connections then that were not ended.
    let refused = markers::refused(&mut tried.guest);
    tried.judge("siw refuses markers, and takes what wharf asks for", refused.map(drop));
    println!("{} ok, {} failed", tried.ok, tried.failed);
    match tried.failed {
        0 => Ok(()),
        failed => Err(format!("{failed} failed beside siw")),
    }
}

/// How often a pair is tried whose failures have an excuse.
const TRIES: u32 = 5;

/// Why a failure that says this is not wharf's.
fn excuse(why: &str) -> Option<&'static str> {
    let of = [
        // The server listens once for what the two say to each other, and once more for the test.
        ("EVENT_REJECTED", "the program's server did not listen yet for its second connection"),
        ("Event rejected", "the program's server did not listen yet for its second connection"),
        ("Failed to close connection", "perftest's other side had closed before it had said so"),
        ("not read: ", "siw has not looked at what has come behind its reply"),
    ];
    of.iter().find_map(|(says, excuse)| why.contains(says).then_some(*excuse))
}

/// The last lines of it.
fn last(said: &str) -> String {
    let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}

/// What was tried so far, and with what.
struct Tried<'a> {
    tree: &'a Tree,
    guest: Guest,
    ok: u32,
    failed: u32,
}

impl Tried<'_> {
    /// A pair that fails for a reason that is not wharf's is tried again, which is told.
    fn pair(&mut self, device: &Device, pair: &Pair, client: Client, terms: &str) {
        let mut what = format!("{terms}, {client}: {}", pair.name);
        for tried in 1..=TRIES {
            let outcome = device.run(&mut self.guest, pair, client);
            let Err(why) = outcome else { return self.judge(&what, Ok(())) };
            match excuse(&why) {
                Some(excuse) if tried < TRIES => what += &format!(" (again: {excuse})"),
                _ => return self.judge(&what, Err(last(&why))),
            }
        }
    }

    fn judge(&mut self, what: &str, outcome: Result<(), String>) {
        match outcome {
            Ok(()) => {
                self.ok += 1;
                println!("ok      {what}");
            }
            Err(why) => {
                self.failed += 1;
                println!("FAILED  {what}\n{why}");
            }
        }
    }

    /// Both sides of all of them.
    fn pairs(&mut self, terms: Terms, pairs: &[Pair]) -> Result<(), String> {
        self.sides(terms, pairs, &Client::BOTH)
    }

    /// These sides of all of them.
    fn sides(&mut self, terms: Terms, pairs: &[Pair], sides: &[Client]) -> Result<(), String> {
        let device = Device::start(self.tree, terms)?;
        let crc = if terms.crc { "with" } else { "without" };
        for pair in pairs {
            for client in sides.iter().copied() {
                let terms = format!("revision {}, {crc} CRC", terms.revision);
                self.pair(&device, pair, client, &terms);
            }
        }
        Ok(())
    }

    /// CRCs that siw asks for, and wharf does not.
    fn siw_asks_for_crc(&mut self, module: &Module) -> Result<(), String> {
        self.guest.load(module)?;
        let device = Device::start(self.tree, Terms { revision: 2, crc: false })?;
        for pair in pair::where_siw_asks() {
            for client in Client::BOTH {
                self.pair(&device, &pair, client, "siw asks for CRC");
            }
        }
        Ok(())
    }
}
