// Package wireguardgo keeps wireguard-go among the modules of go.mod. The harness beside it is
// built as a test of package tun.
package wireguardgo

import _ "golang.zx2c4.com/wireguard/tun"
