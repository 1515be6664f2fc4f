//! Programs and libraries, as far as the kernel and the dynamic linker look at them (elf(5)).

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// `EM_X86_64`.
const X86_64: u16 = 62;
const CLASS_64: u8 = 2;
const LITTLE_ENDIAN: u8 = 1;
const PT_INTERP: u32 = 3;
const PT_NOTE: u32 = 4;
/// `struct Elf64_Ehdr` and `struct Elf64_Phdr`.
const HEADER: usize = 64;
const SEGMENT: usize = 56;
/// Segments that are looked at, and bytes of one.
const SEGMENTS_MAX: usize = 512;
const BYTES_MAX: u64 = 64 << 10;

/// What a file is to the kernel.
#[derive(Debug)]
pub(crate) enum Kind {
    /// A program or library of this machine's kind.
    Native(Elf),
    /// One of 32 bits, or of another machine.
    Foreign,
    /// A script, with the line behind `#!`.
    Script(Vec<u8>),
    /// Nothing that the kernel executes by itself.
    Other,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Elf {
    /// The dynamic linker that it asks for; `None` if it is statically linked.
    pub(crate) interpreter: Option<Vec<u8>>,
    pub(crate) notes: Vec<Note>,
}

/// What a note says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Note {
    /// Whose it is.
    pub(crate) name: Vec<u8>,
    pub(crate) kind: u32,
    pub(crate) text: Vec<u8>,
}

impl Elf {
    /// Whether there is a note of this name.
    pub(crate) fn has_note_of(&self, name: &[u8]) -> bool {
        self.notes.iter().any(|note| note.name == name)
    }
}

/// What a file is.
///
/// # Errors
/// That it cannot be read. What is damaged is as if it were not there.
pub(crate) fn kind(path: &Path) -> io::Result<Kind> {
    let file = File::open(path)?;
    let mut first = Vec::new();
    // The kernel looks no further for the interpreter of a script (`BINPRM_BUF_SIZE`).
    (&file).take(256).read_to_end(&mut first)?;
    if let Some(line) = first.strip_prefix(b"#!") {
        let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
        return Ok(Kind::Script(line.trim_ascii().to_vec()));
    }
    let Some(header) = first.first_chunk::<HEADER>().filter(|h| h.starts_with(b"\x7fELF")) else {
        return Ok(Kind::Other);
    };
    let is_native = header[4..6] == [CLASS_64, LITTLE_ENDIAN] && half(header, 18) == X86_64;
    Ok(if is_native { Kind::Native(segments(&file, header)) } else { Kind::Foreign })
}

fn segments(file: &File, header: &[u8; HEADER]) -> Elf {
    let (at, size, count) = (long(header, 32), half(header, 54), half(header, 56));
    let mut elf = Elf::default();
    for number in 0..usize::from(count).min(SEGMENTS_MAX) as u64 {
        let mut segment = [0; SEGMENT];
        let place = number.checked_mul(size.into()).and_then(|offset| at.checked_add(offset));
        let read = place.map(|place| file.read_exact_at(&mut segment, place));
        if !matches!(read, Some(Ok(()))) {
            break;
        }
        let body = || bytes(file, long(&segment, 8), long(&segment, 32));
        match word(&segment, 0) {
            PT_INTERP => {
                let name = body().unwrap_or_default();
                elf.interpreter =
                    Some(name.split(|byte| *byte == 0).next().unwrap_or_default().to_vec());
            }
            PT_NOTE => elf.notes.extend(body().map(|body| notes(&body)).unwrap_or_default()),
            _ => {}
        }
    }
    elf
}

fn bytes(file: &File, at: u64, len: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(len.min(BYTES_MAX)).ok()?];
    file.read_exact_at(&mut bytes, at).ok()?;
    Some(bytes)
}

fn notes(mut bytes: &[u8]) -> Vec<Note> {
    let mut all = Vec::new();
    while let Some((header, rest)) = bytes.split_first_chunk::<12>() {
        let padded = |at: usize| (word(header, at) as usize).next_multiple_of(4);
        let Some((name, rest)) = rest.split_at_checked(padded(0)) else { break };
        // The last may lack its padding.
        let (text, rest) = rest.split_at_checked(padded(4)).unwrap_or((rest, &[]));
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        let text = &text[..text.len().min(word(header, 4) as usize)];
        all.push(Note { name: name.to_vec(), kind: word(header, 8), text: text.to_vec() });
        bytes = rest;
    }
    all
}

