//! CPU time of a run: the program's, wharf's, and that of all processes.

use nic::port::spent;

use super::testbed::Testbed;

/// At one time, or between two, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cpu {
    /// The program's.
    pub(super) program: u64,
    /// That of the host's kernel, which works for the program within the worker's calls.
    pub(super) kernel: u64,
    /// The worker's, with these calls.
    pub(super) worker: u64,
    /// That of the kernel's own thread on wharf's CPU, which receives what nobody's call does.
    pub(super) softirq: u64,
    /// All of it, and that of clients.
    pub(super) all: u64,
}

impl Cpu {
    /// That of now, where the program has taken so much.
    pub(super) fn read(testbed: &Testbed, program: u64) -> Cpu {
        let all_softirqs = sys::process::ksoftirqd_cpu().unwrap_or(0);
        Cpu {
            program,
            kernel: spent::spent(),
            worker: testbed.worker_cpu(),
            softirq: testbed.softirq_cpu(),
            all: sys::clock::process_cpu() + all_softirqs + program,
        }
    }

    /// What has been taken since then.
    pub(super) fn since(self, before: Cpu) -> Cpu {
        let of = |time: fn(&Cpu) -> u64| time(&self).saturating_sub(time(&before));
        Cpu {
            program: of(|cpu| cpu.program),
            kernel: of(|cpu| cpu.kernel),
            worker: of(|cpu| cpu.worker),
            softirq: of(|cpu| cpu.softirq),
            all: of(|cpu| cpu.all),
        }
    }
}
