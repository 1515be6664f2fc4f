//! Structures are laid out as in the headers of rdma-core that are installed here: a compiler says how.
#![allow(clippy::unwrap_used)] // a failed unwrap is the failed test

use std::fmt::Write;
use std::mem::{offset_of, size_of};
use std::process::Command;

use testkit::missing::lacks;
use wharf_rdma::{abi, abi_cm};

/// A structure, its size, and its fields as C has them, with their offsets.
type Layout = (&'static str, usize, Vec<(&'static str, usize)>);

macro_rules! layouts {
    ($($module:ident::$name:ident { $($field:ident $(= $other:literal)?),* })*) => {
        vec![$((
            stringify!($name),
            size_of::<$module::$name>(),
            vec![$((layouts!(@$field $($other)?), offset_of!($module::$name, $field))),*],
        )),*]
    };
    (@$field:ident) => { stringify!($field) };
    (@$field:ident $other:literal) => { $other };
}

/// Those that programs see. Left out are parts that have no name of their own in C.
#[rustfmt::skip]
fn layouts() -> Vec<Layout> {
    layouts! {
        abi::ibv_device { ops = "_ops", node_type, transport_type, name, dev_name, dev_path, ibdev_path }
        abi::ibv_context_ops { alloc_mw, bind_mw, dealloc_mw, poll_cq, req_notify_cq, post_srq_recv, post_send, post_recv }
        abi::ibv_context { device, ops, cmd_fd, async_fd, num_comp_vectors, mutex, abi_compat }
        abi::verbs_context { query_port, modify_cq, create_cq_ex, private = "priv", query_device_ex, open_qp, create_qp_ex, get_srq_num, create_srq_ex, sz, context }
        abi::ibv_device_attr { fw_ver, node_guid, sys_image_guid, max_mr_size, page_size_cap, vendor_id, vendor_part_id, hw_ver, max_qp, max_qp_wr, device_cap_flags, max_sge, max_sge_rd, max_cq, max_cqe, max_mr, max_pd, max_qp_rd_atom, max_ee_rd_atom, max_res_rd_atom, max_qp_init_rd_atom, max_ee_init_rd_atom, atomic_cap, max_ee, max_rdd, max_mw, max_raw_ipv6_qp, max_raw_ethy_qp, max_mcast_grp, max_mcast_qp_attach, max_total_mcast_qp_attach, max_ah, max_fmr, max_map_per_fmr, max_srq, max_srq_wr, max_srq_sge, max_pkeys, local_ca_ack_delay, phys_port_cnt }
        abi::ibv_device_attr_ex { orig_attr, comp_mask, odp_caps, completion_timestamp_mask, hca_core_clock, device_cap_flags_ex, tso_caps, rss_caps, max_wq_type_rq, packet_pacing_caps, raw_packet_caps, tm_caps, cq_mod_caps, max_dm_size, pci_atomic_caps, xrc_odp_caps, phys_port_cnt_ex }
        abi::ibv_port_attr { state, max_mtu, active_mtu, gid_tbl_len, port_cap_flags, max_msg_sz, bad_pkey_cntr, qkey_viol_cntr, pkey_tbl_len, lid, sm_lid, lmc, max_vl_num, sm_sl, subnet_timeout, init_type_reply, active_width, active_speed, phys_state, link_layer, flags, port_cap_flags2 }
        abi::ibv_gid_entry { gid, gid_index, port_num, gid_type, ndev_ifindex }
        abi::ibv_async_event { element, event_type }
        abi::ibv_wc { wr_id, status, opcode, vendor_err, byte_len, imm_data, qp_num, src_qp, wc_flags, pkey_index, slid, sl, dlid_path_bits }
        abi::ibv_mw_bind_info { mr, addr, length, mw_access_flags }
        abi::ibv_mw_bind { wr_id, send_flags, bind_info }
        abi::ibv_pd { context, handle }
        abi::ibv_mr { context, pd, addr, length, handle, lkey, rkey }
        abi::ibv_mw { context, pd, rkey, handle, type_ = "type" }
        abi::ibv_ah_attr { dgid = "grh.dgid", flow_label = "grh.flow_label", sgid_index = "grh.sgid_index", hop_limit = "grh.hop_limit", traffic_class = "grh.traffic_class", dlid, sl, src_path_bits, static_rate, is_global, port_num }
        abi::ibv_srq_attr { max_wr, max_sge, srq_limit }
        abi::ibv_srq_init_attr { srq_context, attr }
        abi::ibv_srq_init_attr_ex { srq_context, attr, comp_mask, srq_type, pd, xrcd, cq, tm_cap }
        abi::ibv_qp_cap { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data }
        abi::ibv_qp_init_attr { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all }
        abi::ibv_qp_init_attr_ex { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all, comp_mask, pd, xrcd, create_flags, max_tso_header, rwq_ind_tbl, rx_hash_function = "rx_hash_conf.rx_hash_function", rx_hash_key_len = "rx_hash_conf.rx_hash_key_len", rx_hash_key = "rx_hash_conf.rx_hash_key", rx_hash_fields_mask = "rx_hash_conf.rx_hash_fields_mask", source_qpn, send_ops_flags }
        abi::ibv_qp_attr { qp_state, cur_qp_state, path_mtu, path_mig_state, qkey, rq_psn, sq_psn, dest_qp_num, qp_access_flags, cap, ah_attr, alt_ah_attr, pkey_index, alt_pkey_index, en_sqd_async_notify, sq_draining, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer, port_num, timeout, retry_cnt, rnr_retry, alt_port_num, alt_timeout, rate_limit }
        abi::ibv_sge { addr, length, lkey }
        abi::ibv_data_buf { addr, length }
        abi::ibv_send_wr { wr_id, next, sg_list, num_sge, opcode, send_flags, imm_data, wr, remote_srqn = "qp_type.xrc.remote_srqn", bind_mw }
        abi::ibv_recv_wr { wr_id, next, sg_list, num_sge }
        abi::ibv_srq { context, srq_context, pd, handle, mutex, cond, events_completed }
        abi::ibv_qp { context, qp_context, pd, send_cq, recv_cq, srq, handle, qp_num, state, qp_type, mutex, cond, events_completed }
        abi::ibv_qp_ex { qp_base, comp_mask, wr_id, wr_flags, wr_atomic_cmp_swp, wr_atomic_fetch_add, wr_bind_mw, wr_local_inv, wr_rdma_read, wr_rdma_write, wr_rdma_write_imm, wr_send, wr_send_imm, wr_send_inv, wr_send_tso, wr_set_ud_addr, wr_set_xrc_srqn, wr_set_inline_data, wr_set_inline_data_list, wr_set_sge, wr_set_sge_list, wr_start, wr_complete, wr_abort, wr_atomic_write }
        abi::ibv_comp_channel { context, fd, refcnt }
        abi::ibv_cq { context, channel, cq_context, handle, cqe, mutex, cond, comp_events_completed, async_events_completed }
        abi::ibv_cq_ex { comp_mask, status, wr_id, start_poll, next_poll, end_poll, read_opcode, read_vendor_err, read_byte_len, read_imm_data, read_qp_num, read_src_qp, read_wc_flags, read_slid, read_sl, read_dlid_path_bits, read_completion_ts, read_cvlan, read_flow_tag, read_tm_info, read_completion_wallclock_ns }
        abi::ibv_cq_init_attr_ex { cqe, cq_context, channel, comp_vector, wc_flags, comp_mask, flags, parent_domain }
        abi::ibv_modify_cq_attr { attr_mask, cq_count = "moderate.cq_count", cq_period = "moderate.cq_period" }
        abi_cm::rdma_event_channel { fd }
        abi_cm::rdma_addr { src_storage, dst_storage, ibaddr = "addr.ibaddr" }
        abi_cm::rdma_route { addr, path_rec, num_paths }
        abi_cm::rdma_cm_id { verbs, channel, context, qp, route, ps, port_num, event, send_cq_channel, send_cq, recv_cq_channel, recv_cq, srq, pd, qp_type }
        abi_cm::rdma_conn_param { private_data, private_data_len, responder_resources, initiator_depth, flow_control, retry_count, rnr_retry_count, srq, qp_num }
        abi_cm::rdma_cm_event { id, listen_id, event, status, conn = "param.conn" }
        abi_cm::rdma_addrinfo { ai_flags, ai_family, ai_qp_type, ai_port_space, ai_src_len, ai_dst_len, ai_src_addr, ai_dst_addr, ai_src_canonname, ai_dst_canonname, ai_route_len, ai_route, ai_connect_len, ai_connect, ai_next }
    }
}

