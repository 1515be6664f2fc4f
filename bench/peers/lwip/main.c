/* lwIP's TCP as a peer of `wharf bench tcp-goodput`, with the settings that Debian builds it with.
 *
 * lwip-peer TAP OWN SERVER PORT send|receive BYTES: makes a TAP, says `ready`, and after a line on
 * standard input connects, moves the bytes, and prints the seconds that it took as JSON. The last byte
 * is sent when the server, which has read it, has closed as well. */
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "lwip/api.h"
#include "lwip/etharp.h"
#include "lwip/netif.h"
#include "lwip/tcpip.h"
#include "netif/ethernet.h"

#define FRAME 1514
#define CHUNK 16384

static int tap;

static void fail(const char *why) {
	printf("{\"error\": \"%s\"}\n", why);
	exit(1);
}

static void open_tap(const char *name) {
	struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI};
	strncpy(request.ifr_name, name, IFNAMSIZ - 1);
	tap = open("/dev/net/tun", O_RDWR);
	if (tap < 0 || ioctl(tap, TUNSETIFF, &request) < 0)
		fail("cannot make a TAP");
}

static err_t transmit(struct netif *netif, struct pbuf *packet) {
	char frame[FRAME];
	u16_t len = pbuf_copy_partial(packet, frame, sizeof frame, 0);
	(void)netif;
	return write(tap, frame, len) == len ? ERR_OK : ERR_IF;
}

static err_t init(struct netif *netif) {
	static const u8_t address[6] = {2, 0, 0, 0, 0, 1};
	netif->name[0] = 't';
	netif->name[1] = 'p';
	netif->output = etharp_output;
	netif->linkoutput = transmit;
	netif->mtu = 1500;
	netif->hwaddr_len = 6;
	memcpy(netif->hwaddr, address, 6);
	netif->flags = NETIF_FLAG_BROADCAST | NETIF_FLAG_ETHARP | NETIF_FLAG_LINK_UP;
	return ERR_OK;
}

/* What arrives, one frame after the other. */
static void receive(void *argument) {
	struct netif *netif = argument;
	char frame[FRAME];
	for (;;) {
		ssize_t len = read(tap, frame, sizeof frame);
		if (len <= 0)
			continue;
		/* Debian's PBUF_POOL takes its buffers, of 616 bytes, for larger ones. */
		struct pbuf *packet = pbuf_alloc(PBUF_RAW, (u16_t)len, PBUF_RAM);
		if (packet == NULL)
			continue;
		pbuf_take(packet, frame, (u16_t)len);
		if (netif->input(packet, netif) != ERR_OK)
			pbuf_free(packet);
	}
}

static void started(void *done) { sys_sem_signal(done); }

/* Takes what comes, up to `most` bytes or the end. */
static long take(struct netconn *connection, long most) {
	long taken = 0;
	struct pbuf *packet;
	while (taken < most && netconn_recv_tcp_pbuf(connection, &packet) == ERR_OK) {
		taken += packet->tot_len;
		pbuf_free(packet);
	}
	return taken;
}

static double now(void) {
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

int main(int count, char **words) {
	static struct netif netif;
	static char data[CHUNK], line[16];
	ip4_addr_t own, mask, none;
	ip_addr_t server;
	if (count != 7 || !ip4addr_aton(words[2], &own) || !ipaddr_aton(words[3], &server))
		fail("TAP OWN SERVER PORT send|receive BYTES");
	long bytes = atol(words[6]);
	open_tap(words[1]);

	sys_sem_t done;
	sys_sem_new(&done, 0);
	tcpip_init(started, &done);
	sys_sem_wait(&done);
	IP4_ADDR(&mask, 255, 255, 255, 0);
	ip4_addr_set_zero(&none);
	LOCK_TCPIP_CORE();
	netif_add(&netif, &own, &mask, &none, NULL, init, tcpip_input);
	netif_set_default(&netif);
	netif_set_up(&netif);
	UNLOCK_TCPIP_CORE();
	sys_thread_new("receive", receive, &netif, DEFAULT_THREAD_STACKSIZE, DEFAULT_THREAD_PRIO);
	setvbuf(stdout, NULL, _IOLBF, 0);
	puts("ready");
	if (fgets(line, sizeof line, stdin) == NULL)
		return 1;

	struct netconn *connection = netconn_new(NETCONN_TCP);
	if (connection == NULL || netconn_connect(connection, &server, (u16_t)atoi(words[4])) != ERR_OK)
		fail("cannot connect");
	double began = now();
	if (strcmp(words[5], "send") == 0) {
		for (long left = bytes; left > 0;) {
			size_t len = left < CHUNK ? (size_t)left : CHUNK;
			if (netconn_write(connection, data, len, NETCONN_COPY) != ERR_OK)
				fail("the connection broke");
			left -= (long)len;
		}
		netconn_shutdown(connection, 0, 1);
		take(connection, 1);
	} else if (take(connection, bytes) < bytes) {
		fail("the connection ended early");
	}
	printf("{\"seconds\": %.6f}\n", now() - began);
	return 0;
}
