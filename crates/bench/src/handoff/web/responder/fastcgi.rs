//! FastCGI 1.0 (Brown, Open Market, 1996), as a responder has it: records, and one request after the other over a
//! connection.

use std::collections::BTreeMap;

const VERSION: u8 = 1;
/// Bytes of a record before its content.
const HEADER: usize = 8;

/// Types of records (section 8).
const BEGIN_REQUEST: u8 = 1;
const END_REQUEST: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;

/// `FCGI_RESPONDER`, and the flag `FCGI_KEEP_CONN`.
const RESPONDER: u16 = 1;
const KEEP_CONN: u8 = 1;

/// Most content of a record that is sent, a multiple of eight: such need no padding.
const CONTENT: usize = 0xfff8;
/// Most bytes of a request's parameters, and of its body.
const LONGEST: usize = 64 << 10;

/// Why a connection cannot go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum Broken {
    #[error("a record is of version {0}")]
    Version(u8),
    #[error("a record of type {0} is not expected")]
    Record(u8),
    #[error("a request has more than {LONGEST} bytes of parameters, or of a body")]
    Long,
    #[error("a request's parameters are no pairs of names and values")]
    Params,
}

/// A request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Request {
    id: u16,
    /// Whether the connection is to stay once it is answered.
    pub(super) keep: bool,
    params: Vec<u8>,
    /// Whether all of them are there.
    params_ended: bool,
    /// What stands on its standard input.
    pub(super) body: Vec<u8>,
}

impl Request {
    /// Its parameters.
    ///
    /// # Errors
    /// They are not encoded as they should be, or not in UTF-8.
    pub(super) fn params(&self) -> Result<BTreeMap<&str, &str>, Broken> {
        let mut rest = &self.params[..];
        let mut params = BTreeMap::new();
        while !rest.is_empty() {
            let (name, value) = pair(&mut rest).ok_or(Broken::Params)?;
            params.insert(name, value);
        }
        Ok(params)
    }

    /// Writes the records by which it is answered.
    pub(super) fn answer(&self, stdout: &[u8], out: &mut Vec<u8>) {
        out.reserve(stdout.len() + (stdout.len() / CONTENT + 4) * HEADER);
        stdout.chunks(CONTENT).for_each(|part| write(STDOUT, self.id, part, out));
        write(STDOUT, self.id, &[], out);
        // It has succeeded, and is complete.
        write(END_REQUEST, self.id, &[0; 8], out);
    }
}

/// What comes over a connection.
#[derive(Debug, Default)]
pub(super) struct Input {
    /// What is not yet a whole record.
    bytes: Vec<u8>,
    /// The request that has begun.
    request: Option<Request>,
}

impl Input {
    /// Takes bytes.
    pub(super) fn take(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next request that is complete.
    ///
    /// # Errors
    /// Why there will be none.
    pub(super) fn next(&mut self) -> Result<Option<Request>, Broken> {
        let mut rest = &self.bytes[..];
        let mut complete = None;
        while complete.is_none() {
            let Some(record) = read(&mut rest)? else { break };
            if place(&mut self.request, record)? {
                complete = self.request.take();
            }
        }
        let taken = self.bytes.len() - rest.len();
        self.bytes.drain(..taken);
        Ok(complete)
    }
}

struct Record<'a> {
    kind: u8,
    id: u16,
    content: &'a [u8],
}

/// The first record of some bytes, which are then those behind it; `None` if it is not complete.
fn read<'a>(bytes: &mut &'a [u8]) -> Result<Option<Record<'a>>, Broken> {
    let Some((header, rest)) = bytes.split_first_chunk::<HEADER>() else { return Ok(None) };
    let [version, kind, id @ .., _, _, _, _] = *header;
    if version != VERSION {
        return Err(Broken::Version(version));
    }
    let [.., high, low, padding, _] = *header;
    let length = usize::from(u16::from_be_bytes([high, low]));
    let Some((content, rest)) = rest.split_at_checked(length) else { return Ok(None) };
    let Some((_, rest)) = rest.split_at_checked(padding.into()) else { return Ok(None) };
    *bytes = rest;
    Ok(Some(Record { kind, id: u16::from_be_bytes(id), content }))
}

