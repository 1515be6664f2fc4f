//! What is tried is tried on this: a guest and a device, which are begun anew where it is necessary.

use std::path::{Path, PathBuf};

use super::build::{self, Image};
use super::case::{Case, Failed};
use super::device::{Device, Terms};
use super::guest::Guest;
use super::markers;
use super::pair::{Pair, Side};
use super::plan::{Boot, Step, Work};
use super::trace::Trace;
use crate::tree::Tree;

/// How often a pair is tried whose failures have an excuse.
const TRIES: u32 = 3;
/// The file of what is on the wire.
const WIRE: &str = "wire.pcap";
/// Nothing more is tried once so many guests did not boot, or did not answer.
const LOST: u32 = 2;

#[derive(Debug)]
pub(super) struct Stage<'a> {
    tree: &'a Tree,
    directory: PathBuf,
    image: Image,
    running: Option<Running>,
    lost: u32,
    /// Cases so far, whose traces have their numbers if they are kept.
    cases: u32,
}

/// A guest, and the device beside it.
#[derive(Debug)]
struct Running {
    boot: usize,
    guest: Guest,
    device: Option<(Terms, Device)>,
}

impl<'a> Stage<'a> {
    pub(super) fn new(tree: &'a Tree) -> Result<Self, String> {
        let directory = tree.path(super::DIRECTORY);
        let image = build::built(&directory)?;
        Ok(Stage { tree, directory, image, running: None, lost: 0, cases: 0 })
    }

    /// Why nothing more is tried, if so.
    pub(super) fn is_over(&self) -> Option<&'static str> {
        (self.lost >= LOST).then_some("guests were silent too often")
    }

    /// A line of the table, and what comes of it.
    pub(super) fn attempt(&mut self, step: &Step) -> (String, Result<(), Failed>) {
        let mut what = step.what.clone();
        let mut tried = 1;
        let outcome = loop {
            match self.attempt_once(step) {
                Err(Failed { excuse: Some(excuse), .. }) if tried < TRIES => {
                    what += &format!(" (again: {excuse})");
                }
                Ok(figure) => {
                    what.extend(figure.map(|figure| format!(": {figure}")));
                    break Ok(());
                }
                Err(failed) => break Err(failed),
            }
            tried += 1;
        };
        (what, outcome)
    }

    /// What was measured, if anything was to be.
    fn attempt_once(&mut self, step: &Step) -> Result<Option<String>, Failed> {
        let running = match self.running.take() {
            Some(running) if running.boot == step.boot.number => running,
            // The wire is for one guest.
            other => {
                drop(other);
                self.boot(step.boot)?
            }
        };
        let running = self.running.insert(running);
        let outcome = match &step.work {
            Work::Markers => {
                markers::refused(&mut running.guest).map(|()| None).map_err(Failed::from)
            }
            Work::Speed(speed) => speed.measure(&mut running.guest).map(Some).map_err(Failed::from),
            Work::Pair { terms, pair, client } => {
                self.cases += 1;
                let trace_name = format!("failed-{}.pcap", self.cases);
                let case = (*terms, pair, *client);
                running.pair(self.tree, &self.directory, case, &trace_name).map(|()| None)
            }
        };
        if running.guest.is_lost() {
            self.lost += u32::from(running.guest.is_silent());
            self.running = None;
        }
        outcome
    }

    fn boot(&mut self, boot: Boot) -> Result<Running, String> {
        let guest = Guest::boot(&self.image, boot.module, &self.directory.join(WIRE));
        self.lost += u32::from(guest.is_err());
        let guest = guest.map_err(|why| format!("{} does not boot: {why}", boot.module.file))?;
        Ok(Running { boot: boot.number, guest, device: None })
    }
}

impl Running {
    fn pair(
        &mut self,
        tree: &Tree,
        directory: &Path,
        (terms, pair, client): (Terms, &Pair, Side),
        trace_name: &str,
    ) -> Result<(), Failed> {
        let device = match self.device.take() {
            Some((of, device)) if of == terms => device,
            _ => Device::start(tree, terms)?,
        };
        let (_, device) = self.device.insert((terms, device));
        let trace = Trace::start(&directory.join(WIRE))?;
        Case { device, guest: &mut self.guest, pair, client }.run(trace, trace_name)
    }
}