fn half(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).copied().map_or(0, u16::from_le_bytes)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).copied().map_or(0, u32::from_le_bytes)
}

fn long(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).copied().map_or(0, u64::from_le_bytes)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A program of 64 bits with these segments.
    pub(crate) fn program(segments: &[(u32, &[u8])]) -> Vec<u8> {
        let mut header = vec![0; HEADER];
        header[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', CLASS_64, LITTLE_ENDIAN, 1]);
        header[18..20].copy_from_slice(&X86_64.to_le_bytes());
        header[32..40].copy_from_slice(&(HEADER as u64).to_le_bytes());
        header[54..56].copy_from_slice(&(SEGMENT as u16).to_le_bytes());
        header[56..58].copy_from_slice(&(segments.len() as u16).to_le_bytes());
        let mut at = HEADER + SEGMENT * segments.len();
        let mut bodies = Vec::new();
        for (kind, body) in segments {
            let mut segment = [0; SEGMENT];
            segment[..4].copy_from_slice(&kind.to_le_bytes());
            segment[8..16].copy_from_slice(&(at as u64).to_le_bytes());
            segment[32..40].copy_from_slice(&(body.len() as u64).to_le_bytes());
            header.extend(segment);
            bodies.extend_from_slice(body);
            at += body.len();
        }
        [header, bodies].concat()
    }

    pub(crate) fn note(name: &[u8], kind: u32, text: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for number in [name.len() as u32 + 1, text.len() as u32, kind] {
            bytes.extend(number.to_le_bytes());
        }
        for part in [name, &b"\0"[..]] {
            bytes.extend_from_slice(part);
        }
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes.extend_from_slice(text);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn kind_of(name: &str, bytes: &[u8]) -> Kind {
        let path = std::env::temp_dir().join(format!("wharf-elf-{name}-{}", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        let kind = kind(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        kind
    }

    #[test]
    fn a_program_says_what_it_is_linked_with() {
        let notes = [note(b"GNU", 3, b"12345"), note(b"wharf", 2, b"0.1.0")].concat();
        let linker = b"/lib64/ld-linux-x86-64.so.2\0";
        let bytes = program(&[(1, b"code"), (PT_INTERP, linker), (PT_NOTE, &notes)]);
        let Kind::Native(elf) = kind_of("whole", &bytes) else { panic!("it is one") };
        assert_eq!(elf.interpreter.as_deref(), Some(&b"/lib64/ld-linux-x86-64.so.2"[..]));
        assert!(elf.has_note_of(b"wharf") && !elf.has_note_of(b"Go"));
        assert_eq!(
            elf.notes[1],
            Note { name: b"wharf".to_vec(), kind: 2, text: b"0.1.0".to_vec() }
        );
        let Kind::Native(own) = kind(Path::new("/proc/self/exe")).unwrap() else { panic!("ours") };
        assert!(own.has_note_of(b"GNU"));
        let mut narrow = bytes.clone();
        narrow[4] = 1;
        assert!(matches!(kind_of("narrow", &narrow), Kind::Foreign));
        let Kind::Script(line) = kind_of("script", b"#! /bin/sh -e \nexit\n") else {
            panic!("a script")
        };
        assert_eq!(line, b"/bin/sh -e");
        assert!(matches!(kind_of("text", b"exit\n"), Kind::Other));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn any_bytes_are_something(mut bytes: Vec<u8>, at: u64, size: u16, count: u16) {
            kind_of("any", &bytes);
            notes(&bytes);
            let mut header = program(&[]);
            header[32..40].copy_from_slice(&at.to_le_bytes());
            header[54..56].copy_from_slice(&size.to_le_bytes());
            header[56..58].copy_from_slice(&count.to_le_bytes());
            bytes.splice(0..0, header);
            kind_of("any", &bytes);
        }
    }
}
