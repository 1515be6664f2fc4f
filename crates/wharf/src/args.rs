//! Arguments that several commands take.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

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
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("it is a number of seconds from 0.1 to 3600".to_owned()),
    }
}
