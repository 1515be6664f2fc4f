//go:build linux

package tun

// wireguard-go's GSO as a peer of `wharf bench gso`: gsoSplit, which is what NativeTun.Read does
// with a super-packet once it has looked at its headers. It writes whole IP packets into buffers
// of their own and computes their checksums.

import "wharf.invalid/peers/workload"

type splitter struct {
	packet  []byte
	hdr     virtioNetHdr
	buffers [][]byte
	sizes   []int
	isV6    bool
}

func (s *splitter) Begin(w *workload.SuperPacket) error {
	if err := s.hdr.decode(w.VirtioNetHdr); err != nil {
		return err
	}
	s.hdr.hdrLen -= workload.EthernetLen
	s.hdr.csumStart -= workload.EthernetLen
	s.packet, s.isV6 = w.Packet, w.IPv6()
	s.buffers = make([][]byte, w.Segments)
	for i := range s.buffers {
		s.buffers[i] = make([]byte, w.MTU)
	}
	s.sizes = make([]int, w.Segments)
	return nil
}

func (s *splitter) Split() (int, error) {
	return gsoSplit(s.packet, s.hdr, s.buffers, s.sizes, 0, s.isV6)
}

func (s *splitter) Segment(i int) []byte { return s.buffers[i][:s.sizes[i]] }
