//! `wharf run`: a program whose TCP connections the NIC may run.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use handoff::policy::{Policy, PolicyError};
use nic::control::Client;

use crate::error::Error;

/// Run a program whose TCP connections wharf may take over
///
/// The kernel listens, accepts and connects as ever. Connections that the policy picks move to wharf's TCP while they
/// live, and back; the program notices nothing. It must be in the network namespace of a `wharf up`.
#[derive(Debug, Args)]
#[command(after_help = "Example: a web server whose connections move after 64 KB:\n  \
                        wharf run -- nginx -g 'daemon off;'\n\n\
                        Example: all connections of port 6379 at once:\n  \
                        wharf run --policy 'at_accept ports=6379' -- redis-server")]
pub(crate) struct RunArgs {
    /// Which wharf, if several run here: its host interface
    #[arg(long, value_name = "NAME")]
    nic: Option<String>,
    /// Which connections move, and when: none, by_hand, at_accept, after=64KB, after=2s; and of which ports:
    /// ports=80,443. Without it that of wharf (handoff.policy), which may change
    #[arg(long, value_name = "POLICY")]
    policy: Option<String>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// The library that is loaded into the program.
const LIBRARY: &str = "libwharf.so";
/// Names a library to use in place of that beside wharf.
const LIBRARY_VARIABLE: &str = "WHARF_LIBRARY";

pub(crate) fn run(args: &RunArgs) -> Result<(), Error> {
    let policy: Option<Policy> = args
        .policy
        .as_deref()
        .map(str::parse)
        .transpose()
        .map_err(|error: PolicyError| Error::Usage(format!("--policy: {error}")))?;
    let mut client =
        Client::connect(args.nic.as_deref()).map_err(|error| Error::Usage(error.to_string()))?;
    let stats = client.stats()?;
    let Some(address) = stats["handoff"].as_str() else {
        return Err(Error::Usage(format!(
            "the wharf of {} takes no connections over: it needs handoff.connections, and one worker \
             (--set workers=1)",
            client.host()
        )));
    };
    let library = library()?;
    let [program, arguments @ ..] = &args.command[..] else { return Ok(()) };
    let path = find(program)?;
    check(&path)?;
    let before = env::var_os("LD_PRELOAD").filter(|before| !before.is_empty());
    let mut preload = library.into_os_string();
    if let Some(before) = before {
        preload.push(":");
        preload.push(before);
    }
    let mut command = Command::new(&path);
    command.arg0(program).args(arguments);
    command.env("LD_PRELOAD", preload).env("WHARF_HANDOFF", address);
    if let (Some(_), Some(text)) = (policy, &args.policy) {
        command.env("WHARF_HANDOFF_POLICY", text);
    }
    let error = command.exec();
    Err(Error::Usage(format!("cannot run {}: {error}", path.display())))
}

/// The library beside this program, or in the `lib` beside its folder.
pub(crate) fn library() -> Result<PathBuf, Error> {
    if let Some(path) = env::var_os(LIBRARY_VARIABLE).map(PathBuf::from) {
        return exists(&path).then_some(path.clone()).ok_or_else(|| {
            Error::Usage(format!("{LIBRARY_VARIABLE}={}: there is no such file", path.display()))
        });
    }
    let own = env::current_exe().map_err(Error::Io)?;
    let folder = own.parent().unwrap_or(Path::new("/"));
    let candidates = [folder.join(LIBRARY), folder.join("../lib").join(LIBRARY)];
    candidates.iter().find(|path| exists(path)).cloned().ok_or_else(|| {
        Error::Usage(format!(
            "there is no {LIBRARY} beside {}: build it with `cargo build --release`",
            own.display()
        ))
    })
}

fn exists(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.is_file())
}

/// The program's file, as a shell finds it.
fn find(program: &OsStr) -> Result<PathBuf, Error> {
    let path = Path::new(program);
    let none = || Error::Usage(format!("there is no program {}", path.display()));
    if path.components().count() > 1 {
        return exists(path).then(|| path.to_owned()).ok_or_else(none);
    }
    let folders = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&folders)
        .map(|folder| folder.join(path))
        .find(|path| exists(path))
        .ok_or_else(none)
}

/// Refuses programs into which no library is loaded.
fn check(path: &Path) -> Result<(), Error> {
    let refuse =
        |why: &str| Err(Error::Usage(format!("{} cannot be run so: {why}", path.display())));
    let file = fs::metadata(path).map_err(Error::Io)?;
    const SET_ID: u32 = 0o6000;
    if file.mode() & SET_ID != 0 && !sys::process::is_root() {
        return refuse("it is setuid or setgid, and then nothing is loaded into it");
    }
    match is_static(path) {
        Some(true) => refuse("it is statically linked, and then nothing is loaded into it"),
        // Scripts run by what they name, which is looked at by nothing.
        _ => Ok(()),
    }
}

/// Whether an ELF file asks for no dynamic linker (elf(5)); `None` if it is no ELF file.
fn is_static(path: &Path) -> Option<bool> {
    const PT_INTERP: u32 = 3;
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(4096).read_to_end(&mut bytes).ok()?;
    if !bytes.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let half = |at: usize| Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    let word = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    let begin = usize::try_from(u64::from_le_bytes(*bytes.get(32..)?.first_chunk()?)).ok()?;
    let (size, count) = (usize::from(half(54)?), usize::from(half(56)?));
    let kinds = (0..count).map(|at| word(begin.checked_add(at * size)?));
    Some(!kinds.flatten().any(|kind| kind == PT_INTERP))
}
