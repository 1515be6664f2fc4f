// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// Hands every frame of a queue to the AF_XDP socket of that queue, and leaves
// the frame to the kernel's own stack where no socket is. Two of the programs
// leave the stack, too, what configures the interface.
//
// redirect.o is the compiled form of this file and is committed, so that
// building wharf needs no clang. After a change here, in this directory:
//
//     clang -O2 -target bpf -c redirect.c -o redirect.o && llvm-strip -g redirect.o
//
// No headers are included: the few definitions below are kernel ABI
// (include/uapi/linux/bpf.h), and so the object depends on the compiler alone.
// The map is defined by a "maps" section, which needs no BTF, for the same
// reason: BTF records the path that the file was compiled in.

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

#define SEC(name) __attribute__((section(name), used))

enum { XDP_PASS = 2 };
enum { BPF_MAP_TYPE_XSKMAP = 17 };

struct xdp_md {
	u32 data;
	u32 data_end;
	u32 data_meta;
	u32 ingress_ifindex;
	u32 rx_queue_index;
	u32 egress_ifindex;
};

struct bpf_map_def {
	u32 type;
	u32 key_size;
	u32 value_size;
	u32 max_entries;
	u32 map_flags;
};

static long (*bpf_redirect_map)(void *map, u64 key, u64 flags) = (void *)51;
static long (*bpf_xdp_adjust_meta)(struct xdp_md *ctx, int delta) = (void *)54;
static u64 (*bpf_ktime_get_ns)(void) = (void *)5;

// Stands in front of a frame, where the socket's reader finds it.
struct stamp {
	u64 magic;
	u64 time; // CLOCK_MONOTONIC, in nanoseconds
};

#define STAMP_MAGIC 0x776861726673746dULL // "wharfstm"

// Queue index to AF_XDP socket.
struct bpf_map_def SEC("maps") xsks = {
	.type = BPF_MAP_TYPE_XSKMAP,
	.key_size = sizeof(u32),
	.value_size = sizeof(u32),
	.max_entries = 256,
};

// The flags of bpf_redirect_map are the verdict where the map has no entry.
static __attribute__((always_inline)) int to_socket_of_queue(struct xdp_md *ctx)
{
	return bpf_redirect_map(&xsks, ctx->rx_queue_index, XDP_PASS);
}

// Where a driver leaves no room in front of frames they go without a stamp.
static __attribute__((always_inline)) void put_stamp(struct xdp_md *ctx)
{
	struct stamp *stamp;

	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*stamp)))
		return;
	stamp = (void *)(long)ctx->data_meta;
	if ((void *)(stamp + 1) > (void *)(long)ctx->data)
		return;
	stamp->magic = STAMP_MAGIC;
	stamp->time = bpf_ktime_get_ns();
}

enum {
	ETHERNET = 14,
	IPV6 = 40,
	IPPROTO_UDP = 17,
	IPPROTO_ICMPV6 = 58,
	DHCP_CLIENT = 68,
	DHCPV6_CLIENT = 546,
	ROUTER_ADVERTISEMENT = 134,
};

// Whether a frame is for those who configure the interface: DHCP to a client
// (RFC 2131, section 4.1; RFC 8415, section 7.2), or a router advertisement
// (RFC 4861, section 4.2). Not in a VLAN, not in fragments, and not behind
// extension headers: none of these is sent so.
static __attribute__((always_inline)) int configures(struct xdp_md *ctx)
{
	const u8 *data = (const u8 *)(long)ctx->data;
	const u8 *end = (const u8 *)(long)ctx->data_end;
	const u8 *ip = data + ETHERNET;
	const u8 *payload = ip + IPV6;

	if (payload + 4 > end)
		return 0;
	if (data[12] == 0x86 && data[13] == 0xdd) {
		if (ip[6] == IPPROTO_UDP)
			return (payload[2] << 8 | payload[3]) == DHCPV6_CLIENT;
		return ip[6] == IPPROTO_ICMPV6 && payload[0] == ROUTER_ADVERTISEMENT;
	}
	if (data[12] != 0x08 || data[13] != 0x00 || ip[9] != IPPROTO_UDP)
		return 0;
	if ((ip[6] & 0x1f) | ip[7])
		return 0;
	payload = ip + (ip[0] & 0x0f) * 4;
	if (payload + 4 > end)
		return 0;
	return (payload[2] << 8 | payload[3]) == DHCP_CLIENT;
}

// A program that says it can take frames of more than one buffer: drivers
// then attach it at any MTU (Linux 5.18).
SEC("xdp.frags")
int redirect_frags(struct xdp_md *ctx)
{
	return to_socket_of_queue(ctx);
}

// The same for kernels and drivers that do not know such programs.
SEC("xdp")
int redirect(struct xdp_md *ctx)
{
	return to_socket_of_queue(ctx);
}

// Both again, without what configures the interface.
SEC("xdp.frags")
int leave_frags(struct xdp_md *ctx)
{
	return configures(ctx) ? XDP_PASS : to_socket_of_queue(ctx);
}

SEC("xdp")
int leave(struct xdp_md *ctx)
{
	return configures(ctx) ? XDP_PASS : to_socket_of_queue(ctx);
}

// Both once more, with the time at which each frame arrived.
SEC("xdp.frags")
int stamp_frags(struct xdp_md *ctx)
{
	put_stamp(ctx);
	return to_socket_of_queue(ctx);
}

SEC("xdp")
int stamp(struct xdp_md *ctx)
{
	put_stamp(ctx);
	return to_socket_of_queue(ctx);
}

char _license[] SEC("license") = "Dual MIT/GPL";
