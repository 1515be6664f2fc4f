//! What a packet costs, by layer of the host's stack and part of the NIC, and how many messages host and NIC exchange for
//! it, as "TCP Offload through Connection Handoff" has it (section 5.1): a program sends one segment's bytes a call over
//! all its connections, of which the NIC has room for some. Without offloads, so that each segment is a packet.

pub(in crate::handoff) mod layers;
mod samples;

use std::thread::sleep;
use std::time::{Duration, Instant};

use nic::port::spent;

use self::layers::Layer;
use self::samples::Counts;
use super::program::Work;
use super::testbed::{Program, Testbed};
use super::{Case, Options, Place, Reading, Varied, report_runs};
use crate::load::streams::{Clients, Direction};
use crate::{Error, Report};

/// Payload of one full segment, and of one call.
pub(super) const SEGMENT: usize = 1_448;
/// Part of the time that is not measured.
pub(super) const WARM_UP: u32 = 4;

/// A program gives a connection back when the NIC does not hear of what it sends, as on a machine that has other things to
/// do. So many of 100 that were to be at the NIC have to be there to the end.
const STAY_PERCENT: usize = 90;
/// When no other connection has come to the NIC for so long, none will.
const NO_MORE_COME: Duration = Duration::from_secs(1);

/// Whether figures can be of so many at the NIC where others were to be there, too.
pub(super) const fn are_enough(there: usize, at_nic: usize) -> bool {
    there * 100 >= at_nic * STAY_PERCENT
}

/// Connections, and how many of them NICs have room for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mix {
    /// All of them.
    pub connections: usize,
    /// Those at NICs.
    pub at_nic: usize,
    /// NICs, each of which has its share.
    pub nics: usize,
}

impl Mix {
    const fn new(connections: usize, at_nic: usize) -> Mix {
        Mix { connections, at_nic, nics: 1 }
    }

    /// Those of the paper's Figure 7 with one card, two beyond, with all connections at the NIC, and the paper's with two
    /// cards.
    pub const ALL: [Mix; 7] = [
        Mix::new(1, 1),
        Mix::new(256, 256),
        Mix::new(512, 256),
        Mix::new(1_024, 256),
        Mix::new(1_024, 1_024),
        Mix::new(16_384, 16_384),
        Mix { nics: 2, ..Mix::new(512, 512) },
    ];
}

/// Commands that pass by rings, and the metric of their number a packet.
const COMMANDS: [(&str, &str); 7] = [
    ("ch_nic_send", "ch_nic_send_per_packet"),
    ("ch_nic_recvd", "ch_nic_recvd_per_packet"),
    ("ch_nic_ctrl", "ch_nic_ctrl_per_packet"),
    ("ch_os_recv", "ch_os_recv_per_packet"),
    ("ch_os_ack", "ch_os_ack_per_packet"),
    ("ch_os_ctrl", "ch_os_ctrl_per_packet"),
    ("ch_os_resource", "ch_os_resource_per_packet"),
];

pub(super) fn measure(options: &Options, report: &mut dyn Report) -> Result<(), Error> {
    let all = options.mixes.len() * options.repetitions * Place::ALL.len();
    let (mut done, mut doubts) = (0, Doubts::default());
    for mix in &options.mixes {
        let mut runs = [Vec::new(), Vec::new()];
        for _ in 0..options.repetitions {
            for (place, runs) in Place::ALL.into_iter().zip(&mut runs) {
                let Mix { connections, at_nic, nics } = mix;
                let what = match place {
                    Place::Os => format!("{connections} connections, {nics} nics, os"),
                    Place::Nic => {
                        format!("{connections} connections, {nics} nics, {at_nic} there")
                    }
                };
                report.progress(done, all, &what);
                done += 1;
                runs.push(run(options, *mix, place, &mut doubts)?);
            }
        }
        for (place, runs) in Place::ALL.into_iter().zip(&runs) {
            let varied: Varied = vec![
                ("where", place.name().into()),
                ("connections", mix.connections.into()),
                ("at_nic", if place == Place::Nic { mix.at_nic } else { 0 }.into()),
                ("nics", mix.nics.into()),
            ];
            report_runs(Case::Packet, &varied, runs, report);
        }
    }
    doubts.tell(report);
    Ok(())
}

