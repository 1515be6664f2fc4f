//! Connections between the kernel and the engine: what `sys` reads from a socket by TCP_REPAIR, and writes to one,
//! is what `tcp::repair` makes a snapshot of, field for field. Neither crate knows of the other.

use sys::tcp::repair::{OPTION_ECN, OPTION_SACK, OPTION_TIMESTAMPS, OPTION_WSCALE};
use sys::tcp::repair::{Parts, Path, Settings, Window};
use tcp::config::{MILLISECOND, SECOND};
use tcp::repair::{Repair, RepairPath, RepairWindow};
use tcp::snapshot::SocketOptions;
use tcp::{Keepalive, Nanos};
use wire::Seq;

/// What the engine can take over of a socket. `None` if the socket is in a state in which connections are not taken
/// out, such as one that listens.
pub fn from_kernel(parts: Parts) -> Option<Repair> {
    let has = |option| parts.options & option != 0;
    let (window, path, settings) = (&parts.window, &parts.path, &parts.settings);
    Some(Repair {
        is_deaf: false,
        behind_hole: Vec::new(),
        sacked: Vec::new(),
        local: parts.local,
        remote: parts.remote,
        state: Repair::state_from_kernel(parts.state)?,
        write_seq: Seq(parts.write_seq),
        unacknowledged: parts.unacknowledged,
        unsent: parts.unsent,
        rcv_nxt: Seq(parts.rcv_nxt),
        timestamps: has(OPTION_TIMESTAMPS),
        sack: has(OPTION_SACK),
        window_scale: has(OPTION_WSCALE).then_some((parts.snd_wscale, parts.rcv_wscale)),
        mss_clamp: parts.mss_clamp as u16,
        ecn: has(OPTION_ECN),
        timestamp: parts.timestamp,
        ts_recent: None,
        window: RepairWindow {
            snd_wl1: Seq(window.snd_wl1),
            snd_wnd: window.snd_wnd,
            max_window: window.max_window,
            rcv_wnd: window.rcv_wnd,
            rcv_wup: Seq(window.rcv_wup),
        },
        path: RepairPath {
            rto: path.rto,
            rtt: path.rtt,
            rttvar: path.rttvar,
            min_rtt: path.min_rtt,
            snd_cwnd: path.snd_cwnd,
            snd_ssthresh: path.snd_ssthresh,
            snd_mss: path.snd_mss,
            rcv_mss: path.rcv_mss,
            advmss: path.advmss,
            pmtu: path.pmtu,
            backoff: path.backoff,
            last_data_sent: path.last_data_sent,
        },
        socket_options: SocketOptions {
            no_delay: settings.no_delay,
            cork: settings.cork,
            urgent_inline: settings.urgent_inline,
            keepalive: settings.keepalive.map(|[idle, interval, probes]| Keepalive {
                idle: Nanos::from(idle) * SECOND,
                interval: Nanos::from(interval) * SECOND,
                probes: probes as u8,
            }),
            user_timeout: Nanos::from(settings.user_timeout) * MILLISECOND,
        },
        send_queue: parts.send_queue,
        recv_queue: parts.recv_queue,
    })
}

/// What a socket is to be written of a connection of the engine's, but for `SO_REUSEADDR`, which no engine knows. `None` if the kernel has no such state for one
/// that is put back.
pub fn to_kernel(repair: Repair) -> Option<Parts> {
    let option = |agreed: bool, option: u8| if agreed { option } else { 0 };
    let (snd_wscale, rcv_wscale) = repair.window_scale.unwrap_or_default();
    let window = &repair.window;
    Some(Parts {
        local: repair.local,
        remote: repair.remote,
        state: repair.kernel_state()?,
        write_seq: repair.write_seq.0,
        unacknowledged: repair.unacknowledged,
        unsent: repair.unsent,
        rcv_nxt: repair.rcv_nxt.0,
        options: option(repair.timestamps, OPTION_TIMESTAMPS)
            | option(repair.sack, OPTION_SACK)
            | option(repair.window_scale.is_some(), OPTION_WSCALE),
        snd_wscale,
        rcv_wscale,
        mss_clamp: repair.mss_clamp.into(),
        timestamp: repair.timestamp,
        window: Window {
            snd_wl1: window.snd_wl1.0,
            snd_wnd: window.snd_wnd,
            max_window: window.max_window,
            rcv_wnd: window.rcv_wnd,
            rcv_wup: window.rcv_wup.0,
        },
        // These are not for writing.
        path: Path::default(),
        settings: Settings::default(),
        reuse_address: false,
        carried: [0; 2],
        send_queue: repair.send_queue,
        recv_queue: repair.recv_queue,
    })
}
