//! What an application asks for.

use core::net::SocketAddr;

/// What a queue pair is to be made with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpRequest {
    /// The context that hears of its events.
    pub context: u32,
    /// Its protection domain.
    pub pd: u32,
    /// Where sends complete.
    pub send_cq: u32,
    /// Where receives complete.
    pub receive_cq: u32,
    /// The shared receive queue.
    pub srq: Option<u32>,
    /// Entries of the send queue.
    pub sends: u32,
    /// Entries of the receive queue.
    pub receives: u32,
    /// Elements of a send.
    pub send_sges: u8,
    /// Elements of a receive.
    pub receive_sges: u8,
    /// Inline bytes of a send.
    pub inline: u32,
    /// All sends are signaled.
    pub signal_all: bool,
}

/// What a region is to be made with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegisterRequest {
    /// The protection domain.
    pub pd: u32,
    /// Rights: `ibv_access_flags`.
    pub access: u32,
    /// The application's address.
    pub addr: u64,
    /// Its bytes.
    pub len: u64,
    /// What accesses count from.
    pub iova: u64,
    /// The memory is that of the file that comes with the message, from this byte on.
    pub file: Option<u64>,
}

/// How a connection is to be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Connect<'a> {
    /// The identifier.
    pub id: u32,
    /// Its queue pair.
    pub qp: u32,
    /// Inbound reads and atomics at once (`responder_resources`).
    pub ird: u16,
    /// Outbound reads and atomics at once (`initiator_depth`).
    pub ord: u16,
    /// Private data.
    pub private_data: &'a [u8],
}

/// A verb, or a call of the connection manager's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request<'a> {
    /// The application begins. At the address `probe` lies `nonce`, which the device is to read and replace by its
    /// complement.
    Hello {
        /// The address.
        probe: u64,
        /// What lies there.
        nonce: u64,
    },
    /// What the device is.
    Query,
    /// `ibv_open_device`.
    OpenContext,
    /// `ibv_close_device`: all that was made in it ends.
    CloseContext(u32),
    /// `ibv_alloc_pd` in this context.
    AllocPd(u32),
    /// `ibv_dealloc_pd`.
    DeallocPd(u32),
    /// `ibv_reg_mr`.
    Register(RegisterRequest),
    /// `ibv_dereg_mr`: returns after the last access.
    Deregister(u32),
    /// `ibv_alloc_mw`: the domain, and whether the window is of type 2.
    AllocWindow {
        /// The protection domain.
        pd: u32,
        /// Whether it is of type 2.
        is_type_2: bool,
    },
    /// `ibv_dealloc_mw`.
    DeallocWindow(u32),
    /// `ibv_create_comp_channel`.
    CreateChannel,
    /// `ibv_destroy_comp_channel`.
    DestroyChannel(u32),
    /// `ibv_create_cq`.
    CreateCq {
        /// The context that hears of its events.
        context: u32,
        /// Entries.
        depth: u32,
        /// Where its completion events go.
        channel: Option<u32>,
    },
    /// `ibv_destroy_cq`.
    DestroyCq(u32),
    /// `ibv_modify_cq`: an event waits for so many entries, or so long.
    Moderate {
        /// The queue.
        cq: u32,
        /// Entries.
        count: u16,
        /// Microseconds.
        period: u16,
    },
    /// `ibv_create_srq`.
    CreateSrq {
        /// The context that hears of its events.
        context: u32,
        /// The protection domain.
        pd: u32,
        /// Entries.
        depth: u32,
        /// Elements of each.
        sges: u8,
    },
    /// `ibv_modify_srq` with a limit.
    ArmSrq {
        /// The queue.
        srq: u32,
        /// The limit.
        limit: u32,
    },
    /// `ibv_query_srq`.
    QuerySrq(u32),
    /// `ibv_destroy_srq`.
    DestroySrq(u32),
    /// `ibv_create_qp`.
    CreateQp(QpRequest),
    /// `ibv_modify_qp`: the number of an `ibv_qp_state`.
    ModifyQp {
        /// The queue pair.
        qp: u32,
        /// The state.
        state: u8,
    },
    /// `ibv_query_qp`.
    QueryQp(u32),
    /// `ibv_destroy_qp`.
    DestroyQp(u32),
    /// `rdma_create_event_channel`.
    CreateEvents,
    /// `rdma_destroy_event_channel`.
    DestroyEvents(u32),
    /// `rdma_create_id`, at this channel.
    CreateId(u32),
    /// `rdma_destroy_id`.
    DestroyId(u32),
    /// `rdma_bind_addr`.
    Bind {
        /// The identifier.
        id: u32,
        /// The address.
        address: SocketAddr,
    },
    /// `rdma_resolve_addr`.
    ResolveAddr {
        /// The identifier.
        id: u32,
        /// The own address, if it is asked for.
        from: Option<SocketAddr>,
        /// The peer's.
        to: SocketAddr,
        /// How long it may take, in milliseconds.
        timeout: u32,
    },
    /// `rdma_resolve_route`.
    ResolveRoute(u32),
    /// `rdma_connect`.
    Connect(Connect<'a>),
    /// `rdma_listen`.
    Listen {
        /// The identifier.
        id: u32,
        /// Connections that may wait.
        backlog: u32,
    },
    /// `rdma_accept`.
    Accept(Connect<'a>),
    /// `rdma_reject`.
    Reject {
        /// The identifier.
        id: u32,
        /// Private data.
        private_data: &'a [u8],
    },
    /// `rdma_disconnect`.
    Disconnect(u32),
    /// `rdma_migrate_id`.
    Migrate {
        /// The identifier.
        id: u32,
        /// The channel.
        events: u32,
    },
    /// `rdma_set_option` of level `RDMA_OPTION_ID`.
    SetOption {
        /// The identifier.
        id: u32,
        /// The option.
        option: u32,
        /// Its value.
        value: u32,
    },
}