/// Adds a record to the request that it is of: whether that is complete then.
fn place(request: &mut Option<Request>, record: Record<'_>) -> Result<bool, Broken> {
    let Record { kind, id, content } = record;
    match (kind, request) {
        (BEGIN_REQUEST, none @ None) => {
            let [high, low, flags, ..] = *content else { return Err(Broken::Record(kind)) };
            if u16::from_be_bytes([high, low]) != RESPONDER {
                return Err(Broken::Record(kind));
            }
            let keep = flags & KEEP_CONN != 0;
            let (params, body) = (Vec::new(), Vec::new());
            *none = Some(Request { id, keep, params, params_ended: false, body });
            Ok(false)
        }
        (PARAMS, Some(of)) if of.id == id && !of.params_ended => {
            of.params_ended = content.is_empty();
            extend(&mut of.params, content).map(|()| false)
        }
        (STDIN, Some(of)) if of.id == id && of.params_ended => {
            extend(&mut of.body, content).map(|()| content.is_empty())
        }
        _ => Err(Broken::Record(kind)),
    }
}

fn extend(stream: &mut Vec<u8>, content: &[u8]) -> Result<(), Broken> {
    stream.extend_from_slice(content);
    if stream.len() > LONGEST { Err(Broken::Long) } else { Ok(()) }
}

/// A name and its value (section 3.4).
fn pair<'a>(bytes: &mut &'a [u8]) -> Option<(&'a str, &'a str)> {
    let lengths = [length(bytes)?, length(bytes)?];
    let [name, value] = lengths.map(|length| {
        let (text, rest) = bytes.split_at_checked(length)?;
        *bytes = rest;
        str::from_utf8(text).ok()
    });
    Some((name?, value?))
}

