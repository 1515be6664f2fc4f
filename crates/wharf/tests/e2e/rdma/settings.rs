//! Programs of Debian's packages, in each setting in which they are to run.

use testkit::missing::lacks;

use super::Pair;
use super::containers::CONTAINER;
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
    const ALL: [Setting; 6] = [
        Setting::User,
        Setting::Root,
        Setting::OneHost,
        Setting::RootOnOneHost,
        Setting::Container,
        Setting::ContainersOnOneHost,
    ];

    fn pair(self) -> Option<Pair> {
        let is_root = matches!(self, Setting::Root | Setting::RootOnOneHost);
        if is_root && !sys::process::is_root() {
            lacks("root");
            return None;
        }
        let mut pair = Pair::new(&[&PROGRAMS[..], &PERFTESTS, &NOT_OF_IWARP].concat())?;
        pair.is_root = is_root;
        pair.is_one_host = !matches!(self, Setting::User | Setting::Root | Setting::Container);
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
    const TABLE: [(&str, Run); 7] = [
        ("ibv_devices, ibv_devinfo", programs::devices),
        ("rping", programs::rpings),
        ("ucmatose, rdma_server, rdma_client", programs::connection_manager),
        ("what iWARP has not", programs::refused),
        ("fi_pingpong", programs::libfabric),
        ("fio, qperf", programs::all_storage),
        ("perftest", programs::perftests),
    ];
    let Ok(asked) = std::env::var("WHARF_RDMA_PROGRAMS") else { return };
    let is_asked = |setting: &Setting| {
        asked == "all" || asked.split(',').any(|name| name == format!("{setting:?}"))
    };
    for setting in Setting::ALL.into_iter().filter(is_asked) {
        let Some(pair) = setting.pair() else { return };
        for (programs, run) in TABLE {
            run(&pair);
            eprintln!("{setting:?}: {programs}: well");
        }
    }
}
