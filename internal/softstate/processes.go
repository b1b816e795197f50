package softstate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"dibs/lua"
	"dibs/models"
)

// processFor is how long a silent process is remembered.
const processFor = time.Hour

// Process is a running Dibs process, as announced by itself.
type Process struct {
	ID        string      `json:"id"` // of this run
	Role      string      `json:"role"`
	Name      string      `json:"name"`
	Version   string      `json:"version"`
	Host      string      `json:"host"`
	StartedAt models.Time `json:"started_at"`
	// Durability is that of its answered claims; "" if it answers none.
	Durability lua.Durability `json:"durability,omitempty"`

	Silent time.Duration `json:"-"` // since its last announcement, by Redis' clock
}

// Announce records a running process.
func (s *Store) Announce(ctx context.Context, p *Process) error {
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	_, err = s.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Set(ctx, processKey(p.ID), text, processFor)
		pipe.SAdd(ctx, processesKey, p.ID)
		return nil
	})
	return err
}

// Withdraw removes an ending process.
func (s *Store) Withdraw(ctx context.Context, id string) error {
	_, err := s.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Del(ctx, processKey(id))
		pipe.SRem(ctx, processesKey, id)
		return nil
	})
	return err
}

// Processes lists the processes announced within the last hour,
// by role and name.
func (s *Store) Processes(ctx context.Context) ([]Process, error) {
	ids, err := s.rdb.SMembers(ctx, processesKey).Result()
	if err != nil {
		return nil, err
	}
	texts := make([]*redis.StringCmd, len(ids))
	left := make([]*redis.DurationCmd, len(ids))
	_, err = s.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i, id := range ids {
			texts[i] = pipe.Get(ctx, processKey(id))
			left[i] = pipe.PTTL(ctx, processKey(id))
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, err
	}
	var all []Process
	for i, id := range ids {
		var p Process
		if json.Unmarshal([]byte(texts[i].Val()), &p) != nil { // it expired
			_ = s.rdb.SRem(ctx, processesKey, id).Err() // the next call retries
			continue
		}
		p.Silent = max(0, processFor-left[i].Val())
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b Process) int {
		return slices.Compare([]string{a.Role, a.Name, a.ID}, []string{b.Role, b.Name, b.ID})
	})
	return all, nil
}

// runningWithin is the greatest age of a running process's announcement.
const runningWithin = 10 * time.Second

// Running describes a running process, or returns "".
func (s *Store) Running(ctx context.Context) (string, error) {
	processes, err := s.Processes(ctx)
	if err != nil {
		return "", err
	}
	for i := range processes {
		if p := &processes[i]; p.Silent < runningWithin {
			return fmt.Sprintf("a running `dibs %s` called %s on %s", p.Role, p.Name, p.Host), nil
		}
	}
	return "", nil
}
