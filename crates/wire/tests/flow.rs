//! The flow hash: the guarantees of its family for two flows, and how flows spread over a table. Keys are
//! random, from fixed seeds.

use degen::Random;
use wire::flow::bucket;
use wire::{FlowHash, FlowKey, Packet};

/// A constant of the hash before this one: a destination that began with it took source, ports and seed
/// out of the hash.
const K: u64 = 0xa076_1d64_78bd_642f;

/// A hash with keys of its own.
fn hash(random: &mut Random) -> FlowHash {
    FlowHash::new([(); FlowHash::KEYS].map(|()| random.next()))
}

/// IPv6 TCP.
fn flow(addresses: [u64; 4], ports: u32) -> FlowKey {
    FlowKey { addresses, ports, ipv6: true, udp: false }
}

/// What can differ between flows: eight address words and the ports.
const FIELDS: usize = 9;

fn with(mut key: FlowKey, field: usize, value: u32) -> FlowKey {
    match (key.addresses.get_mut(field / 2), field % 2) {
        (None, _) => key.ports = value,
        (Some(word), 0) => *word = *word >> 32 << 32 | u64::from(value),
        (Some(word), _) => *word = *word << 32 >> 32 | u64::from(value) << 32,
    }
    key
}

/// Two flows that are not the same: of one kind and all but one field, of one kind and no field, of two
/// kinds.
fn pairs() -> Vec<[FlowKey; 2]> {
    let mut pairs = Vec::new();
    for base in [flow([0; 4], 0), flow([u64::MAX; 4], u32::MAX), flow([1, 2, K, K], 0x5000_9c40)] {
        for field in 0..FIELDS {
            let values = [(0, 1), (0, 1 << 31), (0x8000_0000, 0x7fff_ffff), (7, K as u32)];
            pairs.extend(values.map(|(a, b)| [with(base, field, a), with(base, field, b)]));
        }
        pairs.push([base, FlowKey { udp: true, ..base }]);
        let [a, ..] = base.addresses;
        let ipv4 = FlowKey { addresses: [a, 0, 0, 0], ipv6: false, ..base };
        pairs.extend([[base, ipv4], [ipv4, FlowKey { udp: true, ..ipv4 }]]);
        pairs.extend([0, 1, 8].map(|field| [with(ipv4, field, 1), with(ipv4, field, 2)]));
    }
    pairs
}

/// The law of the family: over random keys, the hashes of two flows have `BITS` bits in common as often as
/// two random numbers have, be they the upper or the lower bits, and are never the same: 2^-32 of keys
/// are far more than are tried.
#[test]
fn two_flows_are_as_different_as_random_numbers() {
    const BITS: u32 = 10;
    const KEYS: usize = 1 << 16;
    let mut random = Random::new(1);
    for [one, other] in pairs() {
        assert_ne!(one, other);
        let (mut upper, mut lower) = (0, 0);
        for _ in 0..KEYS {
            let hash = hash(&mut random);
            let differ = hash.of(&one) ^ hash.of(&other);
            assert_ne!(differ, 0, "{one:x?} {other:x?}");
            upper += usize::from(differ.leading_zeros() >= BITS);
            lower += usize::from(differ.trailing_zeros() >= BITS);
        }
        // 64 are expected; 16 to 112 is six standard deviations.
        let usual = 16..=112;
        assert!(
            usual.contains(&upper) && usual.contains(&lower),
            "{upper} {lower} {one:x?} {other:x?}"
        );
    }
}

/// No field cancels the others: whatever one field is, another still changes the hash. For one key at a time,
/// and nearly all of them.
#[test]
fn each_field_changes_the_hash_whatever_another_is() {
    let mut random = Random::new(2);
    for words in [[0; 4], [u64::MAX; 4], [K; 4], [0, 0, K, 0], [!K; 4]] {
        for fixed in 0..FIELDS {
            for moving in (0..FIELDS).filter(|&field| field != fixed) {
                let hash = hash(&mut random);
                let base = with(flow(words, 0), fixed, K as u32);
                let mut hashes: Vec<u32> =
                    (0..256).map(|n| hash.of(&with(base, moving, n << 7))).collect();
                hashes.sort_unstable();
                hashes.dedup();
                assert!(hashes.len() >= 255, "{} of {base:x?}, {moving}", hashes.len());
            }
        }
    }
}

