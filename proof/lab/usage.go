package lab

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// usage is what the two servers have done so far.
type usage struct {
	redisCPU   time.Duration // of the whole server
	statements int64         // that clients sent to MySQL
}

// readUsage reads the servers' own counters. On servers that others use too, theirs are in it.
func (e *Env) readUsage(ctx context.Context) (usage, error) {
	info, err := e.Redis.InfoMap(ctx, "cpu").Result()
	if err != nil {
		return usage{}, fmt.Errorf("lab: redis usage: %w", err)
	}
	var u usage
	for _, field := range []string{"used_cpu_sys", "used_cpu_user"} {
		seconds, err := strconv.ParseFloat(info["CPU"][field], 64)
		if err != nil {
			return usage{}, fmt.Errorf("lab: redis usage: %w", err)
		}
		u.redisCPU += time.Duration(seconds * float64(time.Second))
	}
	var name string
	if err := e.DB.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Questions'").Scan(&name, &u.statements); err != nil {
		return usage{}, fmt.Errorf("lab: mysql usage: %w", err)
	}
	return u, nil
}

// since is what was done between two readings, without the second reading itself.
func (u usage) since(before usage) usage {
	return usage{redisCPU: u.redisCPU - before.redisCPU, statements: max(u.statements-before.statements-1, 0)}
}
