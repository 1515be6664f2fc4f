//! What holds of an LRO between any two calls. Debug builds look at it: tests, simulation and fuzzing run
//! with it. What belongs to one part is in the part's own `debug_check`; here is what the parts say of
//! each other.

use crate::descriptor::Descriptor;
use crate::link::Link;
use crate::reorder::HOLES_MAX;
use crate::timeout::run_deadline;
use crate::{Lro, Nanos, Profile};

impl<F, L: Link> Lro<F, L> {
    /// Panics in a debug build if a flow contradicts itself, after a segment of it.
    #[inline(always)]
    pub(crate) fn debug_check_flow(&self, index: u32) {
        if cfg!(debug_assertions) {
            let flow = &self.table[index];
            flow.debug_check();
            self.out_of_order.debug_check(&flow.out_of_order, flow.frontier);
            self.debug_check_bounds(flow);
            let armed = flow.armed;
            let due = self.debug_due(flow);
            debug_assert!(!flow.is_holding() || armed <= due, "{armed} is after {due}");
        }
    }

    /// Sizes and holes are within their bounds (the paper's 64 KB threshold; CVE-2018-5390).
    fn debug_check_bounds(&self, flow: &Descriptor) {
        let (segments, bytes) = (flow.run.len(), flow.ip_len());
        // One segment may be longer by itself: it goes on as it came.
        let joined = segments > 1;
        debug_assert!(!joined || segments <= self.config.max_segments, "{segments} segments");
        debug_assert!(!joined || bytes <= self.config.max_aggregate, "{bytes} bytes");
        let holes = flow.out_of_order.len();
        debug_assert!(holes <= HOLES_MAX, "{holes} holes");
        let reorders = self.config.profile == Profile::Endpoint;
        debug_assert!(reorders || holes == 0, "the lossless profile waits for no hole");
    }

    /// When what a flow holds must be looked at.
    fn debug_due(&self, flow: &Descriptor) -> Nanos {
        let hole = self.out_of_order.earliest(&flow.out_of_order);
        let run = flow.has_run().then(|| run_deadline(&self.config, flow));
        hole.into_iter().chain(run).min().unwrap_or(Nanos::MAX)
    }

    /// Panics in a debug build if what is held is not all that the flows hold, or some of it is not waited
    /// for. It looks at every frame that is held.
    pub(crate) fn debug_check(&self) {
        if cfg!(debug_assertions) {
            let (mut frames, mut blocks) = (0, 0);
            for slot in self.table.occupied() {
                let mut at = self.table.first_in(slot);
                while let Some(index) = at {
                    self.debug_check_flow(index);
                    let flow = &self.table[index];
                    let bytes: u32 = self.held.debug_lens(&flow.run).sum();
                    debug_assert!(!flow.has_run() || bytes == flow.payload_len());
                    frames += flow.run.len() as usize;
                    frames += self.out_of_order.debug_frames(&flow.out_of_order, &self.held);
                    blocks += flow.out_of_order.len() as usize;
                    at = self.table.after(index);
                }
            }
            debug_assert_eq!(frames, self.held.in_use(), "frames that no flow holds");
            debug_assert_eq!(blocks, self.out_of_order.in_use(), "blocks of no flow");
        }
    }

    /// The same where nothing is held, and of all memory.
    pub(crate) fn debug_check_empty(&self) {
        if cfg!(debug_assertions) {
            debug_assert_eq!((self.held.in_use(), self.out_of_order.in_use()), (0, 0));
            self.held.debug_check();
            self.table.debug_check();
        }
    }
}
