package auth

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
)

var (
	// ErrAddr means an unreadable address.
	ErrAddr = errors.New("auth: bad address")
	// ErrListen means the address needs tokens.
	ErrListen = errors.New("auth: refusing to listen beyond loopback without tokens")
	// ErrPlain means the address needs TLS.
	ErrPlain = errors.New("auth: refusing to listen beyond loopback without TLS")
)

// Door is where and how a process listens.
type Door struct {
	Addr     string // host:port
	TLS      bool
	Insecure bool // plain HTTP beyond loopback is allowed
}

// Check refuses unreadable addresses. It refuses an address that other
// machines can reach if no token is set, or if tokens would be sent in clear
// without Insecure. Errors: ErrAddr, ErrListen, ErrPlain, *SettingError.
func (d Door) Check(tokens Tokens) error {
	home, err := isHome(d.Addr)
	switch {
	case err != nil:
		return err
	case !home && tokens.none():
		return fmt.Errorf("%w: %q: set a token or listen on 127.0.0.1", ErrListen, d.Addr)
	case !home && !d.TLS && !d.Insecure:
		return fmt.Errorf("%w: %q: set DIBS_TLS_CERT and DIBS_TLS_KEY; or DIBS_INSECURE=1, if what is between the callers and this "+
			"process is trusted with tokens in clear, such as a proxy with TLS on a network of its own", ErrPlain, d.Addr)
	}
	if err := tokens.JWT.check(); err != nil {
		return err
	}
	_, err = tokens.read(shortest(home))
	return err
}

func shortest(home bool) int {
	if home {
		return 0
	}
	return ShortestOffLoopback
}

// isHome reports whether only this machine can reach an address. A host
// name other than localhost isn't home: what it resolves to may change.
func isHome(addr string) (bool, error) {
	host, port, err := net.SplitHostPort(addr)
	if err == nil {
		// a number, or a name in this machine's list
		_, err = net.DefaultResolver.LookupPort(context.Background(), "tcp", port)
	}
	if err != nil {
		return false, fmt.Errorf("%w: %q: %w", ErrAddr, addr, err)
	}
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback(), nil
}
