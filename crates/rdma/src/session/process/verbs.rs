//! Verbs that make and end objects.

use core::sync::atomic::AtomicU64;

use wire::Nanos;

use super::owned::{Kind, index};
use super::{CompletionQueue, Pair, Process, SharedQueue, Told};
use crate::memory::Handle;
use crate::session::area::Area;
use crate::session::completions::{STRIDE, Written};
use crate::session::message::{QpRequest, RegisterRequest, Reply, Request};
use crate::session::posts::Taken;
use crate::session::work::{recv_stride, send_stride};
use crate::verbs::id::{Cq, Pd, Qp, Srq};
use crate::verbs::{Access, Error, QpConfig, Registration, State, WindowKind};

impl Process {
    /// Does what the application asks for. `handle` is the device's name for the memory of a
    /// [`Request::Register`]. Requests that are the device's alone, of connections and descriptors, are
    /// [`Error::NotSupported`] here.
    pub fn request(
        &mut self,
        memory: &[AtomicU64],
        now: Nanos,
        request: &Request<'_>,
        handle: Handle,
    ) -> Reply {
        let done = self.verb(memory, now, request, handle);
        self.tell_events();
        done.unwrap_or_else(|error| Reply::error(error.errno()))
    }

    fn verb(
        &mut self,
        memory: &[AtomicU64],
        now: Nanos,
        request: &Request<'_>,
        handle: Handle,
    ) -> Result<Reply, Error> {
        match *request {
            Request::CloseContext(context) => self.close(memory, now, context),
            Request::AllocPd(context) => {
                let pd = self.rnic.alloc_pd()?;
                self.owned.add(context, Kind::Pd, pd.0, 0);
                return Ok(Reply::done([pd.0.into()]));
            }
            Request::DeallocPd(pd) => self.dealloc_pd(Pd::new(pd))?,
            Request::Register(of) => return self.register(&of, handle),
            Request::Deregister(stag) => self.deregister(stag)?,
            Request::AllocWindow { pd, is_type_2 } => return self.alloc_window(pd, is_type_2),
            Request::DeallocWindow(stag) => self.dealloc_window(stag)?,
            Request::CreateCq { context, depth, channel } => {
                return self.create_cq(memory, context, depth, channel);
            }
            Request::DestroyCq(cq) => self.destroy_cq(Cq::new(cq))?,
            Request::Moderate { cq, count, period } => self.moderate(Cq::new(cq), count, period)?,
            Request::CreateSrq { context, pd, depth, sges } => {
                return self.create_srq(memory, context, Pd::new(pd), (depth, sges));
            }
            Request::ArmSrq { srq, limit } => self.arm_srq(memory, Srq::new(srq), limit)?,
            Request::QuerySrq(srq) => {
                let of = self.srqs.get(Srq::new(srq).place()).filter(|of| of.srq.0 == srq);
                return Ok(Reply::done([of.ok_or(Error::Invalid)?.limit.into()]));
            }
            Request::DestroySrq(srq) => self.destroy_srq(Srq::new(srq))?,
            Request::CreateQp(of) => return self.create_qp(memory, &of),
            Request::ModifyQp { qp, state } => {
                let to = State::ALL.into_iter().find(|known| *known as u8 == state);
                return self.modify_qp(memory, now, Qp::new(qp), to.ok_or(Error::Invalid)?);
            }
            Request::QueryQp(qp) => {
                return Ok(Reply::done([self.rnic.state(Qp::new(qp))? as u64]));
            }
            Request::DestroyQp(qp) => self.destroy_qp(memory, now, Qp::new(qp))?,
            _ => return Err(Error::NotSupported),
        }
        Ok(Reply::default())
    }

    /// Ends all that was made in a context.
    fn close(&mut self, memory: &[AtomicU64], now: Nanos, context: u32) {
        for (kind, name) in self.owned.of_context(context) {
            let ended = match kind {
                Kind::Qp => self.destroy_qp(memory, now, Qp::new(name)),
                Kind::Srq => self.destroy_srq(Srq::new(name)),
                Kind::Cq => self.destroy_cq(Cq::new(name)),
                Kind::Window => self.dealloc_window(name << 8),
                Kind::Region => self.deregister(name << 8),
                Kind::Pd => self.dealloc_pd(Pd::new(name)),
            };
            // What another context uses stays until that is closed.
            let _ = ended;
        }
    }

    fn dealloc_pd(&mut self, pd: Pd) -> Result<(), Error> {
        self.rnic.dealloc_pd(pd)?;
        self.owned.remove(Kind::Pd, pd.0);
        Ok(())
    }

