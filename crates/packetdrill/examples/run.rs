//! Runs scripts against the engine: `cargo run -p packetdrill --example run -- FILE...`

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut failed = 0;
    for path in std::env::args().skip(1) {
        let result = match std::fs::read_to_string(&path) {
            Ok(text) => packetdrill::runner::run(&text).map_err(|failure| failure.to_string()),
            Err(error) => Err(format!(" {error}")),
        };
        match result {
            Ok(()) => println!("passed {path}"),
            Err(why) => {
                println!("FAILED {path}:{why}");
                failed += 1;
            }
        }
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
