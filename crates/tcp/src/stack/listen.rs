//! Listeners: which ports accept connections, and how a SYN is answered (RFC 9293 section 3.10.7.2; RFC 4987
//! for floods of them).

use alloc::sync::Arc;
use core::fmt;
use core::net::IpAddr;

use wire::{Flags, Seq, Timestamps};

use super::reply::Reply;
use super::{Stack, beyond, secret};
use crate::Nanos;
use crate::config::{Config, SECOND};
use crate::connection::{Answer, Connection, Context, Key, ListenerId, our_shift};
use crate::options::Options;
use crate::segment::{FourTuple, Segment};

/// For how long after the last cookie an acknowledgment may be the answer to one.
const COOKIES_LAST: Nanos = 130 * SECOND;
/// Window in a SYN-ACK with a cookie. No memory is set apart for it, so it is small: enough for a peer's
/// initial window (RFC 6928).
const COOKIE_WINDOW: u32 = 16 << 10;

/// Why there can be no such listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListenError {
    /// There is a listener already (EADDRINUSE).
    InUse,
    /// Port 0 cannot be listened on.
    NoPort,
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ListenError::InUse => "there is a listener already",
            ListenError::NoPort => "0 is no port to listen on",
        })
    }
}

impl core::error::Error for ListenError {}

#[derive(Debug)]
pub(super) struct Listener {
    address: Option<IpAddr>,
    port: u16,
    config: Arc<Config>,
}

impl Stack {
    /// Listens on a port, of one address or of all (RFC 9293 section 3.10.1, passive).
    ///
    /// # Errors
    /// See [`ListenError`].
    pub fn listen(
        &mut self,
        address: Option<IpAddr>,
        port: u16,
        config: Arc<Config>,
    ) -> Result<ListenerId, ListenError> {
        if port == 0 {
            return Err(ListenError::NoPort);
        }
        let taken = |listener: &Listener| listener.port == port && listener.address == address;
        if self.listeners.iter().flatten().any(taken) {
            return Err(ListenError::InUse);
        }
        self.listeners.push(Some(Listener { address, port, config }));
        Ok(ListenerId(self.listeners.len() as u32 - 1))
    }

    /// Stops listening. Connections that were accepted stay.
    pub fn unlisten(&mut self, id: ListenerId) {
        if let Some(listener) = self.listeners.get_mut(id.0 as usize) {
            *listener = None;
        }
    }

    /// The listener of this address, else that of all.
    pub(super) fn listener(&self, path: &FourTuple) -> Option<(ListenerId, Arc<Config>)> {
        let (address, port) = (path.local.ip(), path.local.port());
        let find = |wanted: Option<IpAddr>| {
            self.listeners.iter().position(|listener| {
                listener.as_ref().is_some_and(|l| l.port == port && l.address == wanted)
            })
        };
        let index = find(Some(address)).or_else(|| find(None))?;
        let config = self.listeners[index].as_ref()?.config.clone();
        Some((ListenerId(index as u32), config))
    }

    /// A segment for which there is no connection. `old` is the end of an old connection that it takes the
    /// place of.
    pub(super) fn on_unknown(
        &mut self,
        path: &FourTuple,
        key: &Key,
        segment: &Segment<'_>,
        old: Option<Seq>,
        now: Nanos,
    ) -> Answer {
        let flags = segment.flags;
        if flags.any(Flags::RST) {
            return Answer::None;
        }
        let Some((listener, config)) = self.listener(path) else {
            return Answer::Reset;
        };
        if flags.any(Flags::ACK) {
            return self.on_cookie(path, key, segment, (listener, config), now);
        }
        if !flags.any(Flags::SYN) || flags.any(Flags::FIN) {
            // Neither opens anything (RFC 9293 section 3.10.7.2); a SYN with a FIN is no valid open.
            self.counters.without_ack += 1;
            return Answer::None;
        }
        if self.check(path).is_err() {
            self.counters.table_full += 1;
            return Answer::None;
        }
        let Some(buffer) = self.first_buffer(&config) else {
            self.counters.syns_refused += 1;
            return Answer::None;
        };
        let shift = our_shift(&config);
        let may_remember = self.pool.memory.may_remember(self.half_open, buffer, shift);
        if self.half_open >= self.config.half_open || !may_remember {
            if buffer < cookie_window(&config) {
                // The connection would be refused when the cookie comes back, and begin with a reset.
                self.counters.syns_refused += 1;
                return Answer::None;
            }
            self.send_cookie(path, key, segment, &config, now);
            return Answer::None;
        }
        let mut isn = self.secret.isn(key, now);
        if let Some(old) = old {
            isn = beyond(isn, old);
        }
        let start = (isn, self.secret.ts_offset(key));
        let mut connection = Connection::accept(path, config, listener, start, segment, now);
        connection.begin_with(buffer);
        self.counters.passive_opens += 1;
        self.insert(connection, now);
        Answer::None
    }

