//! The paper on connection handoff: what a packet costs host and NIC.

use std::path::PathBuf;
use std::time::Duration;

use super::{Judge, Run, Scale, Scenario, Series, XAxis, YAxis};
use crate::handoff::{Case, Load, Mix, Options, Setup, handoff};
use crate::paper::parameters::Parameters;
use crate::{Error, Figure, Report};

/// The mixes of connections by their index, and the paper's words for them; the last is a web server's.
pub(in crate::paper) const MIXES: [&str; 8] = [
    "0//1",
    "0//256",
    "256//256",
    "768//256",
    "0//1024",
    "0//16384",
    "0//NIC1 256//NIC2 256",
    "web 0//64",
];

/// How the host is set up by the paper's letters.
pub(in crate::paper) const SETUPS: [&str; 6] =
    ["A copies", "B zero-copy", "C no checksums", "D 1,024 connections", "E 20 ms", "F nginx"];

/// Figure 1: the host's time without handoff.
pub(in crate::paper) fn stack() -> Scenario {
    Scenario {
        x: XAxis { label: "set up as", unit: "", words: "", scale: Scale::Names(&SETUPS) },
        y: YAxis { label: "Host's time a packet", unit: "ns", factor: 1.0, scale: Scale::Linear },
        series: vec![
            Series::new("os", "os", "host_time_per_packet", "all"),
            Series::new("system_call", "os", "system_call_time_per_packet", "system call"),
            Series::new("socket", "os", "socket_time_per_packet", "socket"),
            Series::new("tcp", "os", "tcp_time_per_packet", "TCP"),
            Series::new("ip", "os", "ip_time_per_packet", "IP"),
            Series::new("ethernet", "os", "ethernet_time_per_packet", "Ethernet"),
            Series::new("driver", "os", "driver_time_per_packet", "driver"),
            Series::new("application", "os", "application_time_per_packet", "the program"),
        ],
        points: (0..).take(SETUPS.len()).collect(),
        quick: vec![0, 2],
        run: Run::Stack,
        overhead: Duration::from_secs(4),
        at_least: Duration::ZERO,
        judge: Judge::Steps {
            subject: "os",
            steps: &[(2, 3), (3, 4), (0, 2)],
            // "The TCP layer's profile is very similar to D" (section 2).
            parts: &[("tcp", (3, 5))],
        },
        differs: "CPU time by the clock stands for cycles, and the paper's cycles are shown as \
                  time at its 2.1 GHz; instructions and memory accesses of the kernel are left out, as \
                  hardware counters are not on every machine. Layers are by samples of perf(1), where it is \
                  there. The program's own time, which the paper leaves out, is part of all. \
                  From C to E each setup has what those before it have. The program sends as \
                  fast as it can, the paper's 100 Mb/s. Zero-copy is MSG_ZEROCOPY: the system call \
                  does not copy, but Linux does in front of a TAP, as it does not know how long a \
                  program on its other side keeps a packet. What is read from the TAP is \
                  copied once more, which stands for a card's DMA and is of the driver. The \
                  paper's text does not say how long its delay is; here a round trip takes 20 ms. \
                  F is nginx, which has what C has, with SPECweb99's static files by sendfile(2), \
                  of which Linux makes no copy in front of a TAP; the dynamic part is left out. 256 \
                  clients ask for five files over a connection, each when the one before could have come \
                  at 400 Kb/s.",
    }
}

