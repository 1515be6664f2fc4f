// Package workload is what the Go peers of `wharf bench` have in common: what they are given, and
// the conversation with wharf, which crates/bench/src/peers/process.rs describes.
package workload

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"
)

// Answer is what a bench gave.
type Answer struct {
	// NsPerPacket is that of the fastest lap.
	NsPerPacket float64 `json:"ns_per_packet"`
	// Packets are those of the wire's size, Large what they became or came from.
	Packets int    `json:"packets"`
	Large   int    `json:"large"`
	Error   string `json:"error,omitempty"`
}

// A Bench runs the workload that lies in these bytes for about this time.
type Bench func(bytes []byte, limit time.Duration) (Answer, error)

// Serve does what wharf asks for, by the names of benches, until it asks no more.
func Serve(benches map[string]Bench) {
	// Garbage is collected between two questions only.
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(2 << 30)
	input := bufio.NewReader(os.Stdin)
	for {
		var name string
		var millis, size int
		if _, err := fmt.Fscanf(input, "%s %d %d\n", &name, &millis, &size); err != nil {
			return
		}
		bytes := make([]byte, size)
		if _, err := io.ReadFull(input, bytes); err != nil {
			return
		}
		answer, err := Answer{}, errors.New("it has no bench of that name")
		if bench, ok := benches[name]; ok {
			answer, err = bench(bytes, time.Duration(millis)*time.Millisecond)
		}
		if err != nil {
			answer = Answer{Error: err.Error()}
		}
		line, _ := json.Marshal(answer)
		fmt.Println(string(line))
	}
}
