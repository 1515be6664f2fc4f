//! What is loaded into programs, in front of libc or of libibverbs, and what it finds in their environment.

pub(crate) mod elf;
pub(crate) mod library;

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use handoff::session::{NICS_MAX, VERSION};
use nic::control::{self, Client};

use crate::error::Error;

/// The library of handoff.
pub(crate) const LIBRARY: &str = "libwharf.so";
/// That of verbs.
const RDMA_LIBRARY: &str = "libwharf_rdma.so";
/// Where the library reaches wharf.
pub(crate) const ADDRESS_VARIABLE: &str = "WHARF_HANDOFF";
/// By which policy connections move, if not by wharf's own.
pub(crate) const POLICY_VARIABLE: &str = "WHARF_HANDOFF_POLICY";

/// Whether this program was started by [`again_on_nic`], or by `wharf run`.
pub(crate) fn is_on_nic() -> bool {
    env::var_os(ADDRESS_VARIABLE).is_some()
}

/// This program again, with its arguments, and its connections for these NICs to run once it says so of each. Returns only
/// why not.
pub(crate) fn again_on_nic(nics: &[String]) -> Error {
    let again = || -> Result<Command, Error> {
        let (addresses, library) = (addresses(nics)?, library::handoff_library()?);
        let mut command = Command::new(env::current_exe().map_err(Error::Io)?);
        command.args(env::args_os().skip(1)).env("LD_PRELOAD", before_others(library));
        command.env(ADDRESS_VARIABLE, addresses).env(POLICY_VARIABLE, "by_hand");
        Ok(command)
    };
    match again() {
        Ok(mut command) => Error::Io(command.exec()),
        Err(error) => error,
    }
}

/// Where the wharfs of these host interfaces are, or all if none is named, as the library is told.
pub(crate) fn addresses(nics: &[String]) -> Result<String, Error> {
    let clients = Client::connect_each(nics);
    let clients = clients.map_err(|error| Error::Usage(error.to_string()))?;
    let several = nics.is_empty() && clients.len() > 1;
    let mut all = Vec::new();
    for mut client in clients {
        let stats = client.stats()?;
        let host = client.host();
        match stats["handoff"].as_str() {
            Some(_) if stats["handoff_version"] != VERSION => {
                return Err(Error::Usage(format!(
                    "the wharf of {host} that runs is of another build than this one: restart it"
                )));
            }
            Some(address) => all.push(address.to_owned()),
            None if several => {}
            None => {
                return Err(Error::Usage(format!(
                    "the wharf of {host} takes no connections over: it needs handoff.connections",
                )));
            }
        }
    }
    if all.is_empty() {
        return Err(Error::Usage(
            "no wharf here takes connections over: one needs handoff.connections".to_owned(),
        ));
    }
    if all.len() > NICS_MAX {
        return Err(Error::Usage(format!(
            "a program has connections with {NICS_MAX} wharfs at most: choose some with --nic"
        )));
    }
    if nics.is_empty() && all.iter().any(|address| address.starts_with('/')) {
        // Those that are started later, too.
        all.retain(|address| !address.starts_with('/'));
        all.push(control::all_handoffs().map_err(Error::Io)?);
    }
    Ok(all.join(" "))
}

/// `LD_PRELOAD` with this library in front of those that are there already.
pub(crate) fn before_others(library: PathBuf) -> OsString {
    let before = env::var_os("LD_PRELOAD").filter(|before| !before.is_empty());
    let mut preload = library.into_os_string();
    if let Some(before) = before {
        preload.push(":");
        preload.push(before);
    }
    preload
}