/// Figure 7: the host's time.
pub(in crate::paper) fn host_time() -> Scenario {
    let all = vec![
        Series::new("os", "os", "host_time_per_packet", "without handoff"),
        Series::new("nic", "nic", "host_time_per_packet", "handoff"),
        Series::new("os_tcp", "os", "tcp_time_per_packet", "without handoff, TCP"),
        Series::new("nic_tcp", "nic", "tcp_time_per_packet", "handoff, TCP"),
        Series::new("os_driver", "os", "driver_time_per_packet", "without handoff, driver"),
        Series::new("nic_bypass", "nic", "bypass_time_per_packet", "handoff, bypass"),
        Series::new(
            "os_application",
            "os",
            "application_time_per_packet",
            "without handoff, the program",
        ),
        Series::new(
            "nic_application",
            "nic",
            "application_time_per_packet",
            "handoff, the program",
        ),
    ];
    mixed(
        all,
        ("Host's time a packet", "ns", Scale::Linear),
        "The paper's host is a machine of its own with a card; here host, NIC and peer \
         share one machine, the NIC's worker with a CPU of its own. CPU time by the clock \
         stands for cycles; instructions and cache misses are those of handoff-instructions, \
         without the kernel's, as hardware counters are not on every machine. Layers are by samples of perf(1), where it is there. The \
         host's time includes what the program does itself, which the paper leaves out and which \
         is a series of its own. The program sends as fast as it \
         can, the paper's 100 Mb/s. A message is a segment, 1,448 bytes with timestamps; the \
         paper's has 1,460. With 256 of 512 or 1,024 connections at the NIC the figure without \
         handoff is that of all of them at the OS. Two NICs are two wharfs, each with a wire of \
         its own; their workers share a CPU where there are not three. The web load is nginx \
         with SPECweb99's static files, 64 connections at a time of five requests each, \
         without a bound: the paper says that there are 64 clients, and no more. Its dynamic \
         part is left out.",
    )
}

/// Figure 8: messages between host and NIC.
pub(in crate::paper) fn messages() -> Scenario {
    let all = vec![
        Series::new("os", "os", "messages_per_packet", "without handoff"),
        Series::new("nic", "nic", "messages_per_packet", "handoff"),
        Series::new("nic_descriptors", "nic", "descriptors_per_packet", "handoff, descriptors"),
        Series::new("ch_nic_send", "nic", "ch_nic_send_per_packet", "ch_nic_send"),
        Series::new("ch_os_ack", "nic", "ch_os_ack_per_packet", "ch_os_ack"),
        Series::new("ch_nic_recvd", "nic", "ch_nic_recvd_per_packet", "ch_nic_recvd"),
        Series::new("ch_nic_ctrl", "nic", "ch_nic_ctrl_per_packet", "ch_nic_ctrl"),
        Series::new("ch_os_recv", "nic", "ch_os_recv_per_packet", "ch_os_recv"),
    ];
    mixed(
        all,
        ("Messages a packet", "a packet", Scale::Linear),
        "A message is a descriptor, or one of the paper's commands by a ring; those within \
         wharf, by which connections move, are none. The paper's card takes two descriptors \
         for a packet that leaves, one for its headers and one for its data, and has one for a \
         packet that arrives; a TAP has one for each, so that without handoff there is \
         one message a packet. The paper acknowledges every second segment; here the \
         peer does as Linux does, and acknowledges more at once. The web load is that of \
         handoff-prototype; each of its connections moves once, after the descriptors by which \
         the OS has accepted it. The paper's text gives no numbers of messages for it.",
    )
}

/// Table 2: the NIC's own time.
pub(in crate::paper) fn nic_time() -> Scenario {
    let all = vec![
        Series::new("nic", "nic", "nic_time_per_packet", "handoff"),
        Series::new("os", "os", "nic_time_per_packet", "without handoff"),
        Series::new("handoff", "nic", "nic_handoff_time_per_packet", "handoff interface"),
        Series::new("tcp", "nic", "nic_tcp_time_per_packet", "TCP"),
        Series::new("ip_ethernet", "nic", "nic_ip_ethernet_time_per_packet", "IP and Ethernet"),
        Series::new("other", "nic", "nic_other_time_per_packet", "other"),
    ];
    mixed(
        all,
        ("NIC's time a packet", "ns", Scale::Log10),
        "The paper counts cycles and instructions of a MIPS core of its card; its cycles \
         are shown as time at the card's 88 MHz. Here it is the CPU time of wharf's worker, \
         less that in which the host's stack works within its calls to the TAP. It includes \
         the kernel's part of the wire's port, an AF_PACKET or AF_XDP socket, within which \
         the peer's stack may work, too: it is of other. Parts are by samples of perf(1), \
         where it is there, and by the function that was active: what the compiler has \
         joined is of the part that it was joined to. The paper does not say under which load \
         its card was; the web load is that of handoff-prototype.",
    )
}

