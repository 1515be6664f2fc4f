//go:build linux

package tun

// wireguard-go's GRO as a peer of `wharf bench lro`: what NativeTun.Write does with a burst up to
// the write itself. It verifies every checksum and appends payload to the buffer of the first
// packet. Built into package tun by `go test -overlay`, as handleGRO is not exported.

import (
	"testing"
	"time"

	"wharf.invalid/peers/workload"
)

const (
	// Packets lie behind the virtio_net_hdr that is to be written.
	packetAt = virtioNetHdrLen
	// What the device makes its buffers for: the longest IP packet.
	bufferLen = packetAt + 1<<16 - 1
)

type peer struct {
	tcp     *tcpGROTable
	udp     *udpGROTable
	buffers [][]byte
	toWrite []int
	outputs int
	payload int
}

func TestWharfPeer(*testing.T) {
	workload.Serve(map[string]workload.Bench{
		"lro": workload.LRO(&peer{tcp: newTCPGROTable(), udp: newUDPGROTable()}),
		"gso": workload.GSO(&splitter{}),
	})
}

func (p *peer) Begin(w *workload.Workload) {
	p.buffers = make([][]byte, w.Burst)
	for i := range p.buffers {
		p.buffers[i] = make([]byte, bufferLen)
		copy(p.buffers[i][packetAt:], w.Packet)
	}
	p.outputs, p.payload = 0, 0
}

func (p *peer) Burst(w *workload.Workload, stream *workload.Stream) (time.Duration, error) {
	for i := range p.buffers {
		p.buffers[i] = p.buffers[i][:packetAt+len(w.Packet)]
		w.Write(p.buffers[i][packetAt:], stream)
	}
	begin := time.Now()
	p.tcp.reset()
	p.udp.reset()
	p.toWrite = p.toWrite[:0]
	err := handleGRO(p.buffers, packetAt, p.tcp, p.udp, true, &p.toWrite)
	took := time.Since(begin)
	p.outputs += len(p.toWrite)
	for _, i := range p.toWrite {
		p.payload += len(p.buffers[i]) - packetAt - w.HeadersLen
	}
	return took, err
}

func (p *peer) End(*workload.Workload) (int, int) { return p.outputs, p.payload }
