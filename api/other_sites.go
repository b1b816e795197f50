package api

import (
	"net"
	"net/http"
	"strings"

	"dibs/api/wire"
)

// refuseOtherSites protects a service without tokens, which listens only on
// loopback, from the browser on the same machine. A page of another site may
// not post to it, nor read from it under a name that resolves to 127.0.0.1.
// With tokens this isn't needed: no page can make a browser send one.
func refuseOtherSites(but []string, next http.Handler) http.Handler {
	refuse := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		p := &wire.Problem{
			Code: wire.CodeForbidden, Detail: "Pages of other sites may not call a service without tokens. Set tokens, or call it as 127.0.0.1.",
		}
		p.Write(w)
	})
	origins := http.NewCrossOriginProtection()
	origins.SetDenyHandler(refuse)
	for _, origin := range but {
		if err := origins.AddTrustedOrigin(origin); err != nil {
			panic(err) // Config.Validate has refused it
		}
	}
	guarded := origins.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isLoopbackHost(r.Host) {
			refuse(w, r)
			return
		}
		guarded.ServeHTTP(w, r)
	})
}

func isLoopbackHost(host string) bool {
	if port, usual := strings.CutPrefix(host, "127.0.0.1:"); usual && isNumber(port) {
		return true // fast path
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	if host == "" || strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

func isNumber(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}
