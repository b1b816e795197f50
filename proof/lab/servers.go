package lab

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"dibs/internal/testenv"
)

// ErrNoServer says what to install.
var ErrNoServer = errors.New("lab: a server is missing")

// servers are a Redis and a MySQL: the ones that were given, or ones of the lab's own in a temporary folder.
type servers struct {
	*testenv.Program // ends those that were started

	place Place
}

// openServers starts the servers of which p has no address: a Redis that keeps everything in memory, as Dibs' durability "fast" supposes
// at the least, and a MariaDB whose commits are on disk before they are answered.
func openServers(ctx context.Context, p Place) (*servers, error) {
	s := &servers{Program: testenv.NewProgram(ctx), place: p}
	err := s.Try(func() {
		if p.RedisURL == "" {
			s.place.RedisURL = testenv.Redis(s).URL()
		}
		if p.MySQLDSN == "" {
			s.place.MySQLDSN = testenv.SQLServer(s, "--datadir="+filepath.Join(s.TempDir(), "mysql"), "--max-connections=2100",
				"--innodb-buffer-pool-size=256M").DSN("")
		}
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w; or set DIBS_REDIS_URL and DIBS_MYSQL_DSN", ErrNoServer, err), s.Close())
	}
	return s, nil
}
