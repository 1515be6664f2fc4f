//! Children that have their parent's memory, and not its descriptors: what they do with a number is no matter of the parent's
//! connection, which has the same number there.

use std::io::{Read, Write};

use super::{Stage, connect};
use crate::handoff::{bytes, echoes, ends};

const PORT: u16 = 7000;

/// A child gives the connection's number to something else in each of these ways, and executes another program.
fn stays(all: &[&str]) {
    let Some(stage) = Stage::new(&["gcc"]) else { return };
    let program = stage.build("vforked.c", &["gcc", "-O1"], &[]);
    let mut run = stage.wharf_run("at_accept", &[&program, "7000"]);
    let mut server = stage.hosts.server.spawn(&mut run);
    server.line_with("listens");
    for (seed, what) in (0..).zip(all) {
        println!("{what}");
        let mut stream = connect(&stage.hosts, PORT);
        stage.shows(PORT, 1);
        stream.write_all(format!("{what}\n").as_bytes()).unwrap();
        let mut done = [0; 5];
        stream.read_exact(&mut done).unwrap();
        assert_eq!(done, *b"done\n", "{what}");
        echoes(&stream, &bytes(100_000, seed));
        stage.all_stayed();
        ends(stream);
    }
    assert!(server.runs(), "{}", server.wait());
}

#[test]
fn a_connection_stays_whose_number_a_child_of_vfork_gives_to_something_else() {
    stays(&["onto", "onto_by_three", "closed", "closed_by_range", "closed_from"]);
}

#[test]
fn a_connection_stays_whose_number_a_child_of_vfork_makes_another_one_of() {
    stays(&["set", "accepted", "connected"]);
}

#[test]
fn a_connection_stays_whose_number_a_spawned_program_has_for_something_else() {
    stays(&["spawned_onto", "spawned_closed", "spawned_open"]);
}
