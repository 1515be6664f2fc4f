//! What is on the wire, as QEMU writes it down. Of a case that has failed it is kept.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::stream::{self, Stream};

/// A file's header, and that of a packet, in libpcap's format.
const FILE_HEADER: usize = 24;
const PACKET_HEADER: usize = 16;

/// The part of a guest's file that is a case's.
#[derive(Debug)]
pub(super) struct Trace {
    file: PathBuf,
    begins: u64,
}

impl Trace {
    /// From what comes next to this file.
    pub(super) fn start(file: &Path) -> Result<Trace, String> {
        let metadata = fs::metadata(file).map_err(|error| told(file, &error))?;
        Ok(Trace { file: file.to_owned(), begins: metadata.len() })
    }

    /// A file of its own for what has come, of this name.
    pub(super) fn keep(&self, name: &str) -> Result<PathBuf, String> {
        let kept = self.file.with_file_name(name);
        let (header, packets) = self.read().map_err(|error| told(&self.file, &error))?;
        fs::write(&kept, [header, packets].concat()).map_err(|error| told(&kept, &error))?;
        Ok(kept)
    }

    /// The streams of FPDUs that this side has sent.
    pub(super) fn streams(&self) -> Result<Vec<Stream>, String> {
        let (_, packets) = self.read().map_err(|error| told(&self.file, &error))?;
        let mut frames = Vec::new();
        let mut rest = packets.as_slice();
        while let Some((header, behind)) = rest.split_first_chunk::<PACKET_HEADER>() {
            let &[_, _, _, _, _, _, _, _, a, b, c, d, ..] = header;
            let length = u32::from_ne_bytes([a, b, c, d]) as usize;
            let Some(frame) = behind.get(..length) else { break };
            frames.push(frame);
            rest = &behind[length..];
        }
        Ok(stream::of(&frames))
    }

    fn read(&self) -> std::io::Result<(Vec<u8>, Vec<u8>)> {
        let mut file = File::open(&self.file)?;
        let (mut header, mut packets) = (vec![0; FILE_HEADER], Vec::new());
        file.read_exact(&mut header)?;
        file.seek(SeekFrom::Start(self.begins))?;
        file.read_to_end(&mut packets)?;
        Ok((header, packets))
    }
}

fn told(file: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", file.display())
}
