//! Making and ending objects, and how many there may be.

use rdma::verbs::{Access, Cq, Error, Limits, Pd, Qp, QpConfig, Registration, Srq, WindowKind};
use rdma::{Handle, Rnic};

fn small() -> Limits {
    Limits {
        pds: 2,
        cqs: 2,
        cqe: 16,
        srqs: 1,
        qps: 2,
        wr: 8,
        sge: 2,
        inline: 64,
        queue_bytes: 1 << 20,
        regions: 4,
        registered: 1000,
        reads: 4,
    }
}

fn registration(pd: Pd, iova: u64, len: u64, access: Access) -> Registration {
    Registration { pd, iova, len, access, memory: Handle(3) }
}

fn queue_pair(pd: Pd, cq: Cq) -> QpConfig {
    QpConfig {
        pd,
        send_cq: cq,
        receive_cq: cq,
        srq: None,
        sends: 8,
        receives: 8,
        send_sges: 2,
        receive_sges: 2,
        inline: 64,
        signal_all: false,
    }
}

#[test]
fn nothing_goes_over_its_limit() {
    let mut rnic = Rnic::new(small(), [0; 16]);
    let pd = rnic.alloc_pd().unwrap();
    rnic.alloc_pd().unwrap();
    assert_eq!(rnic.alloc_pd(), Err(Error::Limit));
    let cq = rnic.create_cq(16).unwrap();
    assert_eq!(rnic.create_cq(17), Err(Error::Limit));
    rnic.create_cq(1).unwrap();
    assert_eq!(rnic.create_cq(1), Err(Error::Limit));
    assert_eq!(rnic.create_cq(0), Err(Error::Invalid));
    for over in [
        QpConfig { sends: 9, ..queue_pair(pd, cq) },
        QpConfig { receives: 9, ..queue_pair(pd, cq) },
        QpConfig { send_sges: 3, ..queue_pair(pd, cq) },
        QpConfig { receive_sges: 3, ..queue_pair(pd, cq) },
        QpConfig { inline: 65, ..queue_pair(pd, cq) },
    ] {
        assert_eq!(rnic.create_qp(over), Err(Error::Invalid));
    }
    for _ in 0..2 {
        rnic.create_qp(queue_pair(pd, cq)).unwrap();
    }
    assert_eq!(rnic.create_qp(queue_pair(pd, cq)), Err(Error::Limit));
    assert_eq!(rnic.qps(), 2);
    rnic.create_srq(pd, 8, 2).unwrap();
    assert_eq!(rnic.create_srq(pd, 8, 2), Err(Error::Limit));
    assert_eq!(rnic.create_srq(pd, 9, 2), Err(Error::Invalid));
    assert_eq!(rnic.create_srq(pd, 8, 3), Err(Error::Invalid));
    assert_eq!(rnic.create_srq(pd, 0, 2), Err(Error::Invalid));
    // Bytes, and regions and windows together.
    let all = Access::ALL;
    let first = rnic.register(registration(pd, 0, 900, all)).unwrap();
    assert_eq!(rnic.register(registration(pd, 0, 101, all)), Err(Error::Limit));
    rnic.register(registration(pd, 0, 100, all)).unwrap();
    assert_eq!(rnic.alloc_region(pd, 1), Err(Error::Limit));
    rnic.deregister(first).unwrap();
    let stags = [WindowKind::One, WindowKind::Two].map(|kind| rnic.alloc_window(pd, kind).unwrap());
    rnic.alloc_region(pd, 900).unwrap();
    assert_eq!(rnic.alloc_window(pd, WindowKind::Two), Err(Error::Limit));
    for stag in stags {
        rnic.dealloc_window(stag).unwrap();
    }
}

