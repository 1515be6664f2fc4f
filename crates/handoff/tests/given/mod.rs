//! Laws for bytes from outside, which tests and fuzz targets share.
#![allow(dead_code, unreachable_pub)] // each user has its part

use std::sync::atomic::{AtomicU64, Ordering};

use handoff::command::{NicCommand, OsCommand};
use handoff::mirror::{AGREED_WORDS, MIRROR_WORDS, mirror_sum, read_words};
use handoff::policy::Policy;
use handoff::ring::command::{CommandRing, Consumer, Producer};
use handoff::ring::{Ring, receive, send};
use handoff::session::status::Status;
use handoff::session::{Layout, MESSAGE_LEN, Message, Shared, VERSION};
use handoff::{Cid, Epoch};

/// Bytes are refused, or are exactly what the command writes.
pub fn commands(bytes: [u8; 16]) {
    match NicCommand::decode(bytes) {
        Ok(command) => assert_eq!(command.encode(), bytes, "{command:?}"),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    match OsCommand::decode(bytes) {
        Ok(command) => assert_eq!(command.encode(), bytes, "{command:?}"),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// A text is refused in one line, or is a policy that is read again as it is written.
pub fn policy(text: &str) {
    match text.parse::<Policy>() {
        Ok(policy) => assert_eq!(policy.to_string().parse().as_ref(), Ok(&policy), "{policy}"),
        Err(error) => {
            let line = error.to_string();
            assert!(!line.is_empty() && !line.contains('\n') && line.len() < 400, "{line}");
        }
    }
}

/// Bytes are no record, or one that is written as the same words.
pub fn mirror(bytes: &[u8]) {
    let mut words = [0; MIRROR_WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
    }
    mirror_words(&words);
    // Random bytes have no right sum.
    with_right_sums(&mut words);
    mirror_words(&words);
}

/// Makes the sums of the record and of both copies right.
pub fn with_right_sums(words: &mut [u64; MIRROR_WORDS]) {
    for (start, end) in [(0, AGREED_WORDS), (16, 24), (24, 32)] {
        words[end - 1] = mirror_sum(&words[start..end - 1]);
    }
}

/// The words are no record, or one that is written as the same words, and gives a connection or an error.
pub fn mirror_words(words: &[u64; MIRROR_WORDS]) {
    let Ok(record) = read_words(words) else { return };
    assert_eq!(record.agreed.words(), words[..AGREED_WORDS]);
    let copies = [&words[16..24], &words[24..32]];
    let number = |copy: &[u64]| copy[0] as u32;
    let writes = |copy: &[u64]| record.moving.words(number(copy), record.agreed.epoch) == copy;
    assert!(copies.into_iter().any(writes), "{record:?}");
    let sent = record.moving.snd_nxt - record.moving.snd_una;
    let queue = vec![0; sent.min(1 << 20) as usize];
    if let Ok(repair) = record.to_repair(queue, Vec::new(), u64::from(sent)) {
        let _ = tcp::Snapshot::from_repair(&repair);
    }
}

/// Bytes are no message of a session, or exactly what the message writes; a status is read as something; and memory with
/// anything in it has parts that are apart, and says something or nothing of what wharf wants.
pub fn session(bytes: &[u8]) {
    for chunk in bytes.chunks(MESSAGE_LEN) {
        let mut message = chunk.to_vec();
        for _ in 0..2 {
            match Message::decode(&message) {
                Ok(read) => assert_eq!(read.encode().to_vec(), message, "{read:?}"),
                Err(error) => assert!(!error.to_string().contains('\n')),
            }
            // Of this version.
            message.iter_mut().zip(VERSION.to_le_bytes()).for_each(|(to, byte)| *to = byte);
        }
    }
    let layout = Layout { workers: 1, commands: 2, connections: 2, send: 4096, receive: 4096 };
    let words: Vec<_> = (0..layout.words()).map(|_| AtomicU64::new(0)).collect();
    for (at, bytes) in bytes.chunks_exact(8).enumerate() {
        let word = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
        let _ = Status::decode(word);
        // All over the memory that is no data.
        words[at * 7 % (layout.data_of(Cid(0)).0 / 8)].store(word, Ordering::Relaxed);
    }
    let Ok(shared) = Shared::new(layout, &words) else { return };
    if let Some((_, text)) = shared.said().policy() {
        policy(text.as_str().unwrap_or_default());
    }
    let now = shared.picks().load(Ordering::Relaxed);
    let ends = |port| {
        let end = core::net::SocketAddr::from(([10, 0, 0, 1], port));
        Some((end, end))
    };
    for (before, now) in [(0, now), (now.wrapping_sub(1), now), (now, 0)] {
        let _ = shared.is_asked_for((before, now), || ends(now as u16));
    }
    // What wharf says is understood whatever was there.
    shared.ask(ends(7));
    let now = shared.picks().load(Ordering::Relaxed);
    assert!(shared.is_asked_for((now.wrapping_sub(1), now), || ends(7)));
    assert!(!shared.is_asked_for((now.wrapping_sub(1), now), || ends(8)));
}

/// An application that writes these bytes, eight at a time, wherever it likes, between the NIC's steps.
pub fn hostile_rings(bytes: &[u8]) {
    let words: Vec<_> = (0..32).map(|_| AtomicU64::new(0)).collect();
    let ring = |app: usize| {
        let places = words[app + 2..].first_chunk();
        places
            .and_then(|places| Ring::new(&words[app], &words[app + 1], places, &words[10..18]).ok())
    };
    let (Some(out), Some(into)) = (ring(0), ring(4)) else { return };
    let slots = CommandRing::new(&words[8], &words[9], &words[24..32]);
    let mut consumer = slots.map(Consumer::new).ok();
    let mut producer = slots.map(Producer::new).ok();
    let mut send = send::Nic::open(out, Epoch(1), 0xffff_fff0, &[1; 20]).ok();
    let mut receive = receive::Nic::open(into, Epoch(1), 7, &[2; 20], 9).ok();
    let mut buffer = [0; 64];
    for step in bytes.chunks_exact(9) {
        let value = u64::from_le_bytes(step[..8].try_into().unwrap_or_default());
        let place = &words[usize::from(step[8] & 15)];
        match step[8] >> 4 {
            // Near what is there, else nearly nothing is possible.
            0..=3 => _ = place.fetch_add(value & 31, Ordering::Relaxed),
            4 => place.store(value, Ordering::Relaxed),
            5..=7 => {
                if let Some(send) = &mut send {
                    let _ = send.look();
                    assert!(send.len() <= out.capacity());
                    assert!(send.peek(value as u32, &mut buffer) <= send.len() as usize);
                    let lent = send.bytes((value >> 16) as u32 & 31, 40);
                    let lent: usize = lent.iter().map(|piece| piece.len()).sum();
                    assert!(lent <= send.len() as usize);
                    send.release((value >> 32) as u32);
                    if value & 1 << 63 != 0 {
                        send.grow();
                    }
                }
            }
            8..=10 => {
                if let Some(receive) = &mut receive {
                    let _ = receive.look();
                    assert!(receive.len() <= into.capacity());
                    assert!(receive.put((value & 31) as u32, &buffer) <= receive.room() as usize);
                    receive.publish(((value >> 32) & 15) as u32);
                    assert!(receive.peek(&mut buffer) <= receive.len() as usize);
                }
            }
            11 | 12 => {
                let popped = consumer.as_mut().map(Consumer::pop);
                if let Some(Ok(Some(command))) = popped {
                    commands(command);
                }
                let _ = producer.as_mut().map(|producer| producer.push([3; 16]));
            }
            13 => {
                let _ = send.as_mut().map(send::Nic::flip);
                let _ = receive.as_mut().map(receive::Nic::flip);
            }
            // What the application's side makes of it is for itself to bear, but it does not panic.
            _ => {
                let _ = send::App::new(out).send(&buffer[..usize::from(step[0] & 63)]);
                let _ = receive::App::new(into).recv(&mut buffer);
            }
        }
    }
}
