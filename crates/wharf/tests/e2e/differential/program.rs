//! The program that runs under `wharf run`: these tests' own, started once more.

use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use nic::control::Client;
use sys::calls::{self, Signals};

use super::found;
use super::options::OPTIONS;
use super::pair::{Lab, run, shrink};
use super::step::Sequence;
use crate::setup::Ip;

/// The test that is the program.
pub(super) const NAME: &str = "differential::program::the_program_that_runs_under_wharf";
/// The network namespace of the peers, as a file.
pub(super) const PEERS: &str = "WHARF_CALLS_PEERS";
pub(super) const FIRST: &str = "WHARF_CALLS_FIRST";
pub(super) const COUNT: &str = "WHARF_CALLS_SEQUENCES";
/// It is there if the sequences are those of `found`, and not drawn.
pub(super) const FOUND: &str = "WHARF_CALLS_FOUND";
/// Seconds that lines may take to agree, in place of 30, and how many differences are looked for.
const SECONDS: &str = "WHARF_CALLS_PATIENCE";
const DIFFERENCES: &str = "WHARF_CALLS_DIFFERENCES";
/// How long all sequences of a test may take.
pub(super) const PATIENCE: Duration = Duration::from_secs(3600);

const PORT: u16 = 7100;

/// Which sequence and which step it is at, and how many steps it has done.
static AT: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

/// The sequence of this number.
fn sequence(number: u64) -> Sequence {
    if std::env::var_os(FOUND).is_some() {
        return found::all().swap_remove(number as usize);
    }
    Sequence::of(number, OPTIONS.len())
}

fn tell(step: usize) {
    AT[1].store(step as u64, Ordering::Relaxed);
    AT[2].fetch_add(1, Ordering::Relaxed);
}

#[test]
#[ignore = "the others run it, under `wharf run`"]
fn the_program_that_runs_under_wharf() {
    let number = |name, default| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let patience: u64 = number(SECONDS, 30);
    let (first, count) = (number(FIRST, 0), number(COUNT, 1));
    let differences = number(DIFFERENCES, 1);
    calls::count(Signals::Pipe, true).unwrap();
    watch(patience);
    let mut lab = lab(Duration::from_secs(patience));
    // Behind the name of the test.
    println!();
    let mut found = 0;
    for seed in first..first + count {
        AT[0].store(seed, Ordering::Relaxed);
        let sequence = sequence(seed);
        let Err(difference) = run(&mut lab, &sequence, seed, tell) else { continue };
        found += 1;
        println!("sequence {seed}, step {}: {}", difference.step, difference.words);
        for step in &sequence.steps[..=difference.step] {
            println!("    {step:?}");
        }
        lab.patience = Duration::from_secs(3);
        let least = shrink(&mut lab, &sequence, seed, tell);
        println!("the least of it, IPv{}:", if least.is_v6 { 6 } else { 4 });
        least.steps.iter().for_each(|step| println!("    {step:?}"));
        lab.patience = Duration::from_secs(patience);
        if found == differences {
            println!("differential: sequence {seed} differs");
            return;
        }
    }
    match found {
        0 => println!("differential: {count} sequences agree"),
        found => println!("differential: {found} of {count} sequences differ"),
    }
}

/// Says where it is if it does not go on, and ends.
fn watch(patience: u64) {
    thread::spawn(move || {
        let mut last = u64::MAX;
        loop {
            thread::sleep(Duration::from_secs(2 * patience + 5));
            let [seed, step, done] =
                [0, 1, 2].map(|which: usize| AT[which].load(Ordering::Relaxed));
            if done == last {
                let steps = sequence(seed).steps;
                let until = steps.len().min((step as usize).saturating_add(1));
                steps[..until].iter().for_each(|step| println!("    {step:?}"));
                println!("differential: sequence {seed} hangs in step {step}");
                std::process::exit(1);
            }
            last = done;
        }
    });
}

fn lab(patience: Duration) -> Lab {
    let namespace = File::open(std::env::var(PEERS).unwrap()).unwrap();
    let peers = Box::new(move |family| -> OwnedFd {
        // A socket stays in the namespace in which it was made.
        sys::netns::run_in(namespace.as_fd(), || calls::socket(family).unwrap()).unwrap()
    });
    let addresses = Ip::BOTH.map(|ip| SocketAddr::new(ip.server(), PORT));
    let listeners = addresses.map(|address| {
        let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        let listener = calls::socket(family).unwrap();
        calls::bind(&listener, address).unwrap();
        calls::listen(&listener, 64).unwrap();
        listener
    });
    let wharf = Client::connect(None).unwrap();
    Lab { listeners, addresses, peers, wharf, patience }
}
