package api

import (
	"net"
	"net/http"
	"strings"

	"dibs/api/wire"
)

// refuseOtherSites guards a service without tokens, which listens on
// loopback only, against the browser on the same machine: a page of
// another site may neither post here nor, by a name of its own that
// resolves to 127.0.0.1, read here. With tokens this is not needed: no
// page can make a browser send one.
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

// isLoopbackHost reports whether a Host header names this machine itself.
func isLoopbackHost(host string) bool {
	if port, usual := strings.CutPrefix(host, "127.0.0.1:"); usual && isNumber(port) {
		return true // the usual case, without the cost of the others
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
