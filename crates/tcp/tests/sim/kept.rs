//! Seeds of runs that once failed, and what failed. A seed stands for another run when `plan.rs` changes: a
//! run that matters by itself becomes a test by itself.

/// Runs.
pub(crate) const SEEDS: &[u64] = &[
    7,         // the same urgent byte was read again and again
    8,         // the window of a SYN was scaled where both had opened
    15,        // a black hole below 1,280 bytes
    18,        // urgent data in a super-packet
    126,       // F-RTO waited for new data that could not go
    171,       // a probe for the MTU was above the own MSS
    274,       // a probe for the MTU did not leave room for SACK
    634,       // an empty segment was answered, for ever
    1_432,     // a SYN-ACK was never sent again, whatever came
    5_059_590, // a listener had given up, and the side that waited for it did not
    4_596,     // proportional rate reduction left less than a segment
];

/// Freezes that the peer could notice.
pub(crate) const FREEZES: &[u64] = &[
    1_000_029,               // the smallest MSS lost its options
    1_000_038,               // the new clock had begun later
    1_000_139,               // a pause halved the window at each attempt to send
    1_000_546,               // the search for an MTU began again
    1_002_206,               // a reduction was remembered that had not been
    1_002_271, // the pauses of a closed window were counted by time-outs that had doubled
    17_110_983_951_908, // the pauses of a closed window were counted by time-outs that had doubled
    1_018_452, // a pause halved the window more often the more it was tried to send
    847_881_255_912_767_979, // a SYN was forged the moment the connection was over: none of its packets
];
