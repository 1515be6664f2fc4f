// A client of HTTP/2: streams at a time in one connection, which ask for a file and send it to and fro. It goes on where it
// is told to by SIGHUP.
package main

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

const (
	gets = 3
	// Bytes with which a stream has begun.
	few = 64 << 10
)

var (
	client      *http.Client
	connections sync.Map
)

func is(right bool, what ...any) {
	if !right {
		fmt.Println(append([]any{"wrong:"}, what...)...)
		os.Exit(1)
	}
}

// What a file of this folder has.
func file(name string) []byte {
	all, err := os.ReadFile(name)
	is(err == nil, err)
	return all
}

// The connections that there were.
func count() (all int) {
	connections.Range(func(any, any) bool {
		all++
		return true
	})
	return all
}

func ask(url string, sent []byte) io.ReadCloser {
	method, body := "GET", io.Reader(nil)
	if sent != nil {
		method, body = "POST", bytes.NewReader(sent)
	}
	request, err := http.NewRequest(method, url, body)
	is(err == nil, err)
	trace := &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) {
		connections.Store(got.Conn.LocalAddr().String(), true)
	}}
	answer, err := client.Do(request.WithContext(httptrace.WithClientTrace(request.Context(), trace)))
	is(err == nil, err)
	is(answer.StatusCode == 200 && answer.Proto == "HTTP/2.0", answer.Status, answer.Proto)
	return answer.Body
}

func main() {
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGHUP)
	url, short, long := os.Args[1], os.Args[2], os.Args[3]
	config := &tls.Config{InsecureSkipVerify: true}
	client = &http.Client{Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}}
	asks := func() {
		got, err := io.ReadAll(ask(url+short, nil))
		is(err == nil && bytes.Equal(got, file(short)), "another file", err)
		fmt.Println("one answer, by", count(), "connection")
	}
	asks()
	<-told
	all := file(long)
	var begun, ended sync.WaitGroup
	goes := make(chan bool)
	for number := 0; number <= gets; number++ {
		begun.Add(1)
		ended.Add(1)
		go func(is_post bool) {
			defer ended.Done()
			var body io.ReadCloser
			if is_post {
				body = ask(url+"echo", all)
			} else {
				body = ask(url+long, nil)
			}
			got := make([]byte, len(all))
			read := func(from, to int) {
				count, err := io.ReadFull(body, got[from:to])
				is(err == nil, "the end after", from+count, err)
			}
			read(0, few)
			begun.Done()
			read(few, len(all)/2)
			<-goes
			read(len(all)/2, len(all))
			rest, err := io.ReadAll(body)
			is(err == nil && len(rest) == 0, "more bytes", len(rest), err)
			is(bytes.Equal(got, all), "other bytes")
		}(number == gets)
	}
	begun.Wait()
	fmt.Println("all streams have begun")
	<-told
	close(goes)
	ended.Wait()
	fmt.Println("all bytes, by", count(), "connection")
	for range told {
		asks()
	}
}
