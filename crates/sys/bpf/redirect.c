// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// Hands every frame of a queue to the AF_XDP socket of that queue, and leaves
// the frame to the kernel's own stack where no socket is.
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
