//! Settings from the command line: a file, then single ones over it.

use nic::config::Config;

use crate::cli::Settings;
use crate::error::Error;

/// Reads and checks all settings; nothing is done with them yet.
pub(crate) fn load(settings: &Settings) -> Result<Config, Error> {
    let mut config = match &settings.config {
        None => Config::default(),
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .map_err(|cause| Error::ReadConfig { path: path.clone(), cause })?;
            Config::from_toml(&path.display().to_string(), &text)?
        }
    };
    for (key, value) in &settings.set {
        config.set(key, value)?;
    }
    Ok(config)
}
