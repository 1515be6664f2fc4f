//! Arguments that several commands take.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use nic::tcp::{Address, AddressError};

/// Where settings come from: the file first, then the command line.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Settings {
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// One setting, which overrides the file's; `wharf set --defaults` lists all keys
    #[arg(long, value_name = "KEY=VALUE", value_parser = assignment)]
    pub(crate) set: Vec<(String, String)>,
}

fn assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) => Ok((key.trim().to_owned(), value.trim().to_owned())),
        None => Err("a setting is KEY=VALUE, such as lro.enable=false".to_owned()),
    }
}

/// Reads how long something is measured.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    seconds_within(text, 0.1..=3600.0)
}

/// Reads a number of seconds in a range.
pub(crate) fn seconds_within(text: &str, range: RangeInclusive<f64>) -> Result<Duration, String> {
    let hint = match text.parse::<f64>() {
        Ok(seconds) if range.contains(&seconds) => return Ok(Duration::from_secs_f64(seconds)),
        Ok(_) => String::new(),
        Err(_) => seconds_hint(text, &range),
    };
    let (least, most) = (range.start(), range.end());
    Err(format!("it is a number of seconds from {least} to {most}{hint}"))
}

/// The question for the number that a time with its unit stands for.
fn seconds_hint(text: &str, range: &RangeInclusive<f64>) -> String {
    let time = degen::keys::time(text).ok().or_else(|| degen::keys::meant_time(text));
    let seconds = time.map(|time| time as f64 / 1e9).filter(|seconds| range.contains(seconds));
    seconds.map(|seconds| format!("; did you mean `{seconds}`?")).unwrap_or_default()
}

/// Reads an address with the length of its network's prefix. Without one it would be alone in its network, and reach no
/// other host.
pub(crate) fn address(text: &str) -> Result<Address, String> {
    if let Ok(ip) = text.parse::<IpAddr>() {
        let (length, alone) = if ip.is_ipv4() { (24, 32) } else { (64, 128) };
        return Err(format!(
            "the length of its network's prefix is missing: write it behind the address, as in {ip}/{length} \
             (/{alone} for a network of this address alone)"
        ));
    }
    text.parse().map_err(|error: AddressError| error.to_string())
}
