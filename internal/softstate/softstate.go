// Package softstate holds what Dibs' processes share through
// Redis apart from claims: running processes, counts of replies,
// users' attempts and ended sessions.
//
// All of it expires. No claim depends on it. So lost state is
// not restored, and errors of Redis may be ignored.
package softstate

import (
	"github.com/redis/go-redis/v9"

	"dibs/lua"
)

// Store is the soft state in one Redis. It is safe for concurrent use.
type Store struct {
	rdb     redis.UniversalClient
	scripts *lua.Scripts
}

// New makes a Store for scripts on the same client.
func New(rdb redis.UniversalClient, scripts *lua.Scripts) *Store { return &Store{rdb, scripts} }

const processesKey = "dibs:processes" // a set of process ids

func processKey(id string) string { return "dibs:process:" + id }

func endedSessionKey(id string) string { return "dibs:signed-out:" + id }

// answersKey has the hash tag of the campaign's other keys, so
// that Watch reads both from one server.
func answersKey(k *lua.CampaignKeys) string { return k.State + ":answers" }