/// Queues take memory of this machine's: all of a process's together are bounded, and what is gone counts no more.
#[test]
fn queues_are_bounded_together() {
    let limits = Limits { queue_bytes: 1 << 20, ..Limits::default() };
    let mut rnic = Rnic::new(limits, [0; 16]);
    let pd = rnic.alloc_pd().unwrap();
    assert_eq!(rnic.create_cq(1 << 16), Err(Error::Limit), "more than a megabyte");
    for _ in 0..100 {
        let cq = rnic.create_cq(1024).unwrap();
        let srq = rnic.create_srq(pd, 1024, 4).unwrap();
        let large = QpConfig { sends: 1024, inline: 256, ..queue_pair(pd, cq) };
        let qp = rnic.create_qp(large).unwrap();
        assert_eq!(rnic.create_qp(QpConfig { sends: 4096, ..large }), Err(Error::Limit));
        rnic.destroy_qp(qp).unwrap();
        rnic.destroy_srq(srq).unwrap();
        rnic.destroy_cq(cq).unwrap();
    }
}

/// Programs send numbers of queue pairs in three bytes, and 0 and 1 are special (InfiniBand Architecture Specification, volume 1,
/// section 9.2).
#[test]
fn numbers_of_queue_pairs_have_24_bits() {
    let mut rnic = Rnic::new(Limits::default(), [0; 16]);
    let pd = rnic.alloc_pd().unwrap();
    let cq = rnic.create_cq(64).unwrap();
    // The place of the highest number.
    let all: Vec<_> = (0..4096).map(|_| rnic.create_qp(queue_pair(pd, cq)).unwrap()).collect();
    assert_eq!(rnic.create_qp(queue_pair(pd, cq)), Err(Error::Limit));
    let mut qp = all[4095];
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..10_000 {
        assert!((2..1 << 24).contains(&qp.0), "{qp:?}");
        assert!(seen.insert(qp.0) || seen.len() == 4095, "{qp:?} comes back too soon");
        rnic.destroy_qp(qp).unwrap();
        assert!(rnic.state(qp).is_err());
        qp = rnic.create_qp(queue_pair(pd, cq)).unwrap();
    }
    assert_eq!(seen.len(), 4095);
    for other in &all[..4095] {
        rnic.state(*other).unwrap();
    }
}

/// `verbs.h`.
#[test]
fn numbers_of_verbs() {
    use rdma::Status;
    use rdma::verbs::{Done, State};
    let statuses = Status::ALL.map(Status::number);
    assert_eq!(statuses, [0, 1, 2, 4, 5, 6, 7, 9, 10, 11]);
    let done = [Done::Send, Done::Write, Done::Read, Done::CompareSwap, Done::FetchAdd, Done::Bind];
    assert_eq!(done.map(|of| of as u8), [0, 1, 2, 3, 4, 5]);
    let others = [Done::LocalInvalidate, Done::Receive, Done::ReceiveImmediate];
    assert_eq!(others.map(|of| of as u8), [6, 128, 129]);
    let states =
        [State::Reset, State::Init, State::Rtr, State::Rts, State::Sqd, State::Sqe, State::Err];
    assert_eq!(states.map(|of| of as u8), [0, 1, 2, 3, 4, 5, 6]);
}

#[test]
fn what_is_in_use_stays() {
    let mut rnic = Rnic::new(small(), [0; 16]);
    let pd = rnic.alloc_pd().unwrap();
    let stag = rnic.register(registration(pd, 0, 10, Access::ALL)).unwrap();
    assert_eq!(rnic.dealloc_pd(pd), Err(Error::Busy));
    assert_eq!(rnic.deregister(stag), Ok(Handle(3)));
    assert_eq!(rnic.deregister(stag), Err(Error::Invalid));
    let srq = rnic.create_srq(pd, 1, 1).unwrap();
    assert_eq!(rnic.dealloc_pd(pd), Err(Error::Busy));
    let cq = rnic.create_cq(4).unwrap();
    let qp = rnic.create_qp(QpConfig { srq: Some(srq), ..queue_pair(pd, cq) }).unwrap();
    assert_eq!(rnic.destroy_srq(srq), Err(Error::Busy));
    assert_eq!(rnic.destroy_cq(cq), Err(Error::Busy));
    rnic.destroy_qp(qp).unwrap();
    rnic.destroy_srq(srq).unwrap();
    rnic.destroy_cq(cq).unwrap();
    let window = rnic.alloc_window(pd, WindowKind::Two).unwrap();
    assert_eq!(rnic.dealloc_pd(pd), Err(Error::Busy));
    assert_eq!(rnic.deregister(window), Err(Error::Invalid));
    rnic.dealloc_window(window).unwrap();
    rnic.dealloc_pd(pd).unwrap();
    assert_eq!(rnic.dealloc_pd(pd), Err(Error::Invalid));
}

