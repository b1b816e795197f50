package auth

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
)

var (
	// ErrAddr says that an address can't be read.
	ErrAddr = errors.New("auth: bad address")
	// ErrListen says that an address may not be listened on without
	// tokens.
	ErrListen = errors.New("auth: refusing to listen beyond loopback without tokens")
	// ErrPlain says that an address may not be listened on without TLS.
	ErrPlain = errors.New("auth: refusing to listen beyond loopback without TLS")
)

// Door is where a process listens, and how.
type Door struct {
	Addr     string // host:port
	TLS      bool
	Insecure bool // plain HTTP beyond loopback is meant
}

// Check refuses an address that can't be read, and, when no token is set,
// one that other machines may reach; so it does when tokens would go there
// in clear and no one said that they may. Errors: ErrAddr, ErrListen,
// ErrPlain, *SettingError.
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

// isHome reports whether no one but this machine reaches an address. A
// host name other than localhost is not taken for home: what it resolves
// to may change.
func isHome(addr string) (bool, error) {
	host, port, err := net.SplitHostPort(addr)
	if err == nil {
		// a number, or a name of this machine's list
		_, err = net.DefaultResolver.LookupPort(context.Background(), "tcp", port)
	}
	if err != nil {
		return false, fmt.Errorf("%w: %q: %w", ErrAddr, addr, err)
	}
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback(), nil
}
