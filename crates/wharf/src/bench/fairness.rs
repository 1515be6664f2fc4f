//! `wharf bench fairness`.

use bench::fairness::{self, Options};
use nic::config::Choice;
use nic::port::shared::Order;

use super::report::Printer;
use super::runs;
use crate::cli::BenchFairnessArgs;
use crate::error::Error;

pub(super) fn run(args: &BenchFairnessArgs, printer: &mut Printer) -> Result<(), Error> {
    let options = Options {
        duration: args.seconds,
        workers: args.workers as usize,
        requests: args.requests,
        heavy: args.heavy as usize,
        openers: args.openers as usize,
        lro: args.lro.iter().map(|on| on == "on").collect(),
        orders: Order::VALUES.to_vec(),
        repetitions: 1,
        config: runs::prepare(&args.settings)?,
    };
    Ok(fairness::fairness(&options, printer)?)
}
