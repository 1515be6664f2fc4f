// Command gvisor-tcp is gVisor's TCP as a peer of `wharf bench tcp-goodput`, as `stack.New` makes it.
//
// gvisor-tcp TAP OWN SERVER PORT send|receive BYTES: makes a TAP, says `ready`, and after a line on
// standard input connects, moves the bytes, and prints the seconds that it took as JSON. The last byte
// is sent when the server, which has read it, has closed as well.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/fdbased"
	"gvisor.dev/gvisor/pkg/tcpip/link/tun"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

const nic = 1

func main() {
	took, err := run(os.Args[1:])
	answer := map[string]any{"seconds": took.Seconds()}
	if err != nil {
		answer = map[string]any{"error": err.Error()}
	}
	line, _ := json.Marshal(answer)
	fmt.Println(string(line))
}

func run(words []string) (time.Duration, error) {
	if len(words) != 6 {
		return 0, fmt.Errorf("TAP OWN SERVER PORT send|receive BYTES")
	}
	own, err := netip.ParseAddr(words[1])
	if err != nil {
		return 0, err
	}
	server, err := netip.ParseAddr(words[2])
	if err != nil {
		return 0, err
	}
	port, err := strconv.ParseUint(words[3], 10, 16)
	if err != nil {
		return 0, err
	}
	bytes, err := strconv.ParseInt(words[5], 10, 64)
	if err != nil {
		return 0, err
	}
	network, err := newStack(words[0], own)
	if err != nil {
		return 0, err
	}
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return 0, err
	}
	to := tcpip.FullAddress{NIC: nic, Addr: tcpip.AddrFromSlice(server.AsSlice()), Port: uint16(port)}
	connection, err := gonet.DialContextTCP(context.Background(), network, to, ipv4.ProtocolNumber)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if words[4] == "send" {
		err = send(connection, bytes)
	} else {
		_, err = io.CopyN(io.Discard, connection, bytes)
	}
	return time.Since(began), err
}

// newStack is a stack on a TAP of its own.
func newStack(name string, own netip.Addr) (*stack.Stack, error) {
	tap, err := tun.OpenTAP(name)
	if err != nil {
		return nil, fmt.Errorf("cannot make a TAP: %w", err)
	}
	link, err := fdbased.New(&fdbased.Options{
		FDs: []int{tap}, MTU: 1500, EthernetHeader: true,
		Address: tcpip.LinkAddress([]byte{2, 0, 0, 0, 0, 1}),
	})
	if err != nil {
		return nil, err
	}
	network := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, arp.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol},
	})
	if err := network.CreateNIC(nic, link); err != nil {
		return nil, fmt.Errorf("%v", err)
	}
	address := tcpip.ProtocolAddress{
		Protocol: ipv4.ProtocolNumber,
		AddressWithPrefix: tcpip.AddressWithPrefix{
			Address: tcpip.AddrFromSlice(own.AsSlice()), PrefixLen: 24,
		},
	}
	if err := network.AddProtocolAddress(nic, address, stack.AddressProperties{}); err != nil {
		return nil, fmt.Errorf("%v", err)
	}
	network.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: nic}})
	return network, nil
}

// send sends so many bytes, and waits until the server has closed as well.
func send(connection *gonet.TCPConn, bytes int64) error {
	data := make([]byte, 256<<10)
	for bytes > 0 {
		sent, err := connection.Write(data[:min(bytes, int64(len(data)))])
		if err != nil {
			return err
		}
		bytes -= int64(sent)
	}
	if err := connection.CloseWrite(); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, connection)
	return err
}
