package workload

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"time"
)

// SuperPacket is one case of `wharf bench gso` at one gso_size.
type SuperPacket struct {
	// Segments are to come out, of Size bytes of payload each, at most MTU long.
	Segments, Size, MTU int
	// HeadersLen is where in Packet the payload begins.
	HeadersLen int
	// VirtioNetHdr is that of the frame: its offsets count EthernetLen too.
	VirtioNetHdr []byte
	// Packet is the IP packet.
	Packet []byte
	// lap is how many super-packets make a lap.
	lap int
}

// EthernetLen is the length of the header that Packet does not have.
const EthernetLen = ethernetLen

// IPv6 tells the version.
func (s *SuperPacket) IPv6() bool { return s.Packet[0]>>4 == 6 }

const (
	superNumbers    = 6
	virtioNetHdrLen = 10
)

func parseSuperPacket(b []byte) (*SuperPacket, error) {
	if len(b) < 4*superNumbers+virtioNetHdrLen {
		return nil, io.ErrUnexpectedEOF
	}
	n := func(i int) int { return int(binary.LittleEndian.Uint32(b[4*i:])) }
	hdr := b[4*superNumbers:][:virtioNetHdrLen]
	frame := b[4*superNumbers+virtioNetHdrLen:]
	if len(frame) != n(5) || n(3) > len(frame) {
		return nil, io.ErrUnexpectedEOF
	}
	return &SuperPacket{
		Segments: n(0), Size: n(1), MTU: n(2), HeadersLen: n(3) - ethernetLen, lap: n(4),
		VirtioNetHdr: hdr, Packet: frame[ethernetLen:],
	}, nil
}

// A Splitter cuts one super-packet again and again.
type Splitter interface {
	// Begin prepares for a super-packet.
	Begin(*SuperPacket) error
	// Split cuts it and gives the number of segments.
	Split() (int, error)
	// Segment is one of those that the last Split gave.
	Segment(i int) []byte
}

// GSO runs a splitter with the super-packet that crates/bench/src/gso/workload.rs describes.
func GSO(splitter Splitter) Bench {
	return func(bytes []byte, limit time.Duration) (Answer, error) {
		s, err := parseSuperPacket(bytes)
		if err == nil {
			err = splitter.Begin(s)
		}
		if err == nil {
			err = check(splitter, s)
		}
		if err != nil {
			return Answer{}, err
		}
		return split(splitter, s, limit)
	}
}

// check says whether what comes out is the super-packet's payload in so many segments.
func check(splitter Splitter, s *SuperPacket) error {
	payload := append([]byte(nil), s.Packet[s.HeadersLen:]...)
	count, err := splitter.Split()
	if err != nil {
		return err
	}
	if count != s.Segments {
		return errors.New(fmt.Sprint(count, " segments instead of ", s.Segments))
	}
	var out []byte
	for i := range count {
		out = append(out, splitter.Segment(i)[s.HeadersLen:]...)
	}
	if !bytes.Equal(out, payload) {
		return errors.New("what came out is not what was to be cut")
	}
	return nil
}

// split does laps for about this time; the fastest counts.
func split(splitter Splitter, s *SuperPacket, limit time.Duration) (Answer, error) {
	runtime.GC()
	best, large := math.Inf(1), 0
	for end := time.Now().Add(limit); large == 0 || time.Now().Before(end); {
		begin := time.Now()
		for range s.lap {
			if _, err := splitter.Split(); err != nil {
				return Answer{}, err
			}
		}
		took := time.Since(begin)
		best = min(best, float64(took.Nanoseconds())/float64(s.lap*s.Segments))
		large += s.lap
	}
	return Answer{NsPerPacket: best, Packets: large * s.Segments, Large: large}, nil
}
