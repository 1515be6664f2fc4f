//! Instructions counted by callgrind: the same on a busy machine.

use std::process::Command;

use crate::Error;

/// Runs it; returns instructions for each of the packets whose number the program prints.
pub(crate) fn counted(valgrind: &mut Command) -> Result<f64, Error> {
    let failed = |why: String| Error::Failed { system: "callgrind", why };
    let output = match valgrind.output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let words = "counting instructions needs valgrind (apt install valgrind)";
            return Err(Error::Usage(words.to_owned()));
        }
        other => other.map_err(|cause| failed(cause.to_string()))?,
    };
    let words = String::from_utf8_lossy(&output.stderr);
    let packets = String::from_utf8_lossy(&output.stdout).trim().parse::<f64>().ok();
    let instructions = words
        .lines()
        .find_map(|line| line.split_once("Collected : "))
        .and_then(|(_, number)| number.trim().parse::<f64>().ok());
    match (output.status.success(), instructions, packets) {
        (true, Some(instructions), Some(packets)) if instructions > 0.0 => {
            Ok(instructions / packets)
        }
        _ => Err(failed(words.lines().last().unwrap_or("it said nothing").to_owned())),
    }
}
