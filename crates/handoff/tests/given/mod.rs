//! Laws for bytes from outside, which tests and fuzz targets share.
#![allow(dead_code, unreachable_pub)] // each user has its part

use handoff::command::{NicCommand, OsCommand};

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
