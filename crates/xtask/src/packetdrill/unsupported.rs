//! What scripts ask for that the engine does not have, by the words that ask for it.

/// A feature: its name, why it is not there, and words of which one is in every script that needs it.
struct Feature {
    name: &'static str,
    why: &'static str,
    words: &'static [&'static str],
}

/// What the engine cannot tell in `struct tcp_info`. Many scripts look at much of it; these words must
/// be in what failed.
const TCP_INFO: &[Feature] = &[
    Feature {
        name: "times of limitation in tcp_info",
        why: "the engine does not keep them",
        words: &["tcpi_busy_time", "tcpi_rwnd_limited", "tcpi_sndbuf_limited", "tcpi_last_data"],
    },
    Feature {
        name: "counters of segments in tcp_info",
        why: "the engine counts per stack, not per connection",
        words: &[
            "tcpi_delivered",
            "tcpi_reordering",
            "tcpi_retrans",
            "tcpi_segs_",
            "tcpi_total_rto",
        ],
    },
];

const FEATURES: &[Feature] = &[
    Feature {
        name: "TCP Fast Open",
        why: "not supported yet",
        words: &["MSG_FASTOPEN", "TCP_FASTOPEN", "<FO", ",FO", " FO ", "FOEXP", "TFO_COOKIE"],
    },
    Feature {
        name: "accurate ECN",
        why: "not supported yet",
        words: &["tcp_ecn=3", "tcp_ecn=4", "tcp_ecn=5", "ECN e0b", "ECN e1b", "tcpi_received_ce"],
    },
    Feature {
        name: "MSG_ZEROCOPY",
        why: "a Linux API: the engine copies at the socket",
        words: &["MSG_ZEROCOPY", "SO_ZEROCOPY", "TCP_ZEROCOPY_RECEIVE"],
    },
    Feature {
        name: "SO_TIMESTAMPING",
        why: "a Linux API: there are no time stamps of packets",
        words: &["SO_TIMESTAMPING", "SCM_TIMESTAMPING"],
    },
    Feature {
        name: "control messages",
        why: "a Linux API: recvmsg() gives bytes only",
        words: &["TCP_INQ", "TCP_CM_INQ", "MSG_ERRQUEUE"],
    },
    Feature { name: "TCP_MD5SIG", why: "RFC 2385 is obsolete", words: &["MD5SIG", "<md5", "md5 "] },
    Feature {
        name: "splice() or sendfile()",
        why: "a Linux API: the engine has no files",
        words: &["splice(", "sendfile(", "pipe("],
    },
    Feature {
        name: "TCP_NOTSENT_LOWAT",
        why: "a Linux API: bounds what waits at the socket",
        words: &["TCP_NOTSENT_LOWAT", "tcp_notsent_lowat="],
    },
    Feature {
        name: "MSG_EOR",
        why: "a Linux API: where the kernel ends its buffers",
        words: &["MSG_EOR"],
    },
    Feature {
        name: "SO_SNDBUF as the kernel counts it",
        why: "the kernel counts its own overhead of each buffer",
        words: &["getsockopt(4, SOL_SOCKET, SO_SNDBUF"],
    },
    Feature { name: "IPv6 addresses", why: "the run is over IPv4", words: &["--ip_version=ipv6"] },
    Feature {
        name: "pacing by a queueing discipline",
        why: "the engine has none",
        words: &["dev tun0 root fq", "SO_MAX_PACING_RATE"],
    },
    Feature {
        name: "a queueing discipline that drops",
        why: "the engine gives its packets to its caller",
        words: &["pfifo limit"],
    },
    Feature {
        name: "a size of segments in aggregates",
        why: "packetdrill tells the kernel alone",
        words: &["--mss="],
    },
    Feature {
        name: "routes with metrics",
        why: "the engine has no routes",
        words: &["ip route", "initcwnd", "tcp_metrics show"],
    },
    Feature { name: "TCP_DEFER_ACCEPT", why: "a Linux API", words: &["TCP_DEFER_ACCEPT"] },
    Feature { name: "busy polling", why: "a Linux API", words: &["SO_BUSY_POLL"] },
];

/// What a script needs that is not there, if it failed with these words.
pub(super) fn needs(script: &str, failure: &str) -> Option<String> {
    // Remarks ask for nothing.
    let code: String = script
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .fold(String::new(), |code, line| code + line + "\n");
    let asked_for =
        |text: &str, feature: &&Feature| feature.words.iter().any(|word| text.contains(word));
    let found = FEATURES.iter().find(|feature| asked_for(&code, feature));
    let found = found.or_else(|| TCP_INFO.iter().find(|feature| asked_for(failure, feature)));
    found.map(|feature| format!("needs {}: {}", feature.name, feature.why))
}

#[cfg(test)]
mod tests {
    use super::needs;

    #[test]
    fn a_script_needs_what_it_uses_not_what_it_mentions() {
        let needed = needs("+0 setsockopt(4, SOL_SOCKET, SO_ZEROCOPY, [1], 4) = 0", "");
        assert_eq!(
            needed.as_deref(),
            Some("needs MSG_ZEROCOPY: a Linux API: the engine copies at the socket")
        );
        assert_eq!(needs("// not with SO_ZEROCOPY\n+0 close(4) = 0", ""), None);
        let script = "+0 %{ assert tcpi_reordering == 3; assert tcpi_snd_cwnd == 10 }%";
        assert!(needs(script, "9: assert tcpi_reordering == 3").is_some());
        assert_eq!(needs(script, "9: assert tcpi_snd_cwnd == 10"), None);
    }
}