fn mixed(
    series: Vec<Series>,
    (label, unit, scale): (&'static str, &'static str, Scale),
    differs: &'static str,
) -> Scenario {
    Scenario {
        x: XAxis {
            label: "connections at the OS//at the NIC",
            unit: "",
            words: "",
            scale: Scale::Names(&MIXES),
        },
        y: YAxis { label, unit, factor: 1.0, scale },
        series,
        points: (0..).take(MIXES.len()).collect(),
        quick: vec![0],
        run: Run::Packet,
        // The namespaces, the connections, and the time in which samples are taken.
        overhead: Duration::from_secs(4),
        at_least: Duration::ZERO,
        judge: Judge::Saved { subject: "nic", baseline: "os" },
        differs,
    }
}

/// A mix of a program's connections, or, behind those, the web server's.
pub(super) fn run(mix: u32, parameters: &Parameters, report: &mut dyn Report) -> Result<(), Error> {
    let Some(mix) = Mix::ALL.get(mix as usize).copied() else {
        return serve(Case::Web, vec![Load::PROTOTYPE], parameters, report);
    };
    let packet = options(Case::Packet, library(parameters)?, parameters);
    handoff(&Options { mixes: vec![mix], ..packet }, &mut ByPlace(report))
}

pub(super) fn run_web(
    case: Case,
    load: u32,
    parameters: &Parameters,
    report: &mut dyn Report,
) -> Result<(), Error> {
    let loads = Load::ALL.get(load as usize).copied().into_iter().collect();
    serve(case, loads, parameters, report)
}

fn serve(
    case: Case,
    loads: Vec<Load>,
    parameters: &Parameters,
    report: &mut dyn Report,
) -> Result<(), Error> {
    let options = Options { loads, ..options(case, library(parameters)?, parameters) };
    handoff(&options, &mut ByPlace(report))
}

pub(super) fn library(parameters: &Parameters) -> Result<PathBuf, Error> {
    parameters.library.clone().ok_or_else(|| {
        Error::Usage(
            "no libwharf.so of the same build is beside this program: build it, or install both"
                .to_owned(),
        )
    })
}

pub(super) fn run_stack(
    setup: u32,
    parameters: &Parameters,
    report: &mut dyn Report,
) -> Result<(), Error> {
    let setups = Setup::ALL.get(setup as usize).copied().into_iter().collect();
    // No program is started with the library.
    let options = Options { setups, ..options(Case::Stack, PathBuf::new(), parameters) };
    handoff(&options, &mut ByPlace(report))
}

pub(super) fn options(case: Case, library: PathBuf, parameters: &Parameters) -> Options {
    Options {
        cases: vec![case],
        mixes: Vec::new(),
        setups: Vec::new(),
        loads: Vec::new(),
        counted: Vec::new(),
        proxied: Vec::new(),
        // Of cases that are not asked for.
        connections: vec![1],
        idle: 1,
        moves: 1,
        duration: parameters.duration,
        repetitions: parameters.repetitions,
        library,
        config: parameters.config.clone(),
    }
}

/// Names the case of each figure by the place of the connections.
pub(super) struct ByPlace<'a>(pub(super) &'a mut dyn Report);

impl Report for ByPlace<'_> {
    fn figure(&mut self, mut figure: Figure) {
        let place = figure.varied.iter().find(|(name, _)| *name == "where");
        if let Some(place) = place.and_then(|(_, place)| place.as_str()) {
            figure.case = place.to_owned();
        }
        self.0.figure(figure);
    }

    fn progress(&mut self, done: usize, total: usize, what: &str) {
        self.0.progress(done, total, what);
    }

    fn notice(&mut self, text: &str) {
        self.0.notice(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setups_are_named_by_the_papers_letters() {
        let letters = SETUPS.map(|name| &name[..1]);
        assert_eq!(letters, Setup::ALL.map(|setup| setup.name));
    }

    #[test]
    fn mixes_are_named_by_their_connections() {
        let name = |mix: Mix| match mix.nics {
            1 => format!("{}//{}", mix.connections - mix.at_nic, mix.at_nic),
            _ => {
                let each = mix.at_nic / mix.nics;
                let nics = (1..=mix.nics).map(|nic| format!("NIC{nic} {each}"));
                let nics = nics.collect::<Vec<_>>().join("//");
                format!("{}//{nics}", mix.connections - mix.at_nic)
            }
        };
        let web = format!("web 0//{}", Load::PROTOTYPE.connections);
        let names: Vec<String> = Mix::ALL.into_iter().map(name).chain([web]).collect();
        assert_eq!(names, MIXES);
    }
}