/// What a reader of the figures has to know.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    /// Why there are no times by layer, if there are none.
    blind: Option<String>,
    /// Whether wharf's CPU did something else.
    disturbed: bool,
    /// How many connections went back to the kernel, and why, if some did.
    left: Option<String>,
    /// Whether there was no web server to measure.
    pub(super) without_web: bool,
}

impl Doubts {
    /// Where some connections did not stay at the NIC: an error if those are too many for figures of the rest.
    fn stayed(&mut self, testbed: &Testbed, at_nic: usize) -> Result<(), Error> {
        let there = testbed.at_nic();
        match there {
            _ if there >= at_nic => {}
            _ if !are_enough(there, at_nic) => return Err(testbed.stayed()),
            _ => self.left = Some(testbed.stayed().to_string()),
        }
        Ok(())
    }

    pub(super) fn tell(self, report: &mut dyn Report) {
        if let Some(told) = self.left {
            report.notice(&told);
        }
        if self.without_web {
            report.notice("the web server is left out: nginx is not there");
        }
        if let Some(why) = self.blind {
            report.notice(&format!("times by layer are left out: {why}"));
        }
        if self.disturbed {
            report.notice(
                "wharf's CPU did other things, too: the host's times are too long, the NIC's too short",
            );
        }
    }
}

fn run(
    options: &Options,
    mix: Mix,
    place: Place,
    doubts: &mut Doubts,
) -> Result<Vec<Reading>, Error> {
    let Mix { connections, at_nic, nics } = mix;
    // The NIC gives back what is idle when it is short of places: where all connections are to be there, it is not.
    let spare = if at_nic == connections { at_nic / 8 } else { 0 };
    let testbed = Testbed::with_room(options, nics, ((at_nic + spare) / nics) as u32)?;
    testbed.without_offloads()?;
    let mut program = testbed.program(place, "at_accept", (Work::Send, connections, SEGMENT))?;
    let port = program.to.port();
    let connect =
        |server| testbed.clients((server, port).into(), Direction::Send, connections / nics);
    let mut clients = testbed.hosts.servers().map(connect).collect::<Result<Vec<_>, _>>()?;
    program.accepted()?;
    if place == Place::Nic {
        let mut last = (0, Instant::now());
        testbed.wait("handing off", || {
            let there = testbed.at_nic();
            if there != last.0 {
                last = (there, Instant::now());
            }
            // Those that went back already do not come again.
            there >= at_nic || (are_enough(there, at_nic) && last.1.elapsed() > NO_MORE_COME)
        })?;
    }
    sleep(options.duration / WARM_UP);
    let before = Spent::read(&testbed, &mut program)?;
    sleep(options.duration);
    let after = Spent::read(&testbed, &mut program)?;
    let counts = look(&testbed, &[program.id()], options.duration, doubts);
    if let Some(error) = clients.iter_mut().find_map(Clients::error) {
        return Err(error);
    }
    if place == Place::Nic {
        doubts.stayed(&testbed, at_nic)?;
    }
    drop(clients);
    drop(program);
    testbed.stop()?;
    Ok(after.since(&before, &counts, options.duration, doubts))
}

/// Where the programs and the worker are, for a time beside that in which all is measured: looking takes time, too.
/// Nothing is seen where something keeps it from that.
pub(super) fn look(
    testbed: &Testbed,
    programs: &[u32],
    duration: Duration,
    doubts: &mut Doubts,
) -> Counts {
    let worker = testbed.worker_thread().ok_or("wharf's worker has no name".to_owned());
    let seen = worker.and_then(|worker| samples::look(programs, worker, duration));
    seen.unwrap_or_else(|why| {
        doubts.blind = Some(why);
        Counts::new()
    })
}

