package workload

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"time"
)

const (
	ethernetLen = 14
	tcpLen      = 32
)

// Workload is one case of `wharf bench lro` at one setting.
type Workload struct {
	Segments, Orders, Payload, Burst, Lap, Flows int
	// Verify says whether TCP checksums are to be verified.
	Verify bool
	// Packet is the IP packet with source port and sequence number 0.
	Packet []byte
	// HeadersLen is the length of its IP and TCP headers.
	HeadersLen  int
	transportAt int
	sum         uint32
	order       []uint16
}

func parse(bytes []byte) (*Workload, error) {
	var numbers [10]uint32
	if len(bytes) < 4*len(numbers) {
		return nil, io.ErrUnexpectedEOF
	}
	for i := range numbers {
		numbers[i] = binary.LittleEndian.Uint32(bytes[4*i:])
	}
	bytes = bytes[4*len(numbers):]
	n := func(i int) int { return int(numbers[i]) }
	w := &Workload{Segments: n(0), Orders: n(1), Payload: n(2), Burst: n(3), Lap: n(4), Flows: n(7)}
	w.transportAt = n(5) - ethernetLen
	w.HeadersLen = w.transportAt + tcpLen
	w.sum = numbers[8]
	w.Verify = numbers[9] != 0
	orders := w.Segments * w.Orders
	if len(bytes) != 2*orders+n(6) {
		return nil, io.ErrUnexpectedEOF
	}
	w.order = make([]uint16, orders)
	for i := range w.order {
		w.order[i] = binary.LittleEndian.Uint16(bytes[2*i:])
	}
	w.Packet = bytes[2*orders+ethernetLen:]
	return w, nil
}

// IPv6 tells the version.
func (w *Workload) IPv6() bool { return w.Packet[0]>>4 == 6 }

// Stream is where in the endless stream of segments a system is.
type Stream struct {
	round, turn, flow int
}

func (s *Stream) next(w *Workload) (uint16, uint32) {
	flow := s.flow
	order := (flow + s.round) % w.Orders
	segment := uint32(s.round*w.Segments) + uint32(w.order[order*w.Segments+s.turn])
	s.flow++
	if s.flow == w.Flows {
		s.flow = 0
		s.turn++
		if s.turn == w.Segments {
			s.turn = 0
			s.round++
		}
	}
	return uint16(flow), segment * uint32(w.Payload)
}

// Write makes the beginning of packet that of the next segment.
func (w *Workload) Write(packet []byte, s *Stream) {
	copy(packet, w.Packet[:w.HeadersLen])
	flow, seq := s.next(w)
	tcp := packet[w.transportAt:]
	binary.BigEndian.PutUint16(tcp, flow)
	binary.BigEndian.PutUint32(tcp[4:], seq)
	// RFC 1624: the checksum moves with the words that change.
	sum := w.sum + uint32(flow) + seq>>16 + seq&0xffff
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	binary.BigEndian.PutUint16(tcp[16:], ^uint16(sum))
}

// A System is handed one burst after the other.
type System interface {
	// Begin prepares for a workload.
	Begin(*Workload)
	// Burst makes the next w.Burst packets ready, hands them over and lets everything go, and
	// says how long the last two took.
	Burst(*Workload, *Stream) (time.Duration, error)
	// End lets go of what is left and says how many packets, with how many bytes of payload, came
	// out since Begin.
	End(*Workload) (outputs, payload int)
}

// LRO runs a system with the segments that crates/bench/src/lro/workload.rs describes.
func LRO(system System) Bench {
	return func(bytes []byte, limit time.Duration) (Answer, error) {
		w, err := parse(bytes)
		if err != nil {
			return Answer{}, err
		}
		return run(system, w, limit)
	}
}

// run does laps for about this time; the fastest counts.
func run(system System, w *Workload, limit time.Duration) (Answer, error) {
	system.Begin(w)
	runtime.GC()
	best, packets := math.Inf(1), 0
	var s Stream
	for end := time.Now().Add(limit); packets == 0 || time.Now().Before(end); {
		var took time.Duration
		lap := 0
		for lap < w.Lap {
			burst, err := system.Burst(w, &s)
			if err != nil {
				return Answer{}, err
			}
			took += burst
			lap += w.Burst
		}
		best = min(best, float64(took.Nanoseconds())/float64(lap))
		packets += lap
	}
	outputs, payload := system.End(w)
	if payload != packets*w.Payload {
		return Answer{}, errors.New(fmt.Sprint("of ", packets*w.Payload, " bytes ", payload, " came out"))
	}
	return Answer{NsPerPacket: best, Packets: packets, Large: outputs}, nil
}