/// Names of objects that are gone, and numbers that never were names.
#[test]
fn names_that_name_nothing() {
    let mut rnic = Rnic::new(small(), [0; 16]);
    let (pd, cq) = (rnic.alloc_pd().unwrap(), rnic.create_cq(4).unwrap());
    let qp = rnic.create_qp(queue_pair(pd, cq)).unwrap();
    rnic.destroy_qp(qp).unwrap();
    let again = rnic.create_qp(queue_pair(pd, cq)).unwrap();
    assert_ne!(qp, again, "the same place, another name");
    assert_eq!(rnic.state(qp), Err(Error::Invalid));
    for number in [0, 1, 77, u32::MAX, again.0 ^ 1 << 31] {
        assert_eq!(rnic.destroy_qp(Qp::new(number)), Err(Error::Invalid), "{number}");
        assert_eq!(rnic.destroy_cq(Cq::new(number)), Err(Error::Invalid));
        assert_eq!(rnic.destroy_srq(Srq::new(number)), Err(Error::Invalid));
        assert_eq!(rnic.dealloc_pd(Pd::new(number)), Err(Error::Invalid));
        assert_eq!(rnic.deregister(number), Err(Error::Invalid));
        assert_eq!(rnic.dealloc_window(number), Err(Error::Invalid));
        let elsewhere = registration(Pd::new(number), 0, 1, Access::ALL);
        assert_eq!(rnic.register(elsewhere), Err(Error::Invalid));
        let config = queue_pair(pd, Cq::new(number));
        assert_eq!(rnic.create_qp(config), Err(Error::Invalid));
        let config = QpConfig { srq: Some(Srq::new(number)), ..queue_pair(pd, cq) };
        assert_eq!(rnic.create_qp(config), Err(Error::Invalid));
    }
}

#[test]
fn regions_that_are_refused() {
    let mut rnic = Rnic::new(Limits::default(), [0; 16]);
    let pd = rnic.alloc_pd().unwrap();
    let mut register = |iova, len, access| rnic.register(registration(pd, iova, len, access));
    assert_eq!(register(0, 0, Access::ALL), Err(Error::Invalid));
    assert_eq!(register(u64::MAX, 1, Access::ALL), Err(Error::Invalid));
    assert_eq!(register(1, u64::MAX, Access::ALL), Err(Error::Invalid));
    assert!(register(u64::MAX - 1, 1, Access::ALL).is_ok());
    for remote in [Access::REMOTE_WRITE, Access::REMOTE_ATOMIC] {
        assert_eq!(register(0, 1, remote), Err(Error::Invalid), "without LOCAL_WRITE");
        assert!(register(0, 1, remote.and(Access::LOCAL_WRITE)).is_ok());
    }
    assert!(register(0, 1, Access::REMOTE_READ).is_ok());
}

/// The flags of `ibv_reg_mr`.
#[test]
fn access_flags() {
    assert_eq!(Access::from_bits(0x1f), Ok(Access::ALL));
    // Relaxed ordering and the other optional flags, and huge pages.
    assert_eq!(Access::from_bits(0x3ff0_0080 | 1), Ok(Access::LOCAL_WRITE));
    assert_eq!(Access::from_bits(1 << 5), Err(Error::NotSupported));
    assert_eq!(Access::from_bits(1 << 6), Err(Error::NotSupported));
    assert_eq!(Error::NotSupported.errno(), 95);
    for bit in [8, 9, 10, 19, 30, 31] {
        assert_eq!(Access::from_bits(1 << bit), Err(Error::Invalid), "{bit}");
    }
}