/// Flows as they occur: 4,000 of one kind each.
fn flow_sets() -> [(&'static str, Vec<FlowKey>); 6] {
    let mut random = Random::new(3);
    let mut set = |of: fn(u64, &mut Random) -> FlowKey| -> Vec<FlowKey> {
        (0..4000).map(|n| of(n, &mut random)).collect()
    };
    [
        ("random", set(|_, r| flow([r.next(), r.next(), r.next(), r.next()], r.next() as u32))),
        // The destination that made the hash before this one the same for all.
        ("aimed", set(|_, r| flow([r.next(), r.next(), K, 1], r.next() as u32))),
        ("aimed, ports in order", set(|n, _| flow([1, 2, K, 1], 1024 + n as u32))),
        ("ports in order", set(|n, _| flow([1, 2, 3, 4], u32::from((1024 + n as u16).to_be())))),
        ("hosts in order", set(|n, _| flow([1, n.to_be(), 3, 4], 0x5000_0050))),
        (
            "IPv4",
            set(|n, _| FlowKey {
                addresses: [n.to_be(), 0, 0, 0],
                ports: 0x5000_0050,
                ipv6: false,
                udp: false,
            }),
        ),
    ]
}

/// They spread over buckets as random numbers would (the test of chi squared, 255 degrees of freedom: 255
/// on average, with a standard deviation of 23).
#[test]
fn flows_spread_over_buckets() {
    let mut random = Random::new(4);
    for (name, set) in flow_sets() {
        let mut total = 0.0;
        for _ in 0..50 {
            let hash = hash(&mut random);
            let mut counts = [0u32; 256];
            set.iter().for_each(|key| counts[bucket(hash.of(key), 256)] += 1);
            let mean = set.len() as f64 / 256.0;
            let chi: f64 = counts.iter().map(|&n| (f64::from(n) - mean).powi(2) / mean).sum();
            assert!(chi < 450.0, "{name}: {chi}");
            total += chi;
        }
        let average = total / 50.0;
        assert!((200.0..300.0).contains(&average), "{name}: {average} on average");
    }
}

#[test]
fn debug_output_shows_no_keys() {
    let key = flow([1, 2, 3, 4], 5);
    assert_eq!(FlowHash::from_seed(1).of(&key), FlowHash::from_seed(1).of(&key));
    assert_ne!(FlowHash::from_seed(1).of(&key), FlowHash::from_seed(2).of(&key));
    assert_eq!(format!("{:?}", FlowHash::from_seed(1)), "FlowHash { .. }");
}

/// Every hash has a bucket, the last one too, and each bucket has its hashes.
#[test]
fn buckets_are_in_range() {
    for buckets in [1, 2, 8192, 1 << 25] {
        assert_eq!(bucket(0, buckets), 0);
        assert_eq!(bucket(u32::MAX, buckets), buckets - 1);
        let first = (1u64 << 32) / buckets as u64;
        assert!(buckets == 1 || bucket(first as u32, buckets) == 1);
    }
}

/// A TCP or UDP frame without data, between two hosts that are identified by one number each.
fn frame(ipv6: bool, udp: bool, [from, to]: [(u8, u16); 2]) -> Vec<u8> {
    let len = if udp { 8 } else { 20 };
    let mut frame = vec![2; 12];
    if ipv6 {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, len, if udp { 17 } else { 6 }, 64]);
        frame.extend([[from.0; 16], [to.0; 16]].concat());
    } else {
        frame.extend([8, 0, 0x45, 0, 0, 20 + len, 0, 0, 0, 0, 64, if udp { 17 } else { 6 }, 0, 0]);
        frame.extend([[from.0; 4], [to.0; 4]].concat());
    }
    frame.extend([from.1.to_be_bytes(), to.1.to_be_bytes()].concat());
    let rest: &[u8] = if udp { &[0, 8, 0, 0] } else { &[0, 0, 0, 1, 0, 0, 0, 1, 0x50, 16] };
    frame.extend(rest);
    frame.resize(frame.len() + usize::from(len) - 4 - rest.len(), 0);
    frame
}

/// Address, port, IP version and transport make the flow, and each direction is that of the other,
/// reversed.
#[test]
fn keys_are_read_from_frames() {
    let key = |frame: &[u8]| Packet::parse(frame).expect("a sound frame").key().expect("a flow");
    let ends = [(1, 1000), (2, 80)];
    let others =
        [[(3, 1000), (2, 80)], [(1, 1000), (3, 80)], [(1, 1001), (2, 80)], [(1, 1000), (2, 81)]];
    let hash = FlowHash::from_seed(1);
    for (ipv6, udp) in [(false, false), (false, true), (true, false), (true, true)] {
        let one = key(&frame(ipv6, udp, ends));
        assert_eq!(one, key(&frame(ipv6, udp, ends)));
        assert_eq!(one.reversed(), key(&frame(ipv6, udp, [ends[1], ends[0]])));
        let kinds = [key(&frame(!ipv6, udp, ends)), key(&frame(ipv6, !udp, ends)), one.reversed()];
        for other in others.map(|ends| key(&frame(ipv6, udp, ends))).into_iter().chain(kinds) {
            assert_ne!(one, other);
            assert_ne!(hash.of(&one), hash.of(&other));
        }
    }
}
