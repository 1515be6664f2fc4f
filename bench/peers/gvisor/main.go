// Command gvisor is gVisor's GRO as a peer of `wharf bench lro`: a burst is enqueued, then
// flushed. Packets are made of buffers of gVisor's own before the clock starts, and released
// after it stopped.
package main

import (
	"time"

	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/stack/gro"

	"wharf.invalid/peers/workload"
)

func main() {
	workload.Serve(map[string]workload.Bench{"lro": workload.LRO(&system{})})
}

type system struct {
	gro      gro.GRO
	protocol tcpip.NetworkProtocolNumber
	packets  []*stack.PacketBuffer
	bytes    []byte
	outputs  int
	// Bytes delivered, headers included.
	delivered int
}

func (s *system) DeliverNetworkPacket(_ tcpip.NetworkProtocolNumber, packet *stack.PacketBuffer) {
	s.outputs++
	s.delivered += packet.Data().Size()
}

func (s *system) DeliverLinkPacket(tcpip.NetworkProtocolNumber, *stack.PacketBuffer) {}

func (s *system) Begin(w *workload.Workload) {
	s.gro = gro.GRO{Dispatcher: s}
	s.gro.Init(true)
	s.protocol = header.IPv4ProtocolNumber
	if w.IPv6() {
		s.protocol = header.IPv6ProtocolNumber
	}
	s.bytes = append([]byte(nil), w.Packet...)
	s.outputs, s.delivered = 0, 0
}

func (s *system) Burst(w *workload.Workload, stream *workload.Stream) (time.Duration, error) {
	s.packets = s.packets[:0]
	for range w.Burst {
		w.Write(s.bytes, stream)
		packet := stack.NewPacketBuffer(stack.PacketBufferOptions{
			Payload: buffer.MakeWithData(s.bytes), // copies
		})
		packet.NetworkProtocolNumber = s.protocol
		packet.RXChecksumValidated = !w.Verify
		s.packets = append(s.packets, packet)
	}
	begin := time.Now()
	for _, packet := range s.packets {
		s.gro.Enqueue(packet)
	}
	s.gro.Flush()
	took := time.Since(begin)
	for _, packet := range s.packets {
		packet.DecRef()
	}
	return took, nil
}

func (s *system) End(w *workload.Workload) (int, int) {
	// A flush takes one packet from each bucket.
	for before := -1; before != s.outputs; {
		before = s.outputs
		s.gro.Flush()
	}
	return s.outputs, s.delivered - s.outputs*w.HeadersLen
}
