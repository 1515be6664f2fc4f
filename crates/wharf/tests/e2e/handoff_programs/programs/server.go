// A server of HTTP: files, what was posted, and the names of a connection's ends.
package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"time"
)

// A certificate that nobody has signed.
func certificate() tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	what := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	bytes, err := x509.CreateCertificate(rand.Reader, what, what, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{bytes}, PrivateKey: key}
}

func main() {
	files := http.FileServer(http.Dir("."))
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" {
			body, err := io.ReadAll(r.Body)
			if err == nil {
				w.Header().Set("Content-Length", fmt.Sprint(len(body)))
				w.Write(body)
			}
			return
		}
		files.ServeHTTP(w, r)
	})
	// What comes goes back as it comes. HTTP/1 of Go has no such thing.
	http.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		io.Copy(w, r.Body)
	})
	http.HandleFunc("/names", func(w http.ResponseWriter, r *http.Request) {
		local := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		fmt.Fprintf(w, "%s %s", local, r.RemoteAddr)
	})
	// What is asked of another server goes there, and its answer back.
	http.HandleFunc("/from", func(w http.ResponseWriter, r *http.Request) {
		answer, err := http.Get(r.URL.Query().Get("url"))
		if err != nil {
			fmt.Fprintf(w, "error: %s", err)
			return
		}
		io.Copy(w, answer.Body)
		answer.Body.Close()
	})
	if len(os.Args) > 2 {
		// HTTP/2, as clients want it.
		config := &tls.Config{Certificates: []tls.Certificate{certificate()}}
		server := &http.Server{Addr: ":" + os.Args[2], TLSConfig: config}
		go server.ListenAndServeTLS("", "")
	}
	fmt.Fprintln(os.Stderr, http.ListenAndServe(":"+os.Args[1], nil))
}
