//! A server and a peer with degen between them.

use std::sync::Arc;
use std::time::Duration;

use nic::config::{Config, WireMode};
use nic::degen::Settings;
use nic::degen::bridge::{Bridge, Carriage};
use sys::netns::Namespace;
use sys::{interface, sysctl};

use super::peer::Peer;
use super::program::{Built, Program};
use super::served::Served;
use super::{Transfer, kernel};
use crate::sink::io;
use crate::tcp::system::{Link, System};
use crate::tcp::testbed::{self, NEAR, Testbed};
use crate::{Error, link};

/// degen's ends: what the server is reached by, and the peer. The latter is the peer's TAP, if it is no
/// kernel.
const BETWEEN: [&str; 2] = ["server1", "peer1"];

/// The client, which connects when it is started.
enum Client {
    Kernel,
    Program(Program),
    #[cfg(feature = "peers")]
    Smoltcp(super::smoltcp::Client),
}

/// See the module's documentation. A client ends before what it speaks with.
pub(super) struct Path {
    client: Client,
    _served: Served,
    _degen: Bridge,
    _middle: Namespace,
    testbed: Testbed,
    peer: Peer,
}

impl Path {
    /// All that a transfer takes, ready to begin.
    ///
    /// # Errors
    /// What the kernel says, or why the peer or wharf would not start.
    pub(super) fn new(
        peer: Peer,
        system: System,
        transfer: Transfer,
        (settings, config): (&Settings, &Config),
        built: &Arc<Built>,
    ) -> Result<Path, Error> {
        let (testbed, middle) = (Testbed::new(Link::Wan, false)?, Namespace::new()?);
        veth(&testbed.server, &testbed.far, &middle, BETWEEN[0], peer.mtu())?;
        let client = client(&testbed, &middle, peer, transfer, built)?;
        let mode = WireMode::Packet;
        let carriage = Carriage { frames: peer.frames(), mode, real_time: true, awake: false };
        let degen = middle.run(|| -> Result<Bridge, Error> {
            BETWEEN.iter().for_each(|end| link::quiet(end));
            Ok(Bridge::start(BETWEEN, settings, carriage)?)
        })??;
        let served = Served::start(&testbed, system, transfer.way, config)?;
        Ok(Path { client, _served: served, _degen: degen, _middle: middle, testbed, peer })
    }

    /// How long it takes, from when the connection is open.
    ///
    /// # Errors
    /// What went wrong with the connection.
    pub(super) fn run(&mut self, transfer: Transfer) -> Result<Duration, Error> {
        match &mut self.client {
            Client::Kernel => {
                let congestion = self.peer.congestion();
                let run = move || kernel::run(transfer, congestion);
                self.testbed.client.run(run)?.map_err(io("move bytes"))
            }
            Client::Program(program) => program.run(),
            #[cfg(feature = "peers")]
            Client::Smoltcp(client) => client.run(),
        }
    }
}

/// The peer, up to where it would connect.
fn client(
    testbed: &Testbed,
    middle: &Namespace,
    peer: Peer,
    transfer: Transfer,
    built: &Arc<Built>,
) -> Result<Client, Error> {
    match peer {
        Peer::Lwip | Peer::Gvisor => {
            let built = Arc::clone(built);
            let start = move || Program::start(&built, peer, BETWEEN[1], transfer);
            Ok(Client::Program(middle.run(start)??))
        }
        #[cfg(feature = "peers")]
        Peer::Smoltcp => {
            Ok(Client::Smoltcp(super::smoltcp::Client::start(middle, BETWEEN[1], transfer)?))
        }
        #[cfg(not(feature = "peers"))]
        Peer::Smoltcp => {
            Err(Error::Failed { system: "smoltcp", why: crate::peers::NOT_BUILT_IN.to_owned() })
        }
        _ => {
            veth(&testbed.client, NEAR, middle, BETWEEN[1], peer.mtu())?;
            testbed.client.run(move || -> sys::Result<()> {
                if let Some(key) = peer.turned_off() {
                    sysctl::write(&["ipv4", key], "0")?;
                }
                testbed::near(true)
            })??;
            Ok(Client::Kernel)
        }
    }
}

/// A veth whose frames are no longer than the MTU and have their checksums.
fn veth(
    host: &Namespace,
    name: &str,
    middle: &Namespace,
    far: &str,
    mtu: u32,
) -> Result<(), Error> {
    link::veth((host, name), (middle, far))?;
    host.run(|| -> sys::Result<()> {
        interface::set_mtu(name, mtu)?;
        link::quiet(name);
        testbed::without_offloads(name)?;
        interface::set_up(name)
    })??;
    Ok(middle.run(|| interface::set_mtu(far, mtu))??)
}