/// One byte, or four of which the first has its highest bit set.
fn length(bytes: &mut &[u8]) -> Option<usize> {
    let (&first, rest) = bytes.split_first()?;
    if first < 0x80 {
        *bytes = rest;
        return Some(first.into());
    }
    let (four, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some((u32::from_be_bytes(*four) & 0x7fff_ffff) as usize)
}

fn write(kind: u8, id: u16, content: &[u8], out: &mut Vec<u8>) {
    let padding = content.len().wrapping_neg() % 8;
    let [id, length] = [id, content.len() as u16].map(u16::to_be_bytes);
    out.extend([VERSION, kind, id[0], id[1], length[0], length[1], padding as u8, 0]);
    out.extend_from_slice(content);
    out.resize(out.len() + padding, 0);
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a failed unwrap is the failed test
pub(super) mod tests {
    use std::io::{self, Read};

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn with_length(length: usize, out: &mut Vec<u8>) {
        match length {
            ..0x80 => out.push(length as u8),
            _ => out.extend((length as u32 | 0x8000_0000).to_be_bytes()),
        }
    }

    /// A request as a server sends it, in records of so many bytes of content at most.
    pub(crate) fn sent(
        id: u16,
        keep: bool,
        pairs: &[(String, String)],
        body: &[u8],
        most: usize,
    ) -> Vec<u8> {
        let mut params = Vec::new();
        for (name, value) in pairs {
            with_length(name.len(), &mut params);
            with_length(value.len(), &mut params);
            params.extend([name.as_bytes(), value.as_bytes()].concat());
        }
        let mut out = Vec::new();
        write(BEGIN_REQUEST, id, &[0, 1, keep.into(), 0, 0, 0, 0, 0], &mut out);
        for (kind, stream) in [(PARAMS, &params[..]), (STDIN, body)] {
            stream.chunks(most).for_each(|part| write(kind, id, part, &mut out));
            write(kind, id, &[], &mut out);
        }
        out
    }

    /// What stands on standard output, read as a server does.
    pub(crate) fn read_answer(mut from: impl Read) -> io::Result<Vec<u8>> {
        let mut stdout = Vec::new();
        loop {
            let mut header = [0; HEADER];
            from.read_exact(&mut header)?;
            let [_, kind, _, _, high, low, padding, _] = header;
            let length = usize::from(u16::from_be_bytes([high, low]));
            let mut content = vec![0; length + usize::from(padding)];
            from.read_exact(&mut content)?;
            match kind {
                STDOUT => stdout.extend_from_slice(&content[..length]),
                _ => return Ok(stdout),
            }
        }
    }

    fn all(input: &mut Input) -> Result<Vec<Request>, Broken> {
        std::iter::from_fn(|| input.next().transpose()).collect()
    }

    fn pairs() -> impl Strategy<Value = Vec<(String, String)>> {
        // Each name once, as a map has them in the end.
        prop::collection::btree_map("[A-Z_]{1,200}", "[ -~]{0,300}", 0..6)
            .prop_map(|map| map.into_iter().collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn requests_are_the_same_however_they_are_cut(
            requests in vec((any::<u16>(), any::<bool>(), pairs(), vec(any::<u8>(), 0..600)), 1..4),
            most in 1_usize..700,
            cuts in vec(1_usize..900, 1..6),
        ) {
            let of = |(id, keep, pairs, body): &(u16, bool, Vec<_>, Vec<u8>)| {
                sent(*id, *keep, pairs, body, most)
            };
            let bytes: Vec<u8> = requests.iter().flat_map(of).collect();
            let mut input = Input::default();
            let (mut rest, mut cuts) = (&bytes[..], cuts.iter().cycle());
            let mut found = Vec::new();
            while !rest.is_empty() {
                let cut = (*cuts.next().unwrap()).min(rest.len());
                let (part, behind) = rest.split_at(cut);
                input.take(part);
                found.extend(all(&mut input).unwrap());
                rest = behind;
            }
            prop_assert_eq!(found.len(), requests.len());
            for (found, (id, keep, pairs, body)) in found.iter().zip(&requests) {
                prop_assert_eq!((found.id, found.keep, &found.body), (*id, *keep, body));
                let pairs = pairs.iter().map(|(name, value)| (&name[..], &value[..]));
                prop_assert!(found.params().unwrap().into_iter().eq(pairs));
            }
        }

        #[test]
        fn any_bytes_are_requests_or_refused(bytes in vec(any::<u8>(), 0..2_000)) {
            let mut input = Input::default();
            // A record in front that is one, so that more is read.
            input.take(&sent(1, true, &[], &[], 1)[..16]);
            input.take(&bytes);
            let _ = all(&mut input);
            let params = bytes.clone();
            let request = Request { id: 1, keep: false, params, params_ended: true, body: bytes };
            let _ = request.params();
        }

        #[test]
        fn a_request_that_is_damaged_is_another_or_refused(
            at in 0_usize..200, to in any::<u8>(), pairs in pairs(),
        ) {
            let mut bytes = sent(3, true, &pairs, b"body", 50);
            let at = at % bytes.len();
            bytes[at] = to;
            let mut input = Input::default();
            input.take(&bytes);
            for request in all(&mut input).unwrap_or_default() {
                let _ = request.params();
            }
        }

        #[test]
        fn an_answer_has_all_of_its_bytes(id in any::<u16>(), len in 0_usize..200_000) {
            let stdout: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
            let (params, body) = (Vec::new(), Vec::new());
            let request = Request { id, keep: true, params, params_ended: true, body };
            let mut out = Vec::new();
            request.answer(&stdout, &mut out);
            let (mut rest, mut found) = (&out[..], Vec::new());
            let mut ends = 0;
            while let Some(record) = read(&mut rest).unwrap() {
                prop_assert_eq!(record.id, id);
                prop_assert_eq!(ends, if record.kind == STDOUT { 0 } else { 1 });
                match record.kind {
                    STDOUT if record.content.is_empty() => ends += 1,
                    STDOUT => found.extend_from_slice(record.content),
                    kind => {
                        prop_assert_eq!((kind, record.content), (END_REQUEST, &[0; 8][..]));
                        prop_assert!(rest.is_empty());
                    }
                }
            }
            prop_assert!(rest.is_empty());
            prop_assert_eq!((ends, found), (1, stdout));
        }
    }

    #[test]
    fn what_a_responder_is_not_asked_is_refused() {
        let refused = |bytes: &[u8]| {
            let mut input = Input::default();
            input.take(bytes);
            all(&mut input).unwrap_err()
        };
        let record = |kind, id, content: &[u8]| {
            let mut out = Vec::new();
            write(kind, id, content, &mut out);
            out
        };
        let begin = |role| record(BEGIN_REQUEST, 1, &[0, role, 0, 0, 0, 0, 0, 0]);
        assert_eq!(refused(&[2; 8]), Broken::Version(2));
        // An authorizer's, an answer's, and another request's.
        assert_eq!(refused(&begin(2)), Broken::Record(BEGIN_REQUEST));
        assert_eq!(refused(&record(STDOUT, 1, b"x")), Broken::Record(STDOUT));
        assert_eq!(refused(&[begin(1), begin(1)].concat()), Broken::Record(BEGIN_REQUEST));
        assert_eq!(refused(&[begin(1), record(PARAMS, 2, &[])].concat()), Broken::Record(PARAMS));
        // A body before there are parameters.
        assert_eq!(refused(&[begin(1), record(STDIN, 1, &[])].concat()), Broken::Record(STDIN));
        let long = record(PARAMS, 1, &[0; CONTENT]);
        assert_eq!(refused(&[begin(1), long.clone(), long].concat()), Broken::Long);
    }

    #[test]
    fn parameters_that_are_no_pairs_are_refused() {
        for params in
            [&[1][..], &[1, 0], &[0x80, 0, 0], &[0xff, 0xff, 0xff, 0xff, 0], &[1, 0, 0xff]]
        {
            let (params, body) = (params.to_vec(), Vec::new());
            let request = Request { id: 1, keep: false, params, params_ended: true, body };
            assert_eq!(request.params(), Err(Broken::Params));
        }
    }
}
