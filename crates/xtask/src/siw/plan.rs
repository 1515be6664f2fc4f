//! What is tried, in order.

use super::build::{self, Module};
use super::device::Terms;
use super::pair::{Pair, Side};
use super::speed::{self, Speed};

/// A line of the table.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) what: String,
    /// The guest that it runs in.
    pub(super) boot: Boot,
    pub(super) work: Work,
}

/// A guest, by its number, and the build of siw that it has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Boot {
    pub(super) number: usize,
    pub(super) module: &'static Module,
}

#[derive(Debug)]
pub(super) enum Work {
    /// What wharf asks for, and where the client runs.
    Pair { terms: Terms, pair: Pair, client: Side },
    /// What siw answers to requests for markers.
    Markers,
    /// How fast siw is without wharf.
    Speed(Speed),
}

const REVISION_2: Boot = Boot { number: 1, module: &build::REVISION_2 };
// siw has no parameter for the revision that it asks by.
const REVISION_1: Boot = Boot { number: 2, module: &build::REVISION_1 };
const WITH_CRC: Boot = Boot { number: 3, module: &build::WITH_CRC };
const ALONE: Boot = Boot { number: 4, module: &build::REVISION_2 };
/// One of its own, as siw has connections then that were not ended.
const MARKERS: Boot = Boot { number: 5, module: &build::REVISION_2 };

/// All of it.
pub(super) fn all() -> Vec<Step> {
    let usual = Terms { revision: 2, crc: true };
    let mut steps = pairs(REVISION_2, usual, &usual_pairs(), &Side::BOTH);
    steps.extend(pairs(REVISION_2, usual, &[server_first()], &[Side::Here]));
    let rping = [Pair::rping("-C 20")];
    for (boot, revision, crc) in
        [(REVISION_2, 2, false), (REVISION_1, 1, true), (REVISION_1, 1, false)]
    {
        let terms = Terms { revision, crc };
        // By revision 1 no server of siw's may read, as that of rping does: none says how many reads it takes, and for siw that
        // is none. Beside siw itself it fails as well.
        let clients: &[Side] = if revision == 1 { &[Side::Guest] } else { &Side::BOTH };
        steps.extend(pairs(boot, terms, &rping, clients));
        steps.extend(pairs(boot, terms, &few_pairs(), &Side::BOTH));
    }
    let terms = Terms { revision: 2, crc: false };
    let asked = pairs(WITH_CRC, terms, &pairs_where_siw_asks(), &Side::BOTH);
    steps.extend(
        asked.into_iter().map(|step| Step {
            what: step.what.replace("without CRC", "siw asks for CRC"),
            ..step
        }),
    );
    steps.extend(speed::ALL.map(|speed| Step {
        what: format!("siw beside itself: {}", speed.words),
        boot: ALONE,
        work: Work::Speed(speed),
    }));
    steps.push(Step {
        what: "siw refuses markers, and takes what wharf asks for".to_owned(),
        boot: MARKERS,
        work: Work::Markers,
    });
    steps
}

/// These sides of all of them.
fn pairs(boot: Boot, terms: Terms, pairs: &[Pair], clients: &[Side]) -> Vec<Step> {
    let crc = if terms.crc { "with" } else { "without" };
    let step = |pair: &Pair, client: Side| Step {
        what: format!("revision {}, {crc} CRC, {client}: {}", terms.revision, pair.name),
        boot,
        work: Work::Pair { terms, pair: pair.clone(), client },
    };
    pairs.iter().flat_map(|pair| clients.iter().map(move |client| step(pair, *client))).collect()
}

/// What runs on the terms that wharf has by itself.
fn usual_pairs() -> Vec<Pair> {
    let mut pairs = vec![Pair::rping("-C 20"), Pair::rping("-C 5 -S 65000")];
    for program in ["ib_write_bw", "ib_read_bw", "ib_send_bw"] {
        pairs.push(Pair::perftest(program, "-s 65536 -n 100"));
        // The last FPDU of each message is padded.
        pairs.push(Pair::perftest(program, "-s 1021 -n 1000"));
        for size in [2, 4_097, 1_048_576] {
            pairs.push(Pair::perftest(program, &format!("-s {size} -n 5")));
        }
        pairs.push(Pair::perftest(program, "-b -s 65536 -n 100"));
    }
    for program in ["ib_read_lat", "ib_send_lat"] {
        pairs.push(Pair::perftest(program, "-s 64 -n 100"));
    }
    // Of ib_send_bw the client sleeps then until something completes, also once it has sent all for which it has credits: a
    // credit is no completion.
    for program in ["ib_read_bw", "ib_read_lat", "ib_send_lat"] {
        pairs.push(Pair::perftest(program, "-e -s 4096 -n 100"));
    }
    // Others need immediate data, or longer queues than siw has.
    pairs.push(Pair::qperf("rc_lat"));
    pairs.extend([Pair::denied_write(), Pair::denied_read()]);
    pairs
}

/// What runs on the others, beside rping.
fn few_pairs() -> [Pair; 4] {
    [
        Pair::perftest("ib_write_bw", "-s 65536 -n 100"),
        Pair::perftest("ib_read_bw", "-s 1021 -n 1000"),
        Pair::perftest("ib_send_bw", "-s 65536 -n 100"),
        Pair::denied_write(),
    ]
}

/// The server of this one sends first. A responder may not (RFC 5044 section 7.1), unless the initiator has said that it is
/// ready, which siw offers in no case by itself.
fn server_first() -> Pair {
    Pair::perftest("ib_write_lat", "-s 64 -n 100")
}

/// What runs where siw asks for CRCs, and says that it is ready.
fn pairs_where_siw_asks() -> [Pair; 3] {
    [Pair::rping("-C 20"), Pair::perftest("ib_write_bw", "-s 65536 -n 100"), server_first()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_musts_of_rdma_name_lines_that_there_are() {
        let table = include_str!("../../../../docs/rdma-musts.md");
        let (_, of_siw) = table.split_once("## Beside Linux siw").expect("it has that section");
        let lines = of_siw.lines().filter(|line| line.starts_with('|'));
        let words: Vec<&str> = lines.flat_map(|line| line.split('`').skip(1).step_by(2)).collect();
        assert!(words.len() > 15, "{words:?}");
        let steps = all();
        for words in words {
            assert!(steps.iter().any(|step| step.what.contains(words)), "no line has `{words}`");
        }
    }

    #[test]
    fn each_line_is_another() {
        let steps = all();
        let lines: BTreeSet<&str> = steps.iter().map(|step| step.what.as_str()).collect();
        assert_eq!(lines.len(), steps.len());
        let boots: Vec<usize> = steps.iter().map(|step| step.boot.number).collect();
        assert!(boots.is_sorted());
    }
}
