//! The device, its port, and contexts.

use std::ffi::CStr;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

use libc::{c_char, c_int, c_void, size_t};
use rdma::session::Request;

use crate::abi::*;
use crate::objects::{Context, ask, code, of, session};
use crate::os::none;
use crate::session::{self, Session};
use crate::{extended_queues, pairs, posting, queues, regions};

const NAME: &[u8] = b"wharf0";
const NODE_RNIC: c_int = 4;
const TRANSPORT_IWARP: c_int = 1;

struct Only(ibv_device);

// SAFETY: it is never changed, and its pointers are functions.
unsafe impl Send for Only {}
// SAFETY: as above.
unsafe impl Sync for Only {}

fn chars<const N: usize>(text: &[u8]) -> [c_char; N] {
    let mut chars = [0; N];
    chars.iter_mut().zip(text).for_each(|(to, from)| *to = *from as c_char);
    chars
}

fn device() -> *mut ibv_device {
    static DEVICE: OnceLock<Only> = OnceLock::new();
    let only = DEVICE.get_or_init(|| {
        Only(ibv_device {
            ops: [None; 2],
            node_type: NODE_RNIC,
            transport_type: TRANSPORT_IWARP,
            name: chars(NAME),
            dev_name: chars(b"uverbs-wharf0"),
            dev_path: chars(b"/sys/class/infiniband_verbs/uverbs-wharf0"),
            ibdev_path: chars(b"/sys/class/infiniband/wharf0"),
        })
    });
    (&raw const only.0).cast_mut()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_device_list(num_devices: *mut c_int) -> *mut *mut ibv_device {
    let count = c_int::from(session::begin().is_ok());
    if !num_devices.is_null() {
        *num_devices = count;
    }
    let list = libc::calloc(2, size_of::<*mut ibv_device>()).cast::<*mut ibv_device>();
    if !list.is_null() && count > 0 {
        *list = device();
    }
    list
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    libc::free(list.cast());
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
    if device.is_null() { std::ptr::null() } else { (&raw const (*device).name).cast() }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_device_index(_: *mut ibv_device) -> c_int {
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_device_guid(_: *mut ibv_device) -> u64 {
    session::get().map_or(0, |session| session.device.guid.to_be())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_open_device(_: *mut ibv_device) -> *mut ibv_context {
    open().unwrap_or_else(none)
}

/// A context.
pub(crate) fn open() -> Result<*mut ibv_context, c_int> {
    let session = session::begin()?;
    let (number, async_fd) = session.ask_for(&Request::OpenContext, Request::CloseContext)?;
    // SAFETY: all fields are integers, pointers and options of functions, for which zero is nothing.
    let mut verbs: verbs_context = unsafe { std::mem::zeroed() };
    verbs.query_port = Some(query_port);
    verbs.modify_cq = Some(queues::modify_cq);
    verbs.create_cq_ex = Some(extended_queues::create_cq_ex);
    verbs.query_device_ex = Some(query_device_ex);
    verbs.create_qp_ex = Some(pairs::create_qp_ex);
    verbs.create_srq_ex = Some(pairs::create_srq_ex);
    verbs.sz = size_of::<verbs_context>();
    let context = &mut verbs.context;
    context.device = device();
    context.cmd_fd = session.socket;
    context.async_fd = async_fd;
    context.num_comp_vectors = 1;
    // `__VERBS_ABI_IS_EXTENDED`.
    context.abi_compat = std::ptr::without_provenance_mut(usize::MAX);
    context.ops.compat_query_port = Some(query_compat_port);
    context.ops.alloc_mw = Some(regions::alloc_mw);
    context.ops.bind_mw = Some(posting::bind_mw);
    context.ops.dealloc_mw = Some(regions::dealloc_mw);
    context.ops.poll_cq = Some(queues::poll_cq);
    context.ops.req_notify_cq = Some(queues::req_notify_cq);
    context.ops.post_srq_recv = Some(posting::post_srq_recv);
    context.ops.post_send = Some(posting::post_send);
    context.ops.post_recv = Some(posting::post_recv);
    let context =
        Box::into_raw(Box::new(Context { verbs, number, was_told: AtomicBool::new(false) }));
    // SAFETY: made just now.
    Ok(unsafe { &raw mut (*context).verbs.context })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    let own = Box::from_raw(of(context));
    crate::os::close(own.verbs.context.async_fd);
    match ask(&Request::CloseContext(own.number)) {
        // With the device all its contexts are gone.
        Ok(_) | Err(libc::EIO) => 0,
        Err(error) => code(Err(error)),
    }
}

fn port() -> ibv_port_attr {
    const ACTIVE: c_int = 4;
    const MTU_4096: c_int = 5;
    const ETHERNET: u8 = 2;
    const LINK_UP: u8 = 5;
    // SAFETY: all fields are integers.
    let zero: ibv_port_attr = unsafe { std::mem::zeroed() };
    ibv_port_attr {
        state: ACTIVE,
        max_mtu: MTU_4096,
        active_mtu: MTU_4096,
        gid_tbl_len: 1,
        // As siw has it: IB_PORT_CM_SUP and IB_PORT_DEVICE_MGMT_SUP.
        port_cap_flags: 1 << 16 | 1 << 19,
        max_msg_sz: rdma::verbs::MESSAGE_MAX,
        pkey_tbl_len: 1,
        active_width: 2,
        active_speed: 4,
        phys_state: LINK_UP,
        link_layer: ETHERNET,
        ..zero
    }
}

/// The speed of the port in units of 100 Mb/s: four lanes of 10 Gb/s (QDR), as [`port`] has it.
const SPEED: u64 = 4 * 100;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_port_speed(
    _: *mut ibv_context,
    port_num: u32,
    to: *mut u64,
) -> c_int {
    if port_num != 1 || to.is_null() {
        return code(Err(libc::EINVAL));
    }
    *to = SPEED;
    0
}

/// Bytes of the attributes that callers of the first version have.
const COMPAT_PORT: usize = 48;

unsafe fn write_port(port_num: u8, to: *mut c_void, len: usize) -> c_int {
    if port_num != 1 || to.is_null() {
        return code(Err(libc::EINVAL));
    }
    let port = port();
    let known = len.min(size_of::<ibv_port_attr>());
    to.cast::<u8>().write_bytes(0, len);
    to.cast::<u8>().copy_from_nonoverlapping((&raw const port).cast(), known);
    0
}

pub(crate) unsafe extern "C" fn query_port(
    _: *mut ibv_context,
    port_num: u8,
    to: *mut ibv_port_attr,
    len: size_t,
) -> c_int {
    write_port(port_num, to.cast(), len)
}

pub(crate) unsafe extern "C" fn query_compat_port(
    _: *mut ibv_context,
    port_num: u8,
    to: *mut c_void,
) -> c_int {
    write_port(port_num, to, COMPAT_PORT)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_port(
    _: *mut ibv_context,
    port_num: u8,
    to: *mut c_void,
) -> c_int {
    write_port(port_num, to, COMPAT_PORT)
}

fn attributes(session: &Session) -> ibv_device_attr {
    const MEM_WINDOW: u32 = 1 << 17;
    const MEM_MGT_EXTENSIONS: u32 = 1 << 21;
    const MEM_WINDOW_TYPE_2B: u32 = 1 << 24;
    const ATOMIC_HCA: c_int = 1;
    let limits = &session.device.limits;
    let number = |n: usize| c_int::try_from(n).unwrap_or(c_int::MAX);
    let small = |n: u32| c_int::try_from(n).unwrap_or(c_int::MAX);
    // SAFETY: all fields are integers.
    let zero: ibv_device_attr = unsafe { std::mem::zeroed() };
    ibv_device_attr {
        fw_ver: chars(env!("CARGO_PKG_VERSION").as_bytes()),
        node_guid: session.device.guid.to_be(),
        sys_image_guid: session.device.guid.to_be(),
        max_mr_size: limits.registered,
        page_size_cap: 0xffff_f000,
        max_qp: number(limits.qps),
        max_qp_wr: small(limits.wr),
        device_cap_flags: MEM_WINDOW | MEM_MGT_EXTENSIONS | MEM_WINDOW_TYPE_2B,
        max_sge: limits.sge.into(),
        max_sge_rd: 1,
        max_cq: number(limits.cqs),
        max_cqe: small(limits.cqe),
        max_mr: number(limits.regions),
        max_pd: number(limits.pds),
        max_qp_rd_atom: limits.reads.into(),
        max_res_rd_atom: number(usize::from(limits.reads) * limits.qps),
        max_qp_init_rd_atom: limits.reads.into(),
        atomic_cap: ATOMIC_HCA,
        max_mw: number(limits.regions),
        max_srq: number(limits.srqs),
        max_srq_wr: small(limits.wr),
        max_srq_sge: limits.sge.into(),
        max_pkeys: 1,
        phys_port_cnt: 1,
        ..zero
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_device(_: *mut ibv_context, to: *mut ibv_device_attr) -> c_int {
    code(session().map(|session| *to = attributes(session)))
}

unsafe extern "C" fn query_device_ex(
    _: *mut ibv_context,
    input: *const c_void,
    to: *mut ibv_device_attr_ex,
    len: size_t,
) -> c_int {
    // `ibv_query_device_ex_input` has a mask alone, of which no bit means anything.
    if !input.is_null() && *input.cast::<u32>() != 0 || len < size_of::<ibv_device_attr>() {
        return code(Err(libc::EINVAL));
    }
    let session = match session() {
        Ok(session) => session,
        Err(error) => return code(Err(error)),
    };
    let mut all: ibv_device_attr_ex = std::mem::zeroed();
    all.orig_attr = attributes(session);
    all.device_cap_flags_ex = all.orig_attr.device_cap_flags.into();
    all.cq_mod_caps = [u16::MAX; 2];
    all.phys_port_cnt_ex = 1;
    to.cast::<u8>().write_bytes(0, len);
    let known = len.min(size_of::<ibv_device_attr_ex>());
    to.cast::<u8>().copy_from_nonoverlapping((&raw const all).cast(), known);
    0
}

fn gid() -> [u64; 2] {
    [session::get().map_or(0, |session| session.device.guid.to_be()), 0]
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_gid(
    _: *mut ibv_context,
    port_num: u8,
    index: c_int,
    to: *mut c_void,
) -> c_int {
    if port_num != 1 || index != 0 {
        return crate::os::fails(libc::EINVAL);
    }
    to.cast::<[u64; 2]>().write_unaligned(gid());
    0
}

fn gid_entry() -> ibv_gid_entry {
    ibv_gid_entry { gid: gid(), gid_index: 0, port_num: 1, gid_type: 0, ndev_ifindex: 0 }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ibv_query_gid_ex(
    _: *mut ibv_context,
    port_num: u32,
    index: u32,
    to: *mut ibv_gid_entry,
    flags: u32,
    size: size_t,
) -> c_int {
    if port_num != 1 || index != 0 || flags != 0 || size < size_of::<ibv_gid_entry>() {
        return code(Err(libc::EINVAL));
    }
    *to = gid_entry();
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ibv_query_gid_table(
    _: *mut ibv_context,
    to: *mut ibv_gid_entry,
    most: size_t,
    flags: u32,
    size: size_t,
) -> isize {
    if most == 0 || flags != 0 || size < size_of::<ibv_gid_entry>() {
        return -(libc::EINVAL as isize);
    }
    *to = gid_entry();
    1
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_gid_type(
    _: *mut ibv_context,
    port_num: u8,
    index: u32,
    to: *mut c_int,
) -> c_int {
    if port_num != 1 || index != 0 {
        return crate::os::fails(libc::EINVAL);
    }
    *to = 0;
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_pkey(
    _: *mut ibv_context,
    port_num: u8,
    index: c_int,
    to: *mut u16,
) -> c_int {
    if port_num != 1 || index != 0 {
        return crate::os::fails(libc::EINVAL);
    }
    *to = u16::MAX;
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_pkey_index(_: *mut ibv_context, _: u8, pkey: u16) -> c_int {
    if pkey == u16::MAX { 0 } else { crate::os::fails(libc::EINVAL) }
}

/// Where sysfs is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    c"/sys".as_ptr()
}

/// There are no files of this device, but for what programs look at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_read_sysfs_file(
    folder: *const c_char,
    file: *const c_char,
    to: *mut c_char,
    size: size_t,
) -> c_int {
    let text = |at: *const c_char| {
        if at.is_null() { c"" } else { CStr::from_ptr(at) }
    };
    let (folder, file) = (text(folder).to_bytes(), text(file).to_bytes());
    let is_ours = folder.windows(NAME.len()).any(|part| part == NAME);
    let content: &[u8] = match file {
        _ if !is_ours => return -1,
        b"board_id" => b"wharf",
        b"fw_ver" => env!("CARGO_PKG_VERSION").as_bytes(),
        b"node_type" => b"4: RNIC",
        _ => return -1,
    };
    let len = content.len().min(size.saturating_sub(1));
    to.cast::<u8>().copy_from_nonoverlapping(content.as_ptr(), len);
    if size > 0 {
        *to.add(len) = 0;
    }
    len as c_int
}
