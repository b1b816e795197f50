package lua

import (
	"context"
	"encoding/base64"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"dibs/models"
)

const (
	// stageFields is the most fields that one command stages: some 50 µs of Redis.
	stageFields = 128
	// stageCommands is how many of these share a round trip. Redis reads them some at a time and serves others in between.
	stageCommands = 8
	// stagedFor is how long staged records outlive a loader that died and that nobody followed.
	stagedFor = time.Hour
)

// Past is a claim that MySQL holds, on its way back into Redis.
type Past struct {
	ID, UserID string
	KeyDigest  string // see models.Event.Key
	Seq        int64
	Quantity   int64 // units
	At         time.Time
	Live       bool // counts against stock and limits
}

// Rebuild stages a campaign's claims beside what Redis holds of it, and puts them in force at once, see Finish. It is for
// one goroutine.
type Rebuild struct {
	s        *Scripts
	campaign models.Campaign
	zone     *time.Location
	table    days

	usersKey, keysKey string
	buffer            []any // of fields and values for keysKey
	pipe              redis.Pipeliner
	users             map[string]used
	staged            staged
	begun             map[string]bool // keys that have their expiry
}

// used is what a user holds: in all, and on the newest day.
type used struct{ total, day, onDay int64 }

// NewRebuild begins load c.Epoch of a campaign with the definition in c. What earlier loads since epoch after staged and
// left is taken away. replace lets a campaign that is fenced, and what is left of one, give way.
func (s *Scripts) NewRebuild(ctx context.Context, c *models.Campaign, after int64, replace bool) (*Rebuild, error) {
	zone, err := c.Location()
	if err != nil {
		return nil, fmt.Errorf("lua: campaign %s: %w", c.ID, err)
	}
	r := &Rebuild{
		s: s, campaign: *c, zone: zone, pipe: s.rdb.Pipeline(), users: make(map[string]used), begun: make(map[string]bool),
		staged: staged{replace: replace},
	}
	r.usersKey, r.keysKey = s.KeysOf(c.ID).staged(c.Epoch)
	for epoch := max(after+1, c.Epoch-leftoversMax); epoch <= c.Epoch; epoch++ {
		users, keys := s.KeysOf(c.ID).staged(epoch)
		r.pipe.Unlink(ctx, users, keys)
	}
	return r, r.send(ctx)
}

// leftoversMax bounds how many loads back a loader cleans up; older ones expire.
const leftoversMax = 16

// Add stages a claim. Claims come in order of seq.
func (r *Rebuild) Add(ctx context.Context, p *Past) error {
	id, err := uuid.Parse(p.ID)
	if err != nil {
		return fmt.Errorf("lua: claim %.64q: %w", p.ID, err)
	}
	req := ClaimRequest{ID: id, UserID: p.UserID, Quantity: p.Quantity}
	body := bodyDigest(&req)
	field, record := string(id[:]), make([]byte, 0, 64)
	record = append(record, body[:]...)
	if p.KeyDigest != "" {
		digest, err := base64.RawURLEncoding.DecodeString(p.KeyDigest)
		if err != nil || len(digest) != keyLength {
			return fmt.Errorf("lua: claim %s: key digest %.64q is none", p.ID, p.KeyDigest)
		}
		field, record = string(digest), append(record, id[:]...)
	}
	record = strconv.AppendInt(record, p.Seq, 10)
	record = append(record, ':')
	record = strconv.AppendInt(record, p.At.UnixMilli(), 10)
	r.buffer = append(r.buffer, field, record)
	r.staged.keys++
	r.count(p)
	if len(r.buffer) == 2*stageFields {
		return r.stage(ctx, r.keysKey)
	}
	return nil
}

