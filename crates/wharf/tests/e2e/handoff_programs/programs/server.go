// A server of HTTP: files, what was posted, and the names of a connection's ends.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
)

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
	fmt.Fprintln(os.Stderr, http.ListenAndServe(":"+os.Args[1], nil))
}
