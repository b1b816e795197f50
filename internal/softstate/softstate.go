// Package softstate holds what the processes of Dibs share through Redis beside
// the claims: which of them run, how claims are answered, how often users try,
// which sessions have ended.
//
// All of it expires by itself. No claim depends on it, so what is lost is not
// restored, and an error of Redis may be ignored.
package softstate

import (
	"github.com/redis/go-redis/v9"

	"dibs/lua"
)

// Store is the soft state in one Redis. Any number of goroutines may share it.
type Store struct {
	rdb     redis.UniversalClient
	scripts *lua.Scripts
}

// New makes a Store beside scripts that run on the same client.
func New(rdb redis.UniversalClient, scripts *lua.Scripts) *Store { return &Store{rdb, scripts} }

const processesKey = "dibs:processes" // a set of ids of processes

func processKey(id string) string { return "dibs:process:" + id }

func endedSessionKey(id string) string { return "dibs:signed-out:" + id }

// answersKey has the tag of the campaign's other keys, so that Watch asks one
// server for both.
func answersKey(k *lua.CampaignKeys) string { return k.State + ":answers" }