// count adds a claim to what its user holds.
func (r *Rebuild) count(p *Past) {
	r.staged.seq = max(r.staged.seq, p.Seq)
	u := r.users[p.UserID] // a user whose claims are all released has a record too, of nothing
	if p.Live {
		r.staged.taken += p.Quantity
		u.total += p.Quantity
		if day := r.dayOf(p.At.UnixMilli()); day > u.day {
			u.day, u.onDay = day, 0
		}
		u.onDay += p.Quantity // a user's days never go back
	}
	r.users[p.UserID] = u
}

// dayOf is the day that claim.lua found the moment in.
func (r *Rebuild) dayOf(ms int64) int64 {
	if ms < r.table.starts[daysBefore] || ms >= r.table.starts[daysBefore+1] {
		r.table = daysAround(time.UnixMilli(ms), r.zone)
	}
	for i := len(r.table.starts) - 2; i > 0; i-- {
		if ms >= r.table.starts[i] {
			return r.table.first + int64(i)
		}
	}
	return r.table.first
}

// stage queues one command of what is buffered, and sends when enough are queued.
func (r *Rebuild) stage(ctx context.Context, key string) error {
	if len(r.buffer) == 0 {
		return nil
	}
	r.pipe.HSet(ctx, key, r.buffer...)
	r.buffer = r.buffer[:0]
	if !r.begun[key] {
		r.begun[key] = true
		r.pipe.PExpire(ctx, key, stagedFor)
	}
	if r.pipe.Len() >= stageCommands {
		return r.send(ctx)
	}
	return nil
}

func (r *Rebuild) send(ctx context.Context) error {
	if r.pipe.Len() == 0 {
		return nil
	}
	if _, err := r.pipe.Exec(ctx); err != nil {
		return sortError("stage", err)
	}
	return nil
}

// Seen is what was staged so far: the load, and the highest seq in it. SetSeq raises the latter.
func (r *Rebuild) Seen() Seen { return Seen{Epoch: r.campaign.Epoch, Seq: r.staged.seq} }

// SetSeq has the campaign go on after seq, though no claim that was staged reaches it: higher ones are known to be lost.
func (r *Rebuild) SetSeq(seq int64) { r.staged.seq = max(r.staged.seq, seq) }

// Taken is the units of the live claims that were staged so far.
func (r *Rebuild) Taken() int64 { return r.staged.taken }

// Claims is how many were staged so far, and must all have had a key of their own.
func (r *Rebuild) Claims() int64 { return r.staged.keys }

// Finish puts what was staged in force in one step, with the status of the campaign that NewRebuild was given. loaded is
// false when Redis holds a load that may not be replaced; then nothing was changed. Errors as Load.
func (r *Rebuild) Finish(ctx context.Context) (loaded bool, err error) {
	if err := r.stage(ctx, r.keysKey); err != nil {
		return false, err
	}
	for user, u := range r.users {
		r.buffer = append(r.buffer, user, u.record())
		if len(r.buffer) == 2*stageFields {
			if err := r.stage(ctx, r.usersKey); err != nil {
				return false, err
			}
		}
	}
	if err := r.stage(ctx, r.usersKey); err != nil {
		return false, err
	}
	if err := r.send(ctx); err != nil {
		return false, err
	}
	r.staged.users = int64(len(r.users))
	return r.s.loadStaged(ctx, &r.campaign, &r.staged)
}

// record is a user's record as claim.lua writes it: a bucket for each limit, in the order of its table.
func (u used) record() []byte {
	b := append(make([]byte, 0, 32), "0:"...)
	b = strconv.AppendInt(b, u.total, 10)
	b = append(b, ';')
	b = strconv.AppendInt(b, u.day, 10)
	b = append(b, ':')
	return strconv.AppendInt(b, u.onDay, 10)
}

// Drop takes away what was staged.
func (r *Rebuild) Drop(ctx context.Context) error {
	r.pipe.Discard()
	if err := r.s.rdb.Unlink(ctx, r.usersKey, r.keysKey).Err(); err != nil {
		return sortError("unlink", err)
	}
	return nil
}
