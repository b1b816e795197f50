package lua

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// fieldInstallation is the field of InfoKey that identifies the
// installation of the data.
const fieldInstallation = "installation"

// setInstallation sets the installation if it is
// the expected one. It returns the current one.
const setInstallation = `
local now = redis.call('HGET', KEYS[1], ARGV[1]) or ''
if now ~= ARGV[2] then return {0, now} end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return {0, ARGV[3]}
`

// Installation returns the installation that
// Redis belongs to, or "". Errors as State.
func (s *Scripts) Installation(ctx context.Context) (string, error) {
	id, err := s.rdb.HGet(ctx, InfoKey, fieldInstallation).Result()
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	return id, classifyError("installation", err)
}

// SetInstallation replaces installation from by to, and returns the
// current one. Errors as State.
func (s *Scripts) SetInstallation(ctx context.Context, from, to string) (now string, err error) {
	_, reply, err := s.run(ctx, "installation", []string{InfoKey}, []any{fieldInstallation, from, to})
	if err != nil {
		return "", err
	}
	if len(reply) == 2 {
		if now, ok := reply[1].(string); ok {
			return now, nil
		}
	}
	return "", badReply("installation", reply)
}

// HasData returns what data Redis has: events in a claim stream, or
// lots. "" is none. Errors as State.
func (s *Scripts) HasData(ctx context.Context) (string, error) {
	pipe := s.rdb.Pipeline()
	streams := make([]*redis.XInfoStreamCmd, PartitionsMax)
	for n := range streams {
		streams[n] = pipe.XInfoStream(ctx, StreamKey(n))
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for n, stream := range streams {
		info, err := stream.Result()
		switch {
		case err == nil && (info.Length > 0 || info.LastGeneratedID != "" && info.LastGeneratedID != "0-0"): // embedded: ""
			return "events in " + StreamKey(n), nil
		case err != nil && !strings.Contains(err.Error(), "no such key"):
			return "", classifyError("xinfo", err)
		}
	}
	var found atomic.Bool
	err := s.scanLots(ctx, func(string) (more bool) {
		found.Store(true)
		return false
	})
	if !found.Load() {
		return "", err
	}
	return "campaigns", nil
}