    fn register(&mut self, of: &RegisterRequest, handle: Handle) -> Result<Reply, Error> {
        let RegisterRequest { pd, access, len, iova, .. } = *of;
        let context = self.owned.context(Kind::Pd, pd).ok_or(Error::Invalid)?;
        let access = Access::from_bits(access)?;
        let pd = Pd::new(pd);
        let stag = self.rnic.register(Registration { pd, iova, len, access, memory: handle })?;
        self.owned.add(context, Kind::Region, index(stag), len);
        Ok(Reply::done([stag.into()]))
    }

    fn deregister(&mut self, stag: u32) -> Result<(), Error> {
        let handle = self.rnic.deregister(stag)?;
        self.owned.remove(Kind::Region, index(stag));
        self.told.push_back(Told::Released(handle));
        Ok(())
    }

    fn alloc_window(&mut self, pd: u32, is_type_2: bool) -> Result<Reply, Error> {
        let context = self.owned.context(Kind::Pd, pd).ok_or(Error::Invalid)?;
        let kind = if is_type_2 { WindowKind::Two } else { WindowKind::One };
        let stag = self.rnic.alloc_window(Pd::new(pd), kind)?;
        self.owned.add(context, Kind::Window, index(stag), 0);
        Ok(Reply::done([stag.into()]))
    }

    fn dealloc_window(&mut self, stag: u32) -> Result<(), Error> {
        self.rnic.dealloc_window(stag)?;
        self.owned.remove(Kind::Window, index(stag));
        Ok(())
    }

    /// A queue of so many entries, in memory that is zero.
    fn area(&mut self, memory: &[AtomicU64], depth: u32, stride: u32) -> Result<Area, Error> {
        let slots = depth.max(1).checked_next_power_of_two().ok_or(Error::Limit)?;
        let words = Area::words(slots, stride).ok_or(Error::Limit)?;
        let at = self.arena.take(words).ok_or(Error::Limit)?;
        let used = memory.get(at..self.used.clamp(at, at + words)).unwrap_or_default();
        used.iter().for_each(|word| word.store(0, core::sync::atomic::Ordering::Relaxed));
        self.used = self.used.max(at + words);
        Ok(Area { at: at as u32, slots, stride })
    }

    fn free(&mut self, area: Area) {
        if let Some(words) = Area::words(area.slots, area.stride) {
            self.arena.give(area.at as usize, words);
        }
    }

    fn create_cq(
        &mut self,
        memory: &[AtomicU64],
        context: u32,
        depth: u32,
        channel: Option<u32>,
    ) -> Result<Reply, Error> {
        let cq = self.rnic.create_cq(depth)?;
        let area = self.area(memory, depth, STRIDE).inspect_err(|_| {
            // It was made just now, and nothing uses it.
            let _ = self.rnic.destroy_cq(cq);
        })?;
        let written = Written::new(area);
        let (count, period, unseen, is_solicited) = (1, 0, 0, false);
        let (due, is_listed) = (None, false);
        let queue = CompletionQueue {
            cq,
            context,
            channel,
            written,
            count,
            period,
            unseen,
            is_solicited,
            due,
            is_listed,
        };
        self.cqs.put(cq, queue);
        self.owned.add(context, Kind::Cq, cq.0, 0);
        let [at, shape] = area.encode();
        Ok(Reply::done([cq.0.into(), at, shape]))
    }

    fn destroy_cq(&mut self, cq: Cq) -> Result<(), Error> {
        self.rnic.destroy_cq(cq)?;
        self.owned.remove(Kind::Cq, cq.0);
        self.moderated.retain(|of| *of != cq);
        if let Some(queue) = self.cqs.take(cq.place()) {
            self.free(queue.written.area());
        }
        Ok(())
    }

    fn moderate(&mut self, cq: Cq, count: u16, period: u16) -> Result<(), Error> {
        let queue = self.cqs.get_mut(cq.place()).filter(|queue| queue.cq == cq);
        let queue = queue.ok_or(Error::Invalid)?;
        (queue.count, queue.period) = (u32::from(count).max(1), Nanos::from(period) * 1000);
        Ok(())
    }

    fn create_srq(
        &mut self,
        memory: &[AtomicU64],
        context: u32,
        pd: Pd,
        (depth, sges): (u32, u8),
    ) -> Result<Reply, Error> {
        let srq = self.rnic.create_srq(pd, depth, sges)?;
        let area = self.area(memory, depth, recv_stride(sges)).inspect_err(|_| {
            // It was made just now, and nothing uses it.
            let _ = self.rnic.destroy_srq(srq);
        })?;
        self.srqs.put(srq, SharedQueue { srq, context, limit: 0, taken: Taken::new(area) });
        self.owned.add(context, Kind::Srq, srq.0, 0);
        let [at, shape] = area.encode();
        Ok(Reply::done([srq.0.into(), at, shape]))
    }

