//! Requests as words and bytes.

use alloc::vec::Vec;

use super::request::{Connect, QpRequest, RegisterRequest, Request};
use super::{MessageError, Words, address_of, decode, encode, halves, padded, pair, words_of};

/// A number, or none, as a word.
fn option(value: Option<u32>) -> u64 {
    value.map_or(0, |value| pair(value, 1))
}

fn of_option(word: u64) -> Option<u32> {
    let (value, is_some) = halves(word);
    (is_some == 1).then_some(value)
}

impl<'a> Request<'a> {
    fn parts(&self) -> (u16, Words, &'a [u8]) {
        use Request::*;
        let one = |n: u32| padded([u64::from(n)]);
        let (kind, words) = match *self {
            Hello { probe, nonce } => (1, padded([probe, nonce])),
            Query => (2, padded([])),
            OpenContext => (3, padded([])),
            CloseContext(context) => (4, one(context)),
            AllocPd(context) => (5, one(context)),
            DeallocPd(pd) => (6, one(pd)),
            Register(of) => {
                let RegisterRequest { pd, access, addr, len, iova, file } = of;
                let (is_file, file) = (u64::from(file.is_some()), file.unwrap_or(0));
                (7, padded([pair(pd, access), addr, len, iova, is_file, file]))
            }
            Deregister(stag) => (8, one(stag)),
            AllocWindow { pd, is_type_2 } => (9, padded([pair(pd, is_type_2.into())])),
            DeallocWindow(stag) => (10, one(stag)),
            CreateChannel => (11, padded([])),
            DestroyChannel(channel) => (12, one(channel)),
            CreateCq { context, depth, channel } => {
                (13, padded([pair(context, depth), option(channel)]))
            }
            DestroyCq(cq) => (14, one(cq)),
            Moderate { cq, count, period } => {
                (15, padded([cq.into(), pair(count.into(), period.into())]))
            }
            CreateSrq { context, pd, depth, sges } => {
                (16, padded([pair(context, pd), pair(depth, sges.into())]))
            }
            ArmSrq { srq, limit } => (17, padded([pair(srq, limit)])),
            QuerySrq(srq) => (18, one(srq)),
            DestroySrq(srq) => (19, one(srq)),
            CreateQp(of) => {
                let QpRequest { context, pd, send_cq, receive_cq, srq, sends, receives, .. } = of;
                let QpRequest { send_sges, receive_sges, inline, signal_all, .. } = of;
                let sges = u32::from(send_sges) | u32::from(receive_sges) << 8;
                let how = sges | u32::from(signal_all) << 16;
                let queues = [pair(sends, receives), pair(how, inline)];
                let names = [pair(context, pd), pair(send_cq, receive_cq), option(srq)];
                (20, padded([names[0], names[1], names[2], queues[0], queues[1]]))
            }
            ModifyQp { qp, state } => (21, padded([pair(qp, state.into())])),
            QueryQp(qp) => (22, one(qp)),
            DestroyQp(qp) => (23, one(qp)),
            CreateEvents => (24, padded([])),
            DestroyEvents(events) => (25, one(events)),
            CreateId(events) => (26, one(events)),
            DestroyId(id) => (27, one(id)),
            Bind { id, address } => {
                let [a, b, c] = words_of(Some(address));
                (28, padded([id.into(), a, b, c]))
            }
            ResolveAddr { id, from, to, timeout } => {
                let ([a, b, c], [d, e, f]) = (words_of(from), words_of(Some(to)));
                (29, padded([pair(id, timeout), a, b, c, d, e, f]))
            }
            ResolveRoute(id) => (30, one(id)),
            Connect(of) => (31, of.words()),
            Listen { id, backlog } => (32, padded([pair(id, backlog)])),
            Accept(of) => (33, of.words()),
            Reject { id, .. } => (34, one(id)),
            Disconnect(id) => (35, one(id)),
            Migrate { id, events } => (36, padded([pair(id, events)])),
            SetOption { id, option, value } => (37, padded([pair(id, option), value.into()])),
        };
        let bytes = match *self {
            Connect(of) | Accept(of) => of.private_data,
            Reject { private_data, .. } => private_data,
            _ => &[],
        };
        (kind, words, bytes)
    }

