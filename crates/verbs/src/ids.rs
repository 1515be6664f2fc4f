//! Calls of the connection manager for identifiers, up to their addresses.

use std::ptr::null_mut;

use libc::{c_int, c_void};
use rdma::session::Request;
use rdma::session::message::address_of;

use crate::abi::ibv_context;
use crate::abi_cm::*;
use crate::addresses;
use crate::cm_events::complete;
use crate::identifiers::*;
use crate::objects::{acknowledged, ask};
use crate::os::{self, fails, result};

unsafe fn create(
    channel: *mut rdma_event_channel,
    context: *mut c_void,
    port_space: c_int,
) -> Result<*mut rdma_cm_id, c_int> {
    // Datagrams and InfiniBand's own are not of this transport.
    if port_space != PS_TCP {
        return Err(libc::EOPNOTSUPP);
    }
    let is_sync = channel.is_null();
    let channel = if is_sync { rdma_create_event_channel() } else { channel };
    if channel.is_null() {
        return Err(os::errno());
    }
    let made = ask(&Request::CreateId((*channel.cast::<Channel>()).number));
    match made {
        Ok(reply) => Ok(adopt(reply.words[0] as u32, channel, context, is_sync).cast()),
        Err(error) => {
            if is_sync {
                rdma_destroy_event_channel(channel);
            }
            Err(error)
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_create_id(
    channel: *mut rdma_event_channel,
    id: *mut *mut rdma_cm_id,
    context: *mut c_void,
    port_space: c_int,
) -> c_int {
    result(create(channel, context, port_space).map(|made| *id = made))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int {
    let own = of(id);
    let number = match number(id) {
        Ok(number) => number,
        Err(error) => return fails(error),
    };
    match ask(&Request::DestroyId(number)) {
        Ok(_) | Err(libc::EIO) => {}
        Err(error) => return fails(error),
    }
    IDS.take(number);
    if !(*id).event.is_null() {
        rdma_ack_cm_event((*id).event);
    }
    acknowledged(&(*own).events);
    if (*own).is_sync {
        rdma_destroy_event_channel((*id).channel);
    }
    drop(Box::from_raw(own));
    0
}

/// Notes the own address, by which an identifier belongs to the device.
pub(crate) unsafe fn note_local(id: *mut rdma_cm_id, words: [u64; 3]) -> Result<(), c_int> {
    if let Some(local) = address_of(words) {
        addresses::write(&raw mut (*id).route.addr.src_storage, local);
        if !local.ip().is_unspecified() {
            bound(id)?;
        }
    }
    Ok(())
}

fn local(reply: &rdma::session::Reply) -> [u64; 3] {
    [reply.words[0], reply.words[1], reply.words[2]]
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_bind_addr(
    id: *mut rdma_cm_id,
    address: *mut libc::sockaddr,
) -> c_int {
    let Some(address) = addresses::read(address) else { return fails(libc::EINVAL) };
    let bound = number(id).and_then(|id| ask(&Request::Bind { id, address }));
    result(bound.and_then(|reply| match address_of(local(&reply)) {
        // As with the kernel's manager, what is bound to a loopback address is no device's yet: libfabric takes such an
        // identifier for one that may be reached by any address.
        Some(own) if own.ip().is_loopback() => {
            addresses::write(&raw mut (*id).route.addr.src_storage, own);
            Ok(())
        }
        _ => note_local(id, local(&reply)),
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rdma_resolve_addr(
    id: *mut rdma_cm_id,
    src: *mut libc::sockaddr,
    dst: *mut libc::sockaddr,
    timeout_ms: c_int,
) -> c_int {
    let Some(to) = addresses::read(dst) else { return fails(libc::EINVAL) };
    let from = addresses::read(src);
    let timeout = timeout_ms.unsigned_abs();
    let request = number(id).map(|id| Request::ResolveAddr { id, from, to, timeout });
    let resolved = request.and_then(|request| ask(&request)).and_then(|reply| {
        addresses::write(&raw mut (*id).route.addr.dst_storage, to);
        note_local(id, local(&reply))
    });
    complete(id, resolved)
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rdma_resolve_route(id: *mut rdma_cm_id, _: c_int) -> c_int {
    complete(id, number(id).and_then(|id| ask(&Request::ResolveRoute(id))).map(drop))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int {
    let backlog = u32::try_from(backlog).unwrap_or(0);
    let listens = number(id).and_then(|id| ask(&Request::Listen { id, backlog }));
    result(listens.and_then(|reply| note_local(id, local(&reply))))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_set_option(
    id: *mut rdma_cm_id,
    level: c_int,
    option: c_int,
    value: *mut c_void,
    len: libc::size_t,
) -> c_int {
    const LEVEL_ID: c_int = 0;
    if level != LEVEL_ID {
        return fails(libc::ENOSYS);
    }
    // The type of service and the timeout are bytes, the others are integers: whose length is another is refused.
    const BYTES: [c_int; 2] = [0, 3];
    let expected = if BYTES.contains(&option) { 1 } else { size_of::<c_int>() };
    if len != expected || value.is_null() {
        return fails(libc::EINVAL);
    }
    let value = match expected {
        1 => u32::from(value.cast::<u8>().read()),
        _ => value.cast::<u32>().read_unaligned(),
    };
    let option = option.unsigned_abs();
    let set = number(id).and_then(|id| ask(&Request::SetOption { id, option, value }));
    result(set.map(drop))
}

unsafe fn port(of: *const libc::sockaddr_storage) -> u16 {
    addresses::read(of.cast()).map_or(0, |address| address.port().to_be())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_get_src_port(id: *mut rdma_cm_id) -> u16 {
    port(&raw const (*id).route.addr.src_storage)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_get_dst_port(id: *mut rdma_cm_id) -> u16 {
    port(&raw const (*id).route.addr.dst_storage)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_get_devices(num_devices: *mut c_int) -> *mut *mut ibv_context {
    let context = context();
    if !num_devices.is_null() {
        *num_devices = c_int::from(context.is_ok());
    }
    let list = libc::calloc(2, size_of::<*mut ibv_context>()).cast::<*mut ibv_context>();
    if !list.is_null() {
        *list = context.unwrap_or(null_mut());
    }
    list
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_free_devices(list: *mut *mut ibv_context) {
    libc::free(list.cast());
}
