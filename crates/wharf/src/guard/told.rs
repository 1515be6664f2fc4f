//! What a guard is told: messages with a length in front, so that one which wharf did not live to
//! write to its end is known for that, and the last whole one counts.

use nic::mirror::{Latest, Sysctls};
use serde_json::{Value, json};
use sys::netlink::saved::Saved;

use super::before::{Before, texts};

/// Kind, and the length of what follows.
const HEADER: usize = 1 + 4;

/// The kinds of messages.
const BEFORE: u8 = b'B';
const WIRE: u8 = b'W';
const MADE: u8 = b'M';
const SYSCTLS: u8 = b'S';
const LATEST: u8 = b'L';
const END: u8 = b'E';

/// All that a guard knows.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// What has come of a message that is not whole.
    part: Vec<u8>,
    json: Option<Value>,
    wire: Option<Saved>,
    /// The index of the host interface, once there is one.
    pub(super) made: Option<u32>,
    sysctls: Option<Sysctls>,
    saved: Option<Saved>,
    /// wharf has ended by itself, and was not killed.
    pub(super) has_ended: bool,
}

impl Told {
    /// Takes bytes as they come.
    pub(super) fn hear(&mut self, bytes: &[u8]) {
        self.part.extend_from_slice(bytes);
        let mut rest = &self.part[..];
        let mut whole = Vec::new();
        while let Some((header, body)) = rest.split_at_checked(HEADER) {
            let length = u32::from_le_bytes([header[1], header[2], header[3], header[4]]);
            let Some((body, behind)) = body.split_at_checked(length as usize) else { break };
            whole.push((header[0], body.to_vec()));
            rest = behind;
        }
        self.part.drain(..self.part.len() - rest.len());
        whole.into_iter().for_each(|(kind, body)| self.take(kind, &body));
    }

    /// A message that is not understood changes nothing.
    fn take(&mut self, kind: u8, body: &[u8]) {
        let json = || serde_json::from_slice::<Value>(body).ok();
        let saved = || Saved::from_bytes(body).ok();
        match kind {
            BEFORE => self.json = json().or(self.json.take()),
            WIRE => self.wire = saved().or(self.wire.take()),
            MADE => self.made = body.try_into().ok().map(u32::from_le_bytes).or(self.made),
            SYSCTLS => {
                let new = json().and_then(|json| texts(&json)).map(Sysctls::from_values);
                self.sysctls = new.or(self.sysctls.take());
            }
            LATEST => self.saved = saved().or(self.saved.take()),
            END => self.has_ended = true,
            _ => {}
        }
    }

    /// The wire before wharf; `None` before all of that has come.
    pub(super) fn before(&self) -> Option<Before> {
        Before::from_json(self.json.as_ref()?, self.wire.clone()?)
    }

    /// The latest state of the host interface.
    pub(super) fn latest(&self) -> Option<Latest> {
        Some(Latest { saved: self.saved.clone()?, sysctls: self.sysctls.clone()? })
    }
}

fn put(out: &mut Vec<u8>, kind: u8, body: &[u8]) {
    // Nothing here comes near 4 GB; were it so, the guard would ignore it.
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
    out.push(kind);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(body);
}

/// The wire before wharf.
pub(super) fn say_before(before: &Before) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, WIRE, &before.wire.saved.to_bytes());
    put(&mut out, BEFORE, before.to_json().to_string().as_bytes());
    out
}

/// The host interface is wharf's.
pub(super) fn say_made(index: u32) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, MADE, &index.to_le_bytes());
    out
}

/// wharf ends by itself.
pub(super) fn say_end() -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, END, &[]);
    out
}

/// The latest state.
pub(super) fn say_latest(latest: &Latest) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, SYSCTLS, json!(latest.sysctls.values()).to_string().as_bytes());
    put(&mut out, LATEST, &latest.saved.to_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latest(name: &str) -> Latest {
        let saved = Saved {
            name: name.to_owned(),
            index: 7,
            saved_at: 1,
            addresses: Vec::new(),
            routes: Vec::new(),
            neighbours: Vec::new(),
        };
        Latest { saved, sysctls: Sysctls::from_values(vec![Some("1".to_owned()), None]) }
    }

    fn name(told: &Told) -> Option<String> {
        told.latest().map(|latest| latest.saved.name)
    }

    #[test]
    fn the_last_whole_message_counts() {
        let (first, second) = (say_latest(&latest("first")), say_latest(&latest("second")));
        let mut all = Told::default();
        all.hear(&[&first[..], &second[..]].concat());
        assert_eq!(name(&all).as_deref(), Some("second"));
        for cut in 0..second.len() {
            let mut told = Told::default();
            told.hear(&first);
            // Byte by byte, as a reader may get them.
            second[..cut].iter().for_each(|byte| told.hear(&[*byte]));
            assert_eq!(name(&told).as_deref(), Some("first"), "cut at {cut}");
        }
    }

    #[test]
    fn what_is_not_understood_changes_nothing() {
        let mut told = Told::default();
        told.hear(&say_made(3));
        told.hear(&say_latest(&latest("first")));
        let mut bad = Vec::new();
        put(&mut bad, LATEST, b"no state");
        put(&mut bad, MADE, b"?");
        put(&mut bad, b'?', b"from the future");
        told.hear(&bad);
        assert_eq!((told.made, name(&told).as_deref()), (Some(3), Some("first")));
        assert!(told.before().is_none() && !told.has_ended);
        told.hear(&say_end());
        assert!(told.has_ended);
    }
}