    fn arm_srq(&mut self, memory: &[AtomicU64], srq: Srq, limit: u32) -> Result<(), Error> {
        // What was posted before counts.
        self.pull_srq(memory, srq.place()).map_err(|_| Error::Invalid)?;
        let of = self.srqs.get_mut(srq.place()).filter(|of| of.srq == srq);
        of.ok_or(Error::Invalid)?.limit = limit;
        self.rnic.arm_srq(srq, limit)
    }

    fn destroy_srq(&mut self, srq: Srq) -> Result<(), Error> {
        self.rnic.destroy_srq(srq)?;
        self.owned.remove(Kind::Srq, srq.0);
        if let Some(of) = self.srqs.take(srq.place()) {
            self.free(of.taken.area());
        }
        Ok(())
    }

    fn create_qp(&mut self, memory: &[AtomicU64], of: &QpRequest) -> Result<Reply, Error> {
        let QpRequest { send_sges, receive_sges, inline, sends, receives, .. } = *of;
        let (send_cq, receive_cq) = (Cq::new(of.send_cq), Cq::new(of.receive_cq));
        let srq = of.srq.map(Srq::new);
        let qp = self.rnic.create_qp(QpConfig {
            pd: Pd::new(of.pd),
            send_cq,
            receive_cq,
            srq,
            sends,
            receives,
            send_sges,
            receive_sges,
            inline,
            signal_all: of.signal_all,
        })?;
        let areas = self.areas(memory, of).inspect_err(|_| {
            // It was made just now.
            let _ = self.rnic.destroy_qp(qp);
        });
        let (sq, rq) = areas?;
        let [sq_at, sq_shape] = sq.encode();
        let [rq_at, rq_shape] = rq.map_or([0; 2], Area::encode);
        let (sq, rq) = (Taken::new(sq), rq.map(Taken::new));
        let (context, state) = (of.context, State::Reset);
        let pair = Pair { qp, context, send_cq, receive_cq, srq, sq, rq, state };
        self.qps.put(qp, pair);
        self.owned.add(context, Kind::Qp, qp.0, 0);
        Ok(Reply::done([qp.0.into(), sq_at, sq_shape, rq_at, rq_shape]))
    }

    /// Areas of a queue pair's queues; none of a receive queue if it has a shared one.
    fn areas(
        &mut self,
        memory: &[AtomicU64],
        of: &QpRequest,
    ) -> Result<(Area, Option<Area>), Error> {
        let sq = self.area(memory, of.sends, send_stride(of.send_sges, of.inline))?;
        if of.srq.is_some() {
            return Ok((sq, None));
        }
        let rq = self.area(memory, of.receives, recv_stride(of.receive_sges));
        let rq = rq.inspect_err(|_| self.free(sq))?;
        Ok((sq, Some(rq)))
    }

    fn modify_qp(
        &mut self,
        memory: &[AtomicU64],
        now: Nanos,
        qp: Qp,
        to: State,
    ) -> Result<Reply, Error> {
        // What was posted before is flushed, or sent.
        self.take_posted(memory, qp).map_err(|_| Error::Invalid)?;
        self.rnic.modify(qp, to)?;
        if to == State::Reset {
            self.told.push_back(Told::Forgotten(qp));
            self.begin_anew(memory, now, qp);
        }
        self.settle(memory, now, qp).map_err(|_| Error::Invalid)?;
        Ok(Reply::done([self.rnic.state(qp)? as u64]))
    }

    fn begin_anew(&mut self, memory: &[AtomicU64], now: Nanos, qp: Qp) {
        // Completions that are there have numbers of entries that are not any more.
        let _ = self.settle(memory, now, qp);
        if let Some(pair) = self.qps.get_mut(qp.place()).filter(|pair| pair.qp == qp) {
            pair.sq.reset(memory);
            if let Some(rq) = &mut pair.rq {
                rq.reset(memory);
            }
        }
    }

    fn destroy_qp(&mut self, memory: &[AtomicU64], now: Nanos, qp: Qp) -> Result<(), Error> {
        self.rnic.state(qp)?;
        // Completions that are there are the application's, whatever becomes of the queue pair.
        let _ = self.settle(memory, now, qp);
        self.rnic.destroy_qp(qp)?;
        self.owned.remove(Kind::Qp, qp.0);
        self.told.push_back(Told::Forgotten(qp));
        if let Some(pair) = self.qps.take(qp.place()) {
            self.free(pair.sq.area());
            if let Some(rq) = pair.rq {
                self.free(rq.area());
            }
        }
        Ok(())
    }
}
