//! Programs of Debian's packages, in each setting in which they are to run.

use testkit::lab::wait_until;
use testkit::missing::lacks;

use super::Pair;
use super::containers::CONTAINER;
use super::nic::{Ends, handoffs};
use super::programs::{self, NOT_OF_IWARP, PERFTESTS};
use crate::setup::Ip;

/// Whose the programs are, and where they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Setting {
    /// A user without capabilities, on two hosts; the tests beside this one run each program so.
    User,
    /// Root, on two hosts.
    Root,
    /// A user, both ends on one host, over its own address.
    OneHost,
    /// Root, both ends on one host.
    RootOnOneHost,
    /// In a user, PID and mount namespace below the device's, without capabilities, on two hosts.
    Container,
    /// As above, both ends on one host.
    ContainersOnOneHost,
    /// A user, on two hosts with a `wharf up` each, whose TCP has the connections.
    Nic,
}

const PROGRAMS: [&str; 11] = [
    "ibv_devices",
    "ibv_devinfo",
    "rping",
    "ucmatose",
    "rdma_server",
    "rdma_client",
    "fio",
    "qperf",
    "fi_pingpong",
    "unshare",
    "setpriv",
];

impl Setting {
    const ALL: [Setting; 7] = [
        Setting::User,
        Setting::Root,
        Setting::OneHost,
        Setting::RootOnOneHost,
        Setting::Container,
        Setting::ContainersOnOneHost,
        Setting::Nic,
    ];

    fn pair(self) -> Option<Pair> {
        let is_root = matches!(self, Setting::Root | Setting::RootOnOneHost);
        if is_root && !sys::process::is_root() {
            lacks("root");
            return None;
        }
        let programs = [&PROGRAMS[..], &PERFTESTS, &NOT_OF_IWARP].concat();
        let mut pair = match self {
            Setting::Nic => Pair::with_nic(Ends::Both, &programs)?,
            _ => Pair::new(&programs)?,
        };
        pair.is_root = is_root;
        pair.is_one_host = matches!(
            self,
            Setting::OneHost | Setting::RootOnOneHost | Setting::ContainersOnOneHost
        );
        if matches!(self, Setting::Container | Setting::ContainersOnOneHost) {
            pair.container = &CONTAINER;
        }
        Some(pair)
    }

    /// One program of each kind, as short as it can be.
    fn try_each_kind(self) {
        let Some(pair) = self.pair() else { return };
        programs::devices(&pair);
        programs::pings(&pair, Ip::V4, "64", 2);
        programs::examples(&pair, &["-C", "1", "-c", "1"]);
        for name in ["ib_write_bw", "ib_send_lat", "ib_atomic_bw"] {
            programs::perftest(&pair, &[name, "-R", "-n", "5"]);
        }
        programs::ping_pong(&pair, 1);
        programs::fio(&pair, &["--verb=write"], "64k");
    }
}

#[test]
fn programs_run_as_root() {
    Setting::Root.try_each_kind();
}

#[test]
fn programs_run_on_one_host() {
    Setting::OneHost.try_each_kind();
}

#[test]
fn programs_run_as_root_on_one_host() {
    Setting::RootOnOneHost.try_each_kind();
}

#[test]
fn programs_run_in_containers_on_one_host() {
    Setting::ContainersOnOneHost.try_each_kind();
}

#[test]
fn programs_run_in_containers() {
    Setting::Container.try_each_kind();
}

/// `WHARF_RDMA_PROGRAMS=all`, or `User,RootOnOneHost` and so on: all of the programs, with all of the words that they are tried with.
#[test]
#[ignore = "a long run: WHARF_RDMA_PROGRAMS says in which settings"]
fn every_program_runs_in_every_setting() {
    type Run = fn(&Pair);
    // Beside the programs, how many of their connections are there for long enough to come onto the NIC, if there is one: that
    // of rdma_client, for example, may be over before.
    const TABLE: [(&str, u64, Run); 7] = [
        ("ibv_devices, ibv_devinfo", 0, programs::devices),
        ("rping", 10, programs::rpings),
        ("ucmatose, rdma_server, rdma_client", 3, programs::connection_manager),
        ("what iWARP has not", 0, programs::refused),
        ("fi_pingpong", 1, programs::libfabric),
        ("fio, qperf", 15, programs::all_storage),
        ("perftest", 23, programs::perftests),
    ];
    let Ok(asked) = std::env::var("WHARF_RDMA_PROGRAMS") else { return };
    let is_asked = |setting: &Setting| {
        asked == "all" || asked.split(',').any(|name| name == format!("{setting:?}"))
    };
    for setting in Setting::ALL.into_iter().filter(is_asked) {
        let Some(pair) = setting.pair() else { return };
        for (programs, connections, run) in TABLE {
            let hosts = pair.on_nic();
            let counts = || hosts.iter().map(|host| handoffs(host)).collect::<Vec<_>>();
            let before = counts();
            run(&pair);
            let have_taken =
                || counts().iter().zip(&before).all(|(now, before)| *now >= before + connections);
            assert!(wait_until(have_taken), "{programs}: {before:?}, then {:?}", counts());
            eprintln!("{setting:?}: {programs}: well");
        }
    }
}