    /// As bytes.
    ///
    /// # Errors
    /// [`MessageError::Length`] for private data that are too long.
    pub fn encode(&self) -> Result<Vec<u8>, MessageError> {
        let (kind, words, bytes) = self.parts();
        encode(kind, &words, bytes)
    }

    /// From bytes.
    ///
    /// # Errors
    /// If they are no message that [`encode`](Self::encode) gives. Nothing is said of whether its objects exist.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, MessageError> {
        use Request::*;
        let (kind, given, bytes) = decode(bytes)?;
        let (first, second) = halves(given[0]);
        let address = |at: usize| address_of([given[at], given[at + 1], given[at + 2]]);
        let request = match kind {
            1 => Hello { probe: given[0], nonce: given[1] },
            2 => Query,
            3 => OpenContext,
            4 => CloseContext(first),
            5 => AllocPd(first),
            6 => DeallocPd(first),
            7 => Register(RegisterRequest {
                pd: first,
                access: second,
                addr: given[1],
                len: given[2],
                iova: given[3],
                file: (given[4] == 1).then_some(given[5]),
            }),
            8 => Deregister(first),
            9 => AllocWindow { pd: first, is_type_2: second == 1 },
            10 => DeallocWindow(first),
            11 => CreateChannel,
            12 => DestroyChannel(first),
            13 => CreateCq { context: first, depth: second, channel: of_option(given[1]) },
            14 => DestroyCq(first),
            15 => {
                let (count, period) = halves(given[1]);
                Moderate { cq: first, count: count as u16, period: period as u16 }
            }
            16 => {
                let (depth, sges) = halves(given[1]);
                CreateSrq { context: first, pd: second, depth, sges: sges as u8 }
            }
            17 => ArmSrq { srq: first, limit: second },
            18 => QuerySrq(first),
            19 => DestroySrq(first),
            20 => {
                let ((send_cq, receive_cq), (sends, receives)) =
                    (halves(given[1]), halves(given[3]));
                let (how, inline) = halves(given[4]);
                let [send_sges, receive_sges, signal_all, _] = how.to_le_bytes();
                let (srq, signal_all) = (of_option(given[2]), signal_all == 1);
                CreateQp(QpRequest {
                    context: first,
                    pd: second,
                    send_cq,
                    receive_cq,
                    srq,
                    sends,
                    receives,
                    send_sges,
                    receive_sges,
                    inline,
                    signal_all,
                })
            }
            21 => ModifyQp { qp: first, state: second as u8 },
            22 => QueryQp(first),
            23 => DestroyQp(first),
            24 => CreateEvents,
            25 => DestroyEvents(first),
            26 => CreateId(first),
            27 => DestroyId(first),
            28 => Bind { id: first, address: address(1).ok_or(MessageError::Value)? },
            29 => {
                let to = address(4).ok_or(MessageError::Value)?;
                ResolveAddr { id: first, from: address(1), to, timeout: second }
            }
            30 => ResolveRoute(first),
            31 => Connect(super::request::Connect::of_words(&given, bytes)),
            32 => Listen { id: first, backlog: second },
            33 => Accept(super::request::Connect::of_words(&given, bytes)),
            34 => Reject { id: first, private_data: bytes },
            35 => Disconnect(first),
            36 => Migrate { id: first, events: second },
            37 => SetOption { id: first, option: second, value: given[1] as u32 },
            other => return Err(MessageError::Kind(other)),
        };
        // What it does not use is zero.
        if request.parts() == (kind, given, bytes) { Ok(request) } else { Err(MessageError::Value) }
    }
}

impl<'a> Connect<'a> {
    fn words(&self) -> Words {
        padded([pair(self.id, self.qp), pair(self.ird.into(), self.ord.into())])
    }

    fn of_words(words: &Words, private_data: &'a [u8]) -> Self {
        let ((id, qp), (ird, ord)) = (halves(words[0]), halves(words[1]));
        Connect { id, qp, ird: ird as u16, ord: ord as u16, private_data }
    }
}
