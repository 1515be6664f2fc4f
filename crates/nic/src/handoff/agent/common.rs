//! What all sessions have in common.

use std::collections::VecDeque;

use handoff::RestoreReason;
use handoff::machine::SideCounts;

use super::at_kernel::AtKernel;
use super::host::Host;
use super::no_memory::NoMemory;
use super::quotas::Quotas;
use super::rooms::Rooms;
use super::ways::Ways;
use crate::handoff::guard::ToGuard;
use crate::lane::handoff::link::Key;
use crate::lane::handoff::records::Beginnings;
use crate::lane::handoff::told::ToKernel;

/// See the module's documentation.
pub(super) struct Common {
    pub(super) host: Host,
    pub(super) quotas: Quotas,
    pub(super) ways: Ways,
    pub(super) beginnings: Beginnings,
    pub(super) guard: ToGuard,
    /// `None` if the host's interface is a veth: workers tell the kernel then.
    pub(super) to_kernel: Option<ToKernel>,
    pub(super) counts: SideCounts,
    pub(super) at_kernel: AtKernel,
    /// Sockets in repair mode that were released so far.
    pub(super) unrepaired: u64,
    /// Nothing more is handed off.
    pub(super) is_stopping: bool,
    /// Connections that are wanted back, and how many of those that were asked for are not back yet.
    pub(super) wanted: VecDeque<(Key, RestoreReason)>,
    pub(super) going_back: usize,
    /// Of those on their way back, the ones that the kernel has no memory for.
    pub(super) no_memory: NoMemory,
    /// The memory of those that are over.
    pub(super) rooms: Rooms,
}

impl Common {
    /// Nothing has moved yet. No user has more connections than `quota`.
    pub(super) fn new(
        (host, quota): (Host, u32),
        (ways, beginnings): (Ways, Beginnings),
        to_kernel: Option<ToKernel>,
    ) -> Self {
        Common {
            host,
            quotas: Quotas::new(quota),
            ways,
            beginnings,
            guard: ToGuard::default(),
            to_kernel,
            counts: SideCounts::default(),
            at_kernel: AtKernel::new(),
            unrepaired: 0,
            is_stopping: false,
            wanted: VecDeque::new(),
            going_back: 0,
            no_memory: NoMemory::default(),
            rooms: Rooms::default(),
        }
    }

    /// A place for a connection's record, if there is one.
    pub(super) fn take_place(&mut self) -> Option<u32> {
        self.beginnings.take_place().or_else(|| self.ways.next_left(sys::clock::now(), true))
    }

    /// Places whose connections have left are free.
    pub(super) fn give_places(&mut self) {
        let now = sys::clock::now();
        while let Some(place) = self.ways.next_left(now, false) {
            self.beginnings.give_place(place);
        }
    }
}
