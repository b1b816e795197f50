package redisconn

import (
	"context"
	"net"
)

// DialNode dials a node of the cluster behind a URL.
func DialNode(ctx context.Context, url, addr string) (net.Conn, error) {
	t, err := load(url)
	if err != nil {
		return nil, err
	}
	return dialCluster(t.options(connecting{}))(ctx, "tcp", addr)
}
