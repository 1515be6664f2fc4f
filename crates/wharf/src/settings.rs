//! Settings from the command line: a file, then single ones over it.

use std::path::Path;

use nic::config::Config;
use nic::degen;

use crate::args::Settings;
use crate::error::Error;

/// What the settings of a WAN between wire and wharf begin with.
pub(crate) const WAN: &str = "degen.";

/// Reads and checks all settings; nothing is done with them yet.
pub(crate) fn load(settings: &Settings) -> Result<Config, Error> {
    let mut config = match &settings.config {
        None => Config::default(),
        Some(path) => Config::from_toml(&path.display().to_string(), &read(path)?)?,
    };
    for (key, value) in &settings.set {
        config.set(key, value)?;
    }
    Ok(config)
}

/// A settings file's text.
pub(crate) fn read(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path)
        .map_err(|cause| Error::ReadConfig { path: path.to_owned(), cause })
}

/// A settings file of `wharf degen`.
pub(crate) fn load_degen(path: &Path) -> Result<degen::Settings, Error> {
    Ok(degen::Settings::from_toml(&path.display().to_string(), &read(path)?)?)
}
