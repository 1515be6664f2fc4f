//! Reading, writing, and what virtual time means. The laws of the cores over captures are in
//! wharf's `tests/pcap.rs`.

use proptest::prelude::*;

use super::*;
use crate::config::Config;

mod links;

/// A capture in memory, in either format and byte order.
struct File(Vec<u8>);

impl File {
    fn pcap(magic: u32, link: u32) -> File {
        let mut file = File(Vec::new());
        file.words(&[magic, 4 << 16 | 2, 0, 0, 65_535, link]);
        file
    }

    fn words(&mut self, words: &[u32]) {
        words.iter().for_each(|word| self.0.extend(word.to_le_bytes()));
    }

    fn record(&mut self, seconds: u32, fraction: u32, original_len: u32, data: &[u8]) {
        self.words(&[seconds, fraction, data.len() as u32, original_len]);
        self.0.extend(data);
    }

    fn pcapng() -> File {
        let mut file = File(Vec::new());
        file.block(0x0a0d_0d0a, &[0x1a2b_3c4d, 1, u32::MAX, u32::MAX], &[]);
        file
    }

    /// A block of words, then bytes, padded.
    fn block(&mut self, kind: u32, words: &[u32], bytes: &[u8]) {
        let padding = bytes.len().next_multiple_of(4) - bytes.len();
        let len = (12 + words.len() * 4 + bytes.len() + padding) as u32;
        self.words(&[kind, len]);
        self.words(words);
        self.0.extend(bytes);
        self.0.extend(vec![0; padding]);
        self.words(&[len]);
    }

    fn read(&self) -> Result<Vec<Packet>, CaptureError> {
        Reader::new(&self.0[..])?.collect()
    }
}

const MICROSECONDS: u32 = 0xa1b2_c3d4;
const NANOSECONDS: u32 = 0xa1b2_3c4d;

#[test]
fn pcap_is_read_at_its_own_resolution() {
    let mut file = File::pcap(MICROSECONDS, 1);
    file.record(3, 5, 4, b"abcd");
    file.record(4, 0, 1500, b"ab");
    assert_eq!(Reader::new(&file.0[..]).unwrap().resolution(), Resolution::Microseconds);
    let packets = file.read().unwrap();
    assert_eq!(packets[0], Packet::new(3_000_005_000, b"abcd".to_vec()));
    assert!(packets[1].is_cut_short() && packets[1].original_len == 1500);

    let mut file = File::pcap(NANOSECONDS, 1);
    file.record(3, 5, 4, b"abcd");
    assert_eq!(file.read().unwrap()[0].time, 3_000_000_005);
}

#[test]
fn pcapng_is_read_by_each_interfaces_clock() {
    let mut file = File::pcapng();
    file.block(1, &[1, 0], &[]); // microseconds, unless said otherwise
    file.block(1, &[1, 0, 1 << 16 | 9, 9, 8 << 16 | 14, 100, 0, 0], &[]); // 10^-9, 100 s later
    file.block(1, &[1, 2, 1 << 16 | 9, 0x8a, 0], &[]); // 2^-10, snaplen 2
    file.block(6, &[0, 0, 7, 3, 3], b"abc");
    file.block(6, &[1, 0, 7, 3, 9], b"abc");
    file.block(6, &[2, 0, 1536, 3, 3], b"abc");
    file.block(5, &[0, 0, 0], &[]); // statistics: nothing to see
    file.block(3, &[5], b"abcde");
    file.block(2, &[9 << 16 | 1, 0, 8, 1, 1], b"a");
    let packets = file.read().unwrap();
    let times: Vec<_> = packets.iter().map(|packet| packet.time).collect();
    assert_eq!(times, [7_000, 100_000_000_007, 1_500_000_000, 0, 100_000_000_008]);
    assert_eq!(packets[1].original_len, 9);
    assert_eq!(packets[3].data, b"abcde");
}

#[test]
fn what_is_not_read_is_refused_by_name() {
    let refused = |file: File| file.read().unwrap_err();
    assert!(matches!(refused(File(b"GIF89a".to_vec())), CaptureError::NotACapture));
    assert!(matches!(refused(File(Vec::new())), CaptureError::NotACapture));
    let named = refused(File::pcap(MICROSECONDS, 105));
    assert!(named.to_string().contains("IEEE802_11"), "{named}");

    let mut file = File::pcapng();
    file.block(1, &[105, 0], &[]);
    file.block(6, &[0, 0, 0, 1, 1], b"a");
    assert!(matches!(refused(file), CaptureError::LinkType(name) if name == "IEEE802_11"));

    // Another link type behind the first packet, where pcap is written already.
    let mut file = File::pcapng();
    file.block(1, &[1, 0], &[]);
    file.block(6, &[0, 0, 0, 1, 1], b"a");
    file.block(1, &[101, 0], &[]);
    file.block(6, &[1, 0, 0, 1, 1], b"a");
    let late = refused(file);
    assert!(matches!(&late, CaptureError::LateInterface { packet: 2, link } if link == "RAW"));
}