/// Counters at one time, in nanoseconds and numbers.
pub(super) struct Spent {
    packets: u64,
    /// Packets that cross between host and NIC, each by a descriptor.
    descriptors: u64,
    commands: [u64; COMMANDS.len()],
    done: u64,
    program: u64,
    kernel: u64,
    worker: u64,
}

impl Spent {
    pub(super) fn read(testbed: &Testbed, program: &mut Program) -> Result<Spent, Error> {
        let done = program.done()?;
        Ok(Spent::of(testbed, done, program.cpu()))
    }

    /// With so many bytes that a program has received or sent, and its CPU time.
    pub(super) fn of(testbed: &Testbed, done: u64, program: u64) -> Spent {
        let all: Vec<_> = testbed.counters().collect();
        let of = |group: &str, name: &str| -> u64 {
            let its = all.iter().filter(|one| (one.group, one.name) == (group, name));
            its.map(|one| one.value).sum()
        };
        Spent {
            packets: of("wire", "rx_packets") + of("wire", "tx_packets"),
            descriptors: of("host", "delivered_packets") + of("host", "taken_packets"),
            commands: COMMANDS.map(|(name, _)| of("handoff_commands", name)),
            done,
            program,
            kernel: spent::spent(),
            worker: testbed.worker_cpu(),
        }
    }

    pub(super) fn since(
        &self,
        before: &Spent,
        counts: &Counts,
        duration: Duration,
        doubts: &mut Doubts,
    ) -> Vec<Reading> {
        // Calls of the TAP are timed by the clock, and in a short run may seem to take longer than the worker had its CPU.
        doubts.disturbed |= self.kernel - before.kernel > self.worker - before.worker;
        let packets = (self.packets - before.packets).max(1) as f64;
        let each = |now: u64, then: u64| now.saturating_sub(then) as f64 / packets;
        let host = each(self.program, before.program) + each(self.kernel, before.kernel);
        let nic = each(self.worker, before.worker) - each(self.kernel, before.kernel);
        let nic = nic.max(0.0);
        let descriptors = each(self.descriptors, before.descriptors);
        let commands =
            self.commands.iter().zip(&before.commands).map(|(now, then)| each(*now, *then));
        let commands: Vec<f64> = commands.collect();
        let mut readings = vec![
            Reading::new("host_time_per_packet", "ns", host),
            Reading::new("nic_time_per_packet", "ns", nic),
            Reading::new("messages_per_packet", "", descriptors + commands.iter().sum::<f64>()),
            Reading::new("descriptors_per_packet", "", descriptors),
        ];
        let named = COMMANDS.iter().zip(commands);
        readings.extend(named.map(|((_, metric), value)| Reading::new(metric, "", value)));
        let bits = (self.done - before.done) as f64 * 8.0 / duration.as_secs_f64();
        readings.push(Reading::new("throughput", "bit/s", bits));
        readings.extend(by_layer(&Layer::HOST, host, counts));
        readings.extend(by_layer(&Layer::NIC, nic, counts));
        readings
    }
}

/// The time of each layer, and of what is a part of one; none if nothing was seen.
fn by_layer(layers: &[Layer], time: f64, counts: &Counts) -> Vec<Reading> {
    let of = |is_it: &dyn Fn(Layer) -> bool| -> f64 {
        counts.iter().filter(|(layer, _)| is_it(**layer)).map(|(_, count)| *count as f64).sum()
    };
    let all = of(&|layer| layers.contains(&layer.whole()));
    if all == 0.0 {
        return Vec::new();
    }
    let reading = |layer: Layer, count: f64| Reading::new(layer.metric(), "ns", count / all * time);
    let wholes = layers.iter().map(|layer| reading(*layer, of(&|part| part.whole() == *layer)));
    let parts = Layer::PARTS.iter().filter(|part| layers.contains(&part.whole()));
    wholes.chain(parts.map(|part| reading(*part, of(&|layer| layer == *part)))).collect()
}
