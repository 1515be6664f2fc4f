//! Completion queues and completion channels.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

use libc::{c_int, c_void};
use rdma::session::completions::{ANY, Completions, Entry, SOLICITED};
use rdma::session::{Area, Request};

use crate::abi::*;
use crate::objects::{Names, acknowledged, ask, code, ends, number, session};
use crate::os::{self, none};
use crate::session::{Session, Side, lock};
use crate::work_queues;

/// Completion queues, as the device names them.
pub(crate) static QUEUES: Names<CompletionQueue> = Names::new();

/// Empty polls in a row after which a program lets others run: the device may need this CPU.
const PATIENCE: u32 = 16;
/// Empty polls in a row after which it is looked whether there is still a device.
const LOOK_EVERY: u32 = 1024;

/// The bit of the opcodes of receives (`IBV_WC_RECV`).
const RECV: u8 = 1 << 7;

/// A completion queue, as the library has it.
#[repr(C)]
pub(crate) struct CompletionQueue {
    /// What the program sees.
    pub(crate) base: ibv_cq_ex,
    pub(crate) queue: Mutex<Reader>,
    /// Who reads entries by `ibv_start_poll`.
    pub(crate) turn: Turn,
    /// Events that were read, less those that were acknowledged.
    pub(crate) completion_events: AtomicU32,
    pub(crate) async_events: AtomicU32,
}

/// A thread reads entries from `ibv_start_poll` to `ibv_end_poll`, in which it sees one after the other at one place.
pub(crate) struct Turn {
    is_taken: AtomicBool,
    /// The program has said that one thread uses the queue.
    is_free: bool,
}

impl Turn {
    pub(crate) fn new(is_free: bool) -> Self {
        Turn { is_taken: AtomicBool::new(false), is_free }
    }

    /// Waits until no other thread reads.
    #[inline]
    pub(crate) fn take(&self) {
        while !self.is_free && self.is_taken.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
    }

    #[inline]
    pub(crate) fn give(&self) {
        self.is_taken.store(false, Ordering::Release);
    }
}

/// What is read from it.
pub(crate) struct Reader {
    completions: Completions<'static>,
    /// What the end of the device has flushed.
    flushed: VecDeque<Entry>,
    /// Queue pairs and numbers of sends that have completed before others that were posted earlier.
    early: Vec<(u32, u32)>,
    empty: u32,
    /// The entry at hand of `ibv_start_poll`.
    pub(crate) current: Entry,
}

impl Reader {
    /// The oldest entry.
    #[inline]
    pub(crate) fn poll(&mut self, cq: *const CompletionQueue) -> Option<Entry> {
        if let Some(entry) = self.completions.poll() {
            self.empty = 0;
            self.note(&entry);
            return Some(entry);
        }
        self.flushed.pop_front().or_else(|| self.find_none(cq))
    }

    /// The entry's place in its work queue is free, and of those before it.
    #[inline]
    fn note(&mut self, entry: &Entry) {
        let Some(session) = crate::session::get() else { return };
        if entry.opcode & RECV != 0 {
            return session.set_read(entry.qp, Side::Receives, entry.index);
        }
        if entry.is_early {
            // What is left of a queue pair that is gone is not to be flushed.
            if session.read(entry.qp, Side::Sends).is_some() {
                self.early.push((entry.qp, entry.index));
            }
            return;
        }
        if !self.early.is_empty() {
            let is_behind = |index: u32| index.wrapping_sub(entry.index) as i32 > 0;
            self.early.retain(|(qp, index)| *qp != entry.qp || is_behind(*index));
        }
        // First here, then in the work queue: another thread may post at once.
        self.release();
        session.set_read(entry.qp, Side::Sends, entry.index);
    }

