//! A note that says of which build this library is: `wharf run` loads no other.

use handoff::session::{BUILD, BUILD_NOTE, VERSION};

/// Bytes of the name and of the text, padded to words.
const NAME: usize = (BUILD_NOTE.len() + 1).next_multiple_of(4);
const TEXT: usize = BUILD.len().next_multiple_of(4);

/// As in elf(5).
#[repr(C, align(4))]
struct Note {
    name_len: u32,
    text_len: u32,
    kind: u32,
    name: [u8; NAME],
    text: [u8; TEXT],
}

const fn padded<const N: usize>(text: &str) -> [u8; N] {
    let mut bytes = [0; N];
    let mut at = 0;
    while at < text.len() {
        bytes[at] = text.as_bytes()[at];
        at += 1;
    }
    bytes
}

#[used]
#[unsafe(link_section = ".note.wharf")]
static NOTE: Note = Note {
    name_len: BUILD_NOTE.len() as u32 + 1,
    text_len: BUILD.len() as u32,
    kind: VERSION as u32,
    name: padded(BUILD_NOTE),
    text: padded(BUILD),
};