#[test]
fn structures_are_those_of_the_headers() {
    const HEADERS: [&str; 2] = ["infiniband/verbs.h", "rdma/rdma_cma.h"];
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source, program) = (folder.join("layout.c"), folder.join("layout"));
    let mut text = String::from("#include <stddef.h>\n#include <stdio.h>\n");
    for header in HEADERS {
        if !std::path::Path::new("/usr/include").join(header).exists() {
            return lacks(format!("/usr/include/{header}"));
        }
        writeln!(text, "#include <{header}>").unwrap();
    }
    text.push_str("int main(void) {\n");
    for (name, _, fields) in layouts() {
        writeln!(text, r#"printf("{name} %zu\n", sizeof(struct {name}));"#).unwrap();
        for (field, _) in fields {
            writeln!(text, r#"printf("{name}.{field} %zu\n", offsetof(struct {name}, {field}));"#)
                .unwrap();
        }
    }
    text.push_str("}\n");
    std::fs::write(&source, text).unwrap();
    let built = Command::new("gcc").arg(&source).arg("-o").arg(&program).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let said = String::from_utf8(Command::new(&program).output().unwrap().stdout).unwrap();
    let mut own = String::new();
    for (name, size, fields) in layouts() {
        writeln!(own, "{name} {size}").unwrap();
        fields.iter().for_each(|(field, at)| writeln!(own, "{name}.{field} {at}").unwrap());
    }
    let differ: Vec<_> = own.lines().zip(said.lines()).filter(|(own, said)| own != said).collect();
    assert!(differ.is_empty() && own.lines().count() == said.lines().count(), "{differ:?}");
}