    #[cold]
    fn find_none(&mut self, cq: *const CompletionQueue) -> Option<Entry> {
        self.empty += 1;
        let looks = self.empty.is_multiple_of(LOOK_EVERY);
        if crate::session::is_known_gone() || looks && crate::session::is_device_gone() {
            return self.flush(cq);
        }
        if self.empty > PATIENCE {
            std::thread::yield_now();
        }
        None
    }

    /// The device is gone: what was posted and did not complete is flushed.
    pub(crate) fn flush(&mut self, cq: *const CompletionQueue) -> Option<Entry> {
        // What it had written last.
        if let Some(entry) = self.completions.poll() {
            self.note(&entry);
            return Some(entry);
        }
        work_queues::flush(cq.cast_mut().cast(), &self.early, &mut self.flushed);
        self.flushed.pop_front()
    }

    /// A queue pair is gone, or begins anew.
    pub(crate) fn forget(&mut self, qp: u32) {
        self.early.retain(|(of, _)| *of != qp);
    }

    /// The device may use the places of what was read.
    #[inline]
    pub(crate) fn release(&self) {
        self.completions.release();
    }
}

/// The library's own of a program's queue.
pub(crate) fn of(cq: *mut ibv_cq) -> *mut CompletionQueue {
    cq.cast()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    if cqe <= 0 || comp_vector < 0 || comp_vector >= (*context).num_comp_vectors {
        return none(libc::EINVAL);
    }
    match create(context, cqe as u32, cq_context, channel, Turn::new(true)) {
        Ok(cq) => cq.cast(),
        Err(error) => none(error),
    }
}

pub(crate) unsafe fn create(
    context: *mut ibv_context,
    cqe: u32,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    turn: Turn,
) -> Result<*mut CompletionQueue, c_int> {
    let channel_number = (!channel.is_null()).then(|| (*channel.cast::<Channel>()).number);
    let most = session()?.device.limits.cqe;
    if cqe > most {
        return Err(libc::EINVAL);
    }
    // A whole number of places, as devices round up.
    let depth = cqe.next_power_of_two().min(most);
    let request = Request::CreateCq { context: number(context), depth, channel: channel_number };
    let reply = ask(&request)?;
    let handle = reply.words[0] as u32;
    let area = Area::decode([reply.words[1], reply.words[2]]).ok_or(libc::EPROTO)?;
    let completions = Completions::new(area, session()?.memory).ok_or(libc::EPROTO)?;
    let mut base: ibv_cq_ex = std::mem::zeroed();
    let cq = &mut base.base;
    (cq.context, cq.channel, cq.cq_context) = (context, channel, cq_context);
    (cq.handle, cq.cqe) = (handle, depth as c_int);
    let (flushed, early, empty, current) = (VecDeque::new(), Vec::new(), 0, Entry::default());
    let reader = Reader { completions, flushed, early, empty, current };
    let own = Box::into_raw(Box::new(CompletionQueue {
        base,
        queue: Mutex::new(reader),
        turn,
        completion_events: AtomicU32::new(0),
        async_events: AtomicU32::new(0),
    }));
    if !channel.is_null() {
        users(channel).fetch_add(1, Ordering::AcqRel);
    }
    QUEUES.put(handle, own);
    Ok(own)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    let (own, handle) = (of(cq), (*cq).handle);
    match ask(&Request::DestroyCq(handle)) {
        Ok(_) | Err(libc::EIO) => {}
        Err(error) => return code(Err(error)),
    }
    QUEUES.take(handle);
    acknowledged(&(*own).completion_events);
    acknowledged(&(*own).async_events);
    if !(*cq).channel.is_null() {
        users((*cq).channel).fetch_sub(1, Ordering::AcqRel);
    }
    drop(Box::from_raw(own));
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_resize_cq(_: *mut ibv_cq, _: c_int) -> c_int {
    code(Err(libc::EOPNOTSUPP))
}

const WITH_IMM: u32 = 1 << 1;
const WITH_INV: u32 = 1 << 3;

/// The data of immediate data or of an invalidation, and the flags that say which.
pub(crate) fn immediate(entry: &Entry) -> (u32, u32) {
    match (entry.immediate, entry.invalidated) {
        (Some(immediate), _) => (immediate, WITH_IMM),
        (None, Some(key)) => (key, WITH_INV),
        (None, None) => (0, 0),
    }
}

pub(crate) unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, most: c_int, to: *mut ibv_wc) -> c_int {
    let own = of(cq);
    if crate::session::get().is_none() {
        return -libc::ENODEV;
    }
    let mut queue = lock(&(*own).queue);
    let mut count = 0;
    while count < most {
        let Some(entry) = queue.poll(own) else { break };
        let (imm_data, wc_flags) = immediate(&entry);
        *to.add(count as usize) = ibv_wc {
            wr_id: entry.wr_id,
            status: entry.status.into(),
            opcode: entry.opcode.into(),
            vendor_err: entry.vendor_err.into(),
            byte_len: entry.len,
            imm_data,
            qp_num: entry.qp,
            src_qp: 0,
            wc_flags,
            pkey_index: 0,
            slid: 0,
            sl: 0,
            dlid_path_bits: 0,
        };
        count += 1;
    }
    if count > 0 {
        queue.release();
    }
    count
}