#[test]
fn a_truncated_capture_says_where() {
    let mut file = File::pcap(MICROSECONDS, 1);
    file.record(0, 0, 4, b"abcd");
    file.record(0, 0, 4, b"abcd");
    for (len, packet) in [(23, 0), (25, 1), (43, 1), (45, 2), (63, 2)] {
        let error = File(file.0[..len].to_vec()).read().unwrap_err();
        assert!(matches!(error, CaptureError::Truncated { packet: at } if at == packet), "{error}");
    }
    assert_eq!(File(file.0[..44].to_vec()).read().unwrap().len(), 1);

    let mut file = File::pcapng();
    file.block(1, &[1, 0], &[]);
    file.block(6, &[0, 0, 0, 4, 4], b"abcd");
    let error = File(file.0[..file.0.len() - 1].to_vec()).read().unwrap_err();
    assert!(matches!(error, CaptureError::Truncated { packet: 1 }), "{error}");
}

#[test]
fn a_packet_of_no_interface_or_past_its_block_is_damaged() {
    for fields in [[1, 0, 0, 1, 1], [0, 0, 0, 9, 9], [0, u32::MAX, 0, u32::MAX, 1]] {
        let mut file = File::pcapng();
        file.block(1, &[1, 0], &[]);
        file.block(6, &fields, b"a");
        assert!(matches!(file.read(), Err(CaptureError::Damaged { packet: 1, .. })), "{fields:?}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(
        start in 0usize..4,
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
        changes in proptest::collection::vec((any::<u16>(), any::<u8>()), 0..8),
    ) {
        let mut file = match start {
            0 => File(Vec::new()),
            1 => File::pcap(MICROSECONDS, 1),
            2 => File::pcapng(),
            _ => {
                let mut file = File::pcapng();
                file.block(1, &[1, 0, 1 << 16 | 9, 9, 2 << 16 | 5, 0x6f6c, 0], &[]);
                file.block(6, &[0, 0, 7, 3, 3, 1 << 16 | 4, 0, 0], &[]);
                file.block(3, &[5], b"abcde");
                file
            }
        };
        file.0.extend(bytes);
        for (at, byte) in changes {
            let len = file.0.len();
            if let Some(place) = file.0.get_mut(usize::from(at) % len.max(1)) {
                *place = byte;
            }
        }
        let _ = file.read();
    }

    #[test]
    fn what_is_written_reads_back(
        packets in proptest::collection::vec(
            (0u64..=u64::from(u32::MAX), 0u64..1_000_000_000,
             proptest::collection::vec(any::<u8>(), 0..200), 0u32..100), 0..20),
    ) {
        let packets: Vec<Packet> = packets.into_iter().map(|(seconds, fraction, data, more)| {
            let original_len = data.len() as u32 + more;
            Packet { time: seconds * 1_000_000_000 + fraction, original_len, data }
        }).collect();
        let mut writer = Writer::new(Vec::new(), Resolution::Nanoseconds).unwrap();
        for packet in &packets {
            writer.write(packet.time, packet.original_len, &packet.data).unwrap();
        }
        prop_assert_eq!(File(writer.finish().unwrap()).read().unwrap(), packets);
    }
}

#[test]
fn a_time_that_pcap_cannot_hold_is_refused() {
    let mut writer = Writer::new(Vec::new(), Resolution::Nanoseconds).unwrap();
    let error = writer.write(u64::MAX, 0, &[]).unwrap_err();
    assert!(matches!(error, CaptureError::Timestamp));
}

/// An IPv4 TCP segment with a valid checksum.
fn segment(port: u16, seq: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend([0x08, 0x00, 0x45, 0]);
    frame.extend((40 + payload.len() as u16).to_be_bytes());
    frame.extend([0, 7, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    let sum = wire::checksum::sum(&frame[14..34]).complement();
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame.extend(port.to_be_bytes());
    frame.extend([0x1f, 0x90]);
    frame.extend(seq.to_be_bytes());
    frame.extend([0, 0, 0, 0, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    frame.extend(payload);
    let pseudo = wire::checksum::pseudo_v4(&frame[26..34], 6, frame.len() - 34);
    let sum = pseudo.plus(wire::checksum::sum(&frame[34..])).complement();
    frame[50..52].copy_from_slice(&sum.to_be_bytes());
    frame
}

const ACK: u8 = 0x10;
const SYN: u8 = 0x02;

#[test]
fn what_is_held_is_written_at_its_deadline_before_what_came_later() {
    let config = Config::default();
    let timeout = config.lro.min_timeout;
    let input = [
        Packet::new(1_000, segment(1, 0, ACK, &[1; 100])),
        Packet::new(2_000, segment(1, 100, ACK, &[2; 100])),
        Packet::new(3_000, segment(2, 0, ACK, &[3; 100])),
        Packet::new(4_000, segment(3, 0, SYN, &[])),
        Packet::new(5_000_000, segment(4, 0, ACK, &[4; 100])),
    ];
    let mut output = Vec::new();
    let statistics = lro(input.into_iter().map(Ok), &config, &mut output).unwrap();
    let written: Vec<_> = output.iter().map(|packet| (packet.time, packet.data.len())).collect();
    // The SYN at once; flow 1 and flow 2 when they have timed out; flow 4 at the end.
    assert_eq!(
        written,
        [(4_000, 54), (2_000 + timeout, 254), (3_000 + timeout, 154), (5_000_000, 154)]
    );
    assert_eq!((statistics.packets_in, statistics.packets_out), (5, 4));
    assert_eq!(statistics.counter("lro", "merged"), 2);
    assert_eq!(statistics.counter("lro_flush", "timeout"), 2);
}

#[test]
fn a_packet_captured_in_part_goes_through_behind_what_is_held() {
    let part = Packet {
        time: 2_000,
        original_len: 154,
        data: segment(1, 100, ACK, &[2; 100])[..60].to_vec(),
    };
    let input = [Packet::new(1_000, segment(1, 0, ACK, &[1; 100])), part.clone()];
    let mut output = Vec::new();
    let statistics = lro(input.into_iter().map(Ok), &Config::default(), &mut output).unwrap();
    assert_eq!(output[1], part);
    assert_eq!(statistics.counter("pcap", "cut_short"), 1);

    let mut output = Vec::new();
    let statistics = gso([Ok(part.clone())], 100, &mut output).unwrap();
    assert_eq!((output.as_slice(), statistics.counter("gso_pass", "cut_short")), (&[part][..], 1));
}

#[test]
fn gso_cuts_what_is_too_long_and_counts_what_it_keeps() {
    let mut udp = segment(1, 0, ACK, &[1; 3000]);
    udp[23] = 17;
    udp[38..40].copy_from_slice(&3020u16.to_be_bytes());
    let input = [
        Packet::new(1, segment(1, 0, ACK, &[1; 3000])),
        Packet::new(2, segment(1, 3000, ACK, &[1; 1460])),
        Packet::new(3, udp.clone()),
        Packet::new(4, vec![0; 60]),
        Packet::new(5, vec![0; 9]),
    ];
    let mut output = Vec::new();
    let statistics = gso(input.iter().cloned().map(Ok), 1500, &mut output).unwrap();
    let lengths: Vec<_> = output.iter().map(|p| (p.time, p.data.len())).collect();
    assert_eq!(lengths, [(1, 1514), (1, 1514), (1, 134), (2, 1514), (3, 3054), (4, 60), (5, 9)]);
    let kept = |name| statistics.counter("gso_pass", name);
    assert_eq!((kept("fits"), kept("udp"), kept("not_ip")), (1, 1, 1));
    assert_eq!(statistics.counter("gso_refused", "short_ethernet"), 1);
    assert_eq!(statistics.counter("gso", "segments"), 3);
}

#[test]
fn an_error_of_the_input_or_the_output_ends_the_run() {
    struct Full;
    impl Output for Full {
        fn write(&mut self, _: u64, _: u32, _: &[u8]) -> Result<(), CaptureError> {
            Err(CaptureError::Io(std::io::ErrorKind::StorageFull.into()))
        }
    }
    let packet = || Ok(Packet::new(0, segment(1, 0, ACK, &[1; 100])));
    let damaged = || Err(CaptureError::Truncated { packet: 2 });
    let config = Config::default();
    assert!(lro([packet(), damaged()], &config, &mut Vec::new()).is_err());
    assert!(gso([packet(), damaged()], 1500, &mut Vec::new()).is_err());
    assert!(lro([packet()], &config, &mut Full).is_err());
    assert!(gso([packet()], 1500, &mut Full).is_err());
}
