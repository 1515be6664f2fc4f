//! Messages are what they were, and any bytes are a message or an error.

use std::net::SocketAddr;

use proptest::prelude::*;
use rdma::session::cm::{CmEvent, Kind};
use rdma::session::device::Device;
use rdma::session::message::{Connect, RegisterRequest};
use rdma::session::{MessageError, Reply, Request};
use rdma::verbs::Limits;

use super::side::qp_request;

fn all() -> Vec<Request<'static>> {
    let (v4, v6): (SocketAddr, SocketAddr) =
        ("10.0.0.1:7".parse().unwrap(), "[fe80::1%3]:65535".parse().unwrap());
    let connect = Connect { id: 1, qp: u32::MAX, ird: 16, ord: u16::MAX, private_data: &[7; 512] };
    let register = RegisterRequest {
        pd: 1,
        access: u32::MAX,
        addr: u64::MAX,
        len: 1 << 40,
        iova: 5,
        file: Some(0),
    };
    let mut all = vec![
        Request::Hello { probe: u64::MAX, nonce: 5 },
        Request::Query,
        Request::OpenContext,
        Request::CreateChannel,
        Request::CreateEvents,
        Request::Register(register),
        Request::Register(RegisterRequest { file: None, ..register }),
        Request::AllocWindow { pd: 1, is_type_2: true },
        Request::CreateCq { context: 1, depth: 2, channel: None },
        Request::CreateCq { context: 1, depth: 2, channel: Some(0) },
        Request::Moderate { cq: 1, count: u16::MAX, period: 3 },
        Request::CreateSrq { context: 1, pd: 2, depth: 3, sges: 4 },
        Request::ArmSrq { srq: 1, limit: 2 },
        Request::CreateQp(qp_request(1, 2)),
        Request::ModifyQp { qp: 1, state: 6 },
        Request::Bind { id: 1, address: v4 },
        Request::ResolveAddr { id: 1, from: None, to: v6, timeout: 2000 },
        Request::ResolveAddr { id: 1, from: Some(v4), to: v4, timeout: 0 },
        Request::Connect(connect),
        Request::Listen { id: 1, backlog: 2 },
        Request::Accept(Connect { private_data: &[], ..connect }),
        Request::Reject { id: 1, private_data: b"no" },
        Request::Migrate { id: 1, events: 2 },
        Request::SetOption { id: 1, option: 2, value: 3 },
    ];
    let named: [fn(u32) -> Request<'static>; 14] = [
        Request::CloseContext,
        Request::AllocPd,
        Request::DeallocPd,
        Request::Deregister,
        Request::DeallocWindow,
        Request::DestroyChannel,
        Request::DestroyCq,
        Request::QuerySrq,
        Request::DestroySrq,
        Request::QueryQp,
        Request::DestroyQp,
        Request::DestroyEvents,
        Request::CreateId,
        Request::DestroyId,
    ];
    all.extend(named.iter().map(|of| of(0xdead_beef)));
    all.extend([Request::ResolveRoute(1), Request::Disconnect(2)]);
    all
}

#[test]
fn requests_are_what_they_were() {
    for request in all() {
        let bytes = request.encode().unwrap();
        assert_eq!(Request::decode(&bytes), Ok(request));
        assert!(Request::decode(&bytes[..bytes.len() - 1]).is_err());
    }
    let long = Request::Reject { id: 1, private_data: &[0; 513] };
    assert_eq!(long.encode(), Err(MessageError::Length(513)));
}

#[test]
fn events_and_devices_are_what_they_were() {
    let local: SocketAddr = "[::1]:80".parse().unwrap();
    let (kind, status, ird, ord) = (Kind::ConnectRequest, 111, 3, 255);
    let event =
        CmEvent { kind, status, id: 7, listener: 8, ird, ord, local: Some(local), remote: None };
    let reply = event.encode(b"private");
    let reply = Reply::decode(&reply.encode().unwrap()).unwrap();
    assert_eq!((CmEvent::decode(&reply), &reply.bytes[..]), (Some(event), &b"private"[..]));
    let device = Device { limits: Limits::default(), guid: u64::MAX - 5 };
    assert_eq!(Device::decode(&device.encode()), device);
}

proptest! {
    #[test]
    fn any_bytes(mut bytes in proptest::collection::vec(any::<u8>(), 0..700), kind in 0..45_u8) {
        // Most of what is not of this version ends there.
        if bytes.len() >= 8 && kind < 40 {
            bytes[..4].copy_from_slice(&[1, 0, kind, 0]);
            let len = (bytes.len() as u32).saturating_sub(88);
            bytes[4..8].copy_from_slice(&len.to_le_bytes());
        }
        if let Ok(request) = Request::decode(&bytes) {
            prop_assert_eq!(request.encode().unwrap(), bytes);
        }
    }
}