pub(crate) unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // The child of a fork does not have the memory of the queue.
    if let Err(error) = session() {
        return code(Err(error));
    }
    let what = if solicited_only == 0 { ANY } else { SOLICITED };
    lock(&(*of(cq)).queue).completions.arm(what);
    0
}

pub(crate) unsafe extern "C" fn modify_cq(cq: *mut ibv_cq, attr: *mut ibv_modify_cq_attr) -> c_int {
    const MODERATE: u32 = 1;
    let ibv_modify_cq_attr { attr_mask, cq_count, cq_period } = *attr;
    if attr_mask != MODERATE {
        return code(Err(libc::EINVAL));
    }
    let request = Request::Moderate { cq: (*cq).handle, count: cq_count, period: cq_period };
    code(ask(&request).map(drop))
}

/// A completion channel, as the library has it.
#[repr(C)]
struct Channel {
    base: ibv_comp_channel,
    number: u32,
}

/// How many completion queues a channel has. Several threads may make and end them.
unsafe fn users<'a>(channel: *mut ibv_comp_channel) -> &'a AtomicI32 {
    AtomicI32::from_ptr(&raw mut (*channel).refcnt)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_comp_channel(
    context: *mut ibv_context,
) -> *mut ibv_comp_channel {
    let ask = |session: &Session| session.ask_for(&Request::CreateChannel, Request::DestroyChannel);
    match session().and_then(ask) {
        Ok((number, fd)) => {
            let base = ibv_comp_channel { context, fd, refcnt: 0 };
            Box::into_raw(Box::new(Channel { base, number })).cast()
        }
        Err(error) => none(error),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    if users(channel).load(Ordering::Acquire) > 0 {
        return code(Err(libc::EBUSY));
    }
    let (own, fd) = (channel.cast::<Channel>(), (*channel).fd);
    let ended = ends(&Request::DestroyChannel((*own).number), own);
    // The descriptor of one that is there still is still its own.
    if ended == 0 {
        os::close(fd);
    }
    ended
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    loop {
        let mut number = [0; 8];
        match os::read((*channel).fd, &mut number) {
            Ok(8) => {}
            Ok(_) => return os::fails(crate::session::ended()),
            Err(error) => return os::fails(error),
        }
        let found = QUEUES.with(u64::from_ne_bytes(number) as u32, |own| {
            (*own).completion_events.fetch_add(1, Ordering::AcqRel);
            own
        });
        // One that was destroyed meanwhile has no events any more.
        if let Some(own) = found {
            *cq = own.cast();
            *cq_context = (*own).base.base.cq_context;
            return 0;
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, count: u32) {
    (*of(cq)).completion_events.fetch_sub(count, Ordering::AcqRel);
}
