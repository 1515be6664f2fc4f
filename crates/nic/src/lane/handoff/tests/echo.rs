//! An application that sends back what it receives, by itself or by rings that it lends the NIC, whoever has the connection.

use std::collections::VecDeque;
use std::sync::Arc;

use handoff::command::{NicControl, nic};
use handoff::ring::receive;
use handoff::ring::splice::TakenBack;
use handoff::session::status::Place;
use proptest::prelude::*;

use super::world::{CID, SECOND, World};

/// What it has read, and has not written yet.
#[derive(Default)]
struct Echo(VecDeque<u8>);

impl World {
    /// The application has both rings again.
    fn take_back(&self) -> bool {
        let area = self.memory.shared().area(CID).unwrap();
        receive::App::new(area.receive().unwrap()).take_back() == TakenBack::Done
    }

    /// It lends them, as it has nothing itself.
    fn lend(&mut self) {
        if self.is_dead || self.status().place != Place::Nic {
            return;
        }
        let memory = Arc::clone(&self.memory);
        let area = memory.shared().area(CID).unwrap();
        let ring = receive::App::new(area.receive().unwrap());
        if ring.lend((CID, area.notes()), |_| true) == Ok(true) {
            let cmd = NicControl::Splice(CID.0);
            let ctrl = nic::Ctrl { cmd, ..nic::Ctrl::new(CID, area.epoch()) };
            self.command(ctrl.into());
        }
    }

    fn echo(&mut self, Echo(held): &mut Echo, most: usize, total: usize) {
        // `back` is what the peer has sent, and was read here or there; `out` what was sent back.
        match self.choice() {
            0..40 if held.is_empty() => self.lend(),
            40..80 => {
                self.take_back();
                let bytes = self.read_bytes(most);
                held.extend(bytes);
            }
            80..120 if !held.is_empty() => {
                self.take_back();
                let bytes: Vec<u8> = held.iter().copied().take(most).collect();
                let put = self.write_bytes(&bytes);
                held.drain(..put);
            }
            _ => {}
        }
        let bytes = self.back.next(most, total);
        self.back.sent += self.peer.send(self.peer_id, &bytes, self.now);
        let bytes = self.peer.recv(self.peer_id, most, self.now);
        self.out.take(&bytes);
    }

    fn run_echo(&mut self, total: usize) {
        let mut echo = Echo::default();
        let mut turns = 0;
        while self.out.received < total {
            turns += 1;
            let (sent, came) = (self.back.sent, self.out.received);
            assert!(turns < 400_000, "{sent} of {total} sent, {came} back, {:?}", self.status());
            if !self.is_dead {
                self.move_or_stay();
            }
            let most = 1 + self.choice() * 64;
            self.echo(&mut echo, most, total);
            self.turn();
            if turns % 64 == 0 {
                // Timers.
                self.now += SECOND / 100;
            }
        }
    }
}

proptest! {
    #[test]
    fn what_is_sent_back_is_what_came_whoever_does_it(
        workers in 1..4_usize,
        choices in proptest::collection::vec(any::<u8>(), 50..1000),
        loss in prop_oneof![Just(0), Just(0), 1_usize..12],
        total in 1_usize..200_000,
        dies_at in prop_oneof![Just(None), (0_u64..3000).prop_map(Some)],
    ) {
        let mut world = World::new((workers, false), choices, loss);
        world.nic.death.lock().unwrap().at = dies_at;
        world.run_echo(total);
    }
}

/// Rings that are lent are used, without the application, until that has lasted for long.
#[test]
fn what_is_lent_is_moved_without_the_application() {
    let mut world = World::new((1, false), vec![255; 8], 0);
    world.pick();
    (0..10).for_each(|_| world.turn());
    world.lend();
    let told = world.nic.events();
    let total = 100_000;
    for _ in 0..1000 {
        let bytes = world.back.next(4096, total);
        world.back.sent += world.peer.send(world.peer_id, &bytes, world.now);
        let bytes = world.peer.recv(world.peer_id, 1 << 20, world.now);
        world.out.take(&bytes);
        world.turn();
    }
    assert_eq!(world.out.received, total);
    assert_eq!(world.nic.events(), told, "the application was told");
    world.now += SECOND;
    let bytes = world.back.next(100, total + 100);
    world.back.sent += world.peer.send(world.peer_id, &bytes, world.now);
    (0..10).for_each(|_| world.turn());
    assert!(!world.take_back(), "it was given back");
    assert_eq!(world.read_bytes(1000).len(), 100);
}
