//! Laws for bytes from outside, which tests and fuzz targets share.
#![allow(dead_code, unreachable_pub)] // each user has its part

use handoff::command::{NicCommand, OsCommand};
use handoff::policy::Policy;

/// Bytes are refused, or are exactly what the command writes.
pub fn commands(bytes: [u8; 16]) {
    match NicCommand::decode(bytes) {
        Ok(command) => assert_eq!(command.encode(), bytes, "{command:?}"),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    match OsCommand::decode(bytes) {
        Ok(command) => assert_eq!(command.encode(), bytes, "{command:?}"),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// A text is refused in one line, or is a policy that is read again as it is written.
pub fn policy(text: &str) {
    match text.parse::<Policy>() {
        Ok(policy) => assert_eq!(policy.to_string().parse().as_ref(), Ok(&policy), "{policy}"),
        Err(error) => {
            let line = error.to_string();
            assert!(!line.is_empty() && !line.contains('\n') && line.len() < 400, "{line}");
        }
    }
}