    /// Answers with a SYN-ACK that carries a cookie, and keeps no state.
    fn send_cookie(
        &mut self,
        path: &FourTuple,
        key: &Key,
        syn: &Segment<'_>,
        config: &Config,
        now: Nanos,
    ) {
        let offered = &syn.options;
        let timestamps = offered.timestamps.filter(|_| config.timestamps);
        // Without a timestamp to carry them, options are not agreed to.
        let scale = offered.window_scale.filter(|_| timestamps.is_some() && config.window_scaling);
        let sack = offered.sack_permitted && timestamps.is_some() && config.sack;
        let clock = ((now / 1_000_000) as u32).wrapping_add(self.secret.ts_offset(key));
        let stamps = timestamps.map(|theirs| Timestamps {
            value: Seq(secret::stamp_cookie(clock, scale, sack)),
            echo: theirs.value,
        });
        let headers = if key.is_v6() { 60 } else { 40 };
        let mss = config.mtu.saturating_sub(headers).max(88);
        let mss = if config.mss == 0 { mss } else { mss.min(config.mss) };
        let options = cookie_options(mss, stamps, scale.map(|_| our_shift(config)), sack);
        self.last_cookie = Some(now);
        self.counters.cookies_sent += 1;
        self.reply(Reply {
            path: *path,
            seq: self.secret.cookie(key, syn.seq, offered, now),
            ack: syn.seq + 1,
            flags: Flags::SYN.with(Flags::ACK),
            window: cookie_window(config) as u16,
            options: options.encode(),
        });
    }

    /// An acknowledgment to a listener: the cookie comes back, or it is refused.
    fn on_cookie(
        &mut self,
        path: &FourTuple,
        key: &Key,
        segment: &Segment<'_>,
        (listener, config): (ListenerId, Arc<Config>),
        now: Nanos,
    ) -> Answer {
        let recent = self.last_cookie.is_some_and(|at| now.saturating_sub(at) < COOKIES_LAST);
        if !recent || segment.flags.any(Flags::SYN) || self.check(path).is_err() {
            return Answer::Reset;
        }
        let (irs, iss) = (Seq(segment.seq.0.wrapping_sub(1)), Seq(segment.ack.0.wrapping_sub(1)));
        let Some(mss) = self.secret.cookie_mss(key, irs, iss, now) else {
            return Answer::Reset;
        };
        let least = cookie_window(&config);
        let Some(buffer) = self.first_buffer(&config).filter(|&buffer| buffer >= least) else {
            self.counters.syns_refused += 1;
            return Answer::Reset;
        };
        let mut syn = *segment;
        syn.seq = irs;
        syn.options = secret::unstamp_cookie(mss, segment.options.timestamps);
        let start = (iss, self.secret.ts_offset(key));
        let mut connection = Connection::from_cookie(path, config, listener, start, &syn, now);
        connection.begin_with(buffer);
        self.counters.cookies_accepted += 1;
        self.counters.passive_opens += 1;
        let slot = self.insert(connection, now).slot();
        let answer = self.with(slot, now, |connection, context: &mut Context<'_>| {
            connection.on_segment(segment, context)
        });
        if self.is_traced(slot) {
            self.trace_changes(slot, now);
        }
        self.settle(slot);
        answer
    }
}

/// The window that a cookie's SYN-ACK offers.
fn cookie_window(config: &Config) -> u32 {
    config.receive_buffer.min(COOKIE_WINDOW)
}

/// Options of a SYN-ACK with a cookie.
fn cookie_options(
    mss: u16,
    timestamps: Option<wire::Timestamps>,
    scale: Option<u8>,
    sack: bool,
) -> Options {
    Options {
        mss: Some(mss),
        window_scale: scale,
        sack_permitted: sack,
        timestamps,
        ..Options::default()
    }
}
