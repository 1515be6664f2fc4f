//! Where it is heard of an object, so that what was not heard can be taken back when the object ends.

use super::owned::Kind;
use super::{Process, event};
use crate::session::message::Request;
use crate::verbs::id::{Cq, Qp, Srq};

/// Where it is heard of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Heard {
    /// The context that has its asynchronous events.
    pub context: u32,
    /// The channel that has its completion events.
    pub channel: Option<u32>,
    kind: Kind,
    number: u32,
}

impl Heard {
    /// Whether an asynchronous event, of this number of `ibv_event_type`, is about it.
    pub fn has(&self, event: u8, object: u32) -> bool {
        let kind = match event {
            event::CQ_ERR => Kind::Cq,
            event::SRQ_LIMIT_REACHED => Kind::Srq,
            _ => Kind::Qp,
        };
        (kind, object) == (self.kind, self.number)
    }
}

impl Process {
    /// Where it is heard of the object that a request ends; `None` of requests that end none with events.
    pub fn heard(&self, request: &Request<'_>) -> Option<Heard> {
        match *request {
            Request::DestroyCq(number) => {
                let of = self.cqs.get(Cq::new(number).place()).filter(|of| of.cq.0 == number)?;
                let (context, channel) = (of.context, of.channel);
                Some(Heard { context, channel, kind: Kind::Cq, number })
            }
            Request::DestroySrq(number) => {
                let of = self.srqs.get(Srq::new(number).place()).filter(|of| of.srq.0 == number)?;
                Some(Heard { context: of.context, channel: None, kind: Kind::Srq, number })
            }
            Request::DestroyQp(number) => {
                let of = self.qps.get(Qp::new(number).place()).filter(|of| of.qp.0 == number)?;
                Some(Heard { context: of.context, channel: None, kind: Kind::Qp, number })
            }
            _ => None,
        }
    }
}
