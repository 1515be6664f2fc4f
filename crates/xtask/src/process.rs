//! Programs that the steps run.

use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

/// Runs a program with its output shown. The error says which command failed and how.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|error| cannot_start(command, &error))?;
    if status.success() { Ok(()) } else { Err(format!("`{}`: {status}", words(command))) }
}

/// Whether a program succeeds, and all that it writes, standard output first.
pub(crate) fn run_captured(command: &mut Command) -> Result<(bool, String), String> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| cannot_start(command, &error))?;
    let text = [output.stdout, output.stderr].concat();
    Ok((output.status.success(), String::from_utf8_lossy(&text).into_owned()))
}

/// What a program writes to standard output; it must succeed.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| cannot_start(command, &error))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("`{}`: {}\n{}", words(command), output.status, said.trim_end()))
}

/// Whether a program runs and succeeds; nothing of it is shown.
pub(crate) fn works(program: &str, arguments: &[&str]) -> bool {
    let quiet = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    quiet.is_ok_and(|status| status.success())
}

/// A program that is killed when this one ends, however that may be (PR_SET_PDEATHSIG).
pub(crate) fn ends_with_this(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// Whether a program of this name is found, in `PATH` or where only root's `PATH` looks.
pub(crate) fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin"].map(std::path::PathBuf::from);
    std::env::split_paths(&path).chain(system).any(|directory| directory.join(program).is_file())
}

/// A number of a command line: decimal, or hexadecimal with 0x.
pub(crate) fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Whether this process may install programs and make network namespaces.
pub(crate) fn is_root() -> bool {
    // /proc/self belongs to the effective user.
    std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

/// The command as one would type it, environment included, but for where programs are.
fn words(command: &Command) -> String {
    let set = command.get_envs().filter(|(name, _)| *name != "PATH").filter_map(|(name, value)| {
        Some(format!("{}={:?} ", name.to_string_lossy(), value?.to_string_lossy()))
    });
    let arguments = command.get_args().map(|argument| format!(" {}", argument.to_string_lossy()));
    let program = command.get_program().to_string_lossy();
    let program = program.rsplit('/').next().unwrap_or_default().to_owned();
    set.chain([program]).chain(arguments).collect()
}

fn cannot_start(command: &Command, error: &std::io::Error) -> String {
    format!("cannot start `{}`: {error}", words(command))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_the_command_and_its_status() {
        let error = run(Command::new("/bin/sh").args(["-c", "exit 3"]).env("WHY", "x y"));
        assert_eq!(error.unwrap_err(), "`WHY=\"x y\" sh -c exit 3`: exit status: 3");
        assert!(run(&mut Command::new("no-such-program")).unwrap_err().contains("cannot start"));
    }

    #[test]
    fn programs_are_looked_for_as_root_would() {
        assert!(is_installed("sh"));
        assert!(!is_installed("no-such-program"));
    }
}
