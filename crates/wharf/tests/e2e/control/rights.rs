//! What a wharf that runs may still do: configure the network and bind any port, and its workers nothing at all.

use std::fs;

use testkit::lab::{Host, Program, Wire, wait_until};
use testkit::missing::lacks;

use crate::setup::{Plan, Port, wharf};

/// What is kept, as bits.
const KEPT: u64 = 1 << sys::capability::NET_ADMIN | 1 << sys::capability::NET_BIND_SERVICE;
/// A capability that root has in every user namespace, and wharf has no use for.
const SYS_ADMIN: u64 = 1 << 21;

/// A thread's name, its rights to have and use, those that it could gain, and whether it may gain any.
#[derive(Debug)]
struct Thread {
    name: String,
    sets: [u64; 4],
    bound: u64,
    may_gain: bool,
}

impl Thread {
    fn of(status: &str) -> Thread {
        let field = |name| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap().trim_start_matches(':').trim()
        };
        let set = |name| u64::from_str_radix(field(name), 16).unwrap();
        Thread {
            name: field("Name").to_owned(),
            sets: ["CapEff", "CapPrm", "CapInh", "CapAmb"].map(set),
            bound: set("CapBnd"),
            may_gain: field("NoNewPrivs") != "1",
        }
    }

    /// Whether it has no more than it needs: those that move packets need nothing.
    fn is_modest(&self) -> bool {
        let may = if self.name.starts_with("wharf-") { 0 } else { KEPT };
        self.sets.iter().all(|set| set & !may == 0) && self.bound & !may == 0 && !self.may_gain
    }
}

fn threads(process: u32) -> Vec<Thread> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let status = tasks.filter_map(|task| fs::read_to_string(task.path().join("status")).ok());
    status.map(|status| Thread::of(&status)).collect()
}

/// All threads of all processes on the host: the program's, and its guards'.
fn none_has_more_than_needed(host: &Host, program: &Program) {
    let own = Thread::of(&fs::read_to_string("/proc/thread-self/status").unwrap());
    if own.sets[0] & SYS_ADMIN == 0 {
        lacks("root: there is nothing to give up");
        return;
    }
    let mut all = Vec::new();
    // A thread has its name and has given up its rights a moment after it was started.
    let modest = wait_until(|| {
        all = host.processes().into_iter().map(|process| (process, threads(process))).collect();
        let own = all.iter().filter(|(process, _)| *process == program.id());
        let has = |name: &str| {
            own.clone().flat_map(|(_, threads)| threads).any(|thread| thread.name.starts_with(name))
        };
        let all_are = all.iter().flat_map(|(_, threads)| threads).all(Thread::is_modest);
        has("wharf-") && has("control") && all_are
    });
    assert!(modest, "{all:#?}");
    let of_program = all.iter().find(|(process, _)| *process == program.id());
    // What is kept is there, or addresses would not come back.
    let main =
        of_program.and_then(|(_, threads)| threads.iter().find(|thread| thread.name == "wharf"));
    assert_eq!(main.map(|main| main.sets[0]), Some(KEPT), "{all:#?}");
}

#[test]
fn up_keeps_what_it_needs_to_configure_the_network() {
    for port in Port::EACH {
        for words in [&[][..], &["--set", "workers=2", "--set", "host.queues=1"]] {
            let Some(up) = (Plan { queues: 2, ..Plan::new(port) }).up_with(words) else { continue };
            none_has_more_than_needed(&up.hosts.server, &up.wharf);
        }
    }
}

#[test]
fn degen_keeps_what_it_needs_to_configure_the_network() {
    let (Some(middle), Some(far)) = (Host::new(), Host::new()) else { return };
    for (near, far_end) in [("left", "left0"), ("right", "right0")] {
        let wire = Wire { near, far: far_end, mtu: 1500, queues: 1, offloads: true };
        wire.lay(&middle, &far);
    }
    for more in [&["--no-real-time"][..], &["--mode", "packet"]] {
        let words = [&["degen", "--between", "left", "right"], more].concat();
        let mut degen = middle.spawn(wharf().args(words));
        degen.line_with("degen: ");
        none_has_more_than_needed(&middle, &degen);
    }
}

#[test]
fn an_endpoint_keeps_what_it_needs_to_configure_the_network() {
    let (Some(host), Some(far)) = (Host::new(), Host::new()) else { return };
    let wire = Wire { near: "wire0", far: "peer0", mtu: 1500, queues: 1, offloads: false };
    wire.lay(&host, &far);
    let behind = "--host tcp0 --host-address 10.0.0.1/24 --address 10.0.0.2/24";
    let on = "--wire wire0 --address 10.0.1.2/24";
    for place in [behind, on] {
        let words = format!("tcp echo {place} --port 7");
        let mut engine = host.spawn(wharf().args(words.split(' ')));
        engine.line_with("tcp: echo");
        none_has_more_than_needed(&host, &engine);
    }
}
