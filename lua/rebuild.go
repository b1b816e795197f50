package lua

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"dibs/models"
)

const (
	// stageFields is the most fields that one command stages: some 100 µs of Redis.
	stageFields = 128
	// stageCommands is how many of these share a round trip, and stageCommandsPaced how many do while others claim. Redis reads
	// them some at a time and serves others in between.
	stageCommands, stageCommandsPaced = 8, 2
	// stagedFor is how long staged records outlive a loader that died and that nobody followed.
	stagedFor = time.Hour
)

// ClaimRecord is a claim that MySQL holds, on its way back into Redis. Its bytes may be changed once it is added.
type ClaimRecord struct {
	ID, UserID []byte
	KeyDigest  []byte // see models.Event.Key
	Seq        int64
	Quantity   int64 // units
	At         time.Time
	Live       bool   // counts against stock and limits
	PacketID   []byte // of a packet campaign
	Amount     int64  // of the packet, in minor units
}

// Rebuild stages a campaign's claims beside what Redis holds of it, and puts them in force at once, see Finish. It is for
// one goroutine.
type Rebuild struct {
	s        *Scripts
	campaign models.Campaign
	days     dayFinder

	usersKey, keysKey string
	buffer            []any  // of fields and values for one key
	bytes             []byte // that buffer is made of
	pipe              redis.Pipeliner
	queued            int // fields in pipe
	pace              *pace
	users             map[string]*used
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
		s: s, campaign: *c, days: dayFinder{zone: zone}, pipe: s.rdb.Pipeline(), begun: make(map[string]bool), staged: staged{replace: replace},
		users: make(map[string]*used, min(c.SyncedSeq, usersGuessMost)),
	}
	r.usersKey, r.keysKey = s.KeysOf(c.ID).staged(c.Epoch)
	for epoch := max(after+1, c.Epoch-leftoversMax); epoch <= c.Epoch; epoch++ {
		users, keys := s.KeysOf(c.ID).staged(epoch)
		r.pipe.Unlink(ctx, users, keys)
	}
	r.pace = s.newPace(ctx, r.keysKey, 2*c.SyncedSeq) // a claim is a record of its own and one of a user
	return r, r.send(ctx)
}

// usersGuessMost bounds the room that is made for users before they are seen.
const usersGuessMost = 1 << 20

// leftoversMax bounds how many loads back a loader cleans up; older ones expire.
const leftoversMax = 16

// CheckPast tells whether Add would take a claim.
func CheckPast(p *ClaimRecord) error {
	_, err := appendRecord(nil, p)
	return err
}

// Add stages a claim. Claims come in order of seq.
func (r *Rebuild) Add(ctx context.Context, p *ClaimRecord) error {
	at := len(r.bytes)
	var err error
	if r.bytes, err = appendRecord(r.bytes, p); err != nil {
		return err
	}
	if r.campaign.Kind == models.KindPacket {
		r.bytes = append(strconv.AppendInt(append(r.bytes, ':'), p.Amount, 10), ':')
		r.bytes = append(r.bytes, p.PacketID...)
	} else if !p.Live {
		r.bytes = append(r.bytes, markByLoad...)
		r.staged.released++
	}
	r.buffer = append(r.buffer, r.bytes[at:at+keyLength], r.bytes[at+keyLength:])
	r.staged.keys++
	r.count(p)
	if len(r.buffer) == 2*stageFields {
		return r.stage(ctx, r.keysKey)
	}
	return nil
}

// count adds a claim to what its user holds.
func (r *Rebuild) count(p *ClaimRecord) {
	r.staged.seq = max(r.staged.seq, p.Seq)
	u := r.users[string(p.UserID)]
	if u == nil { // a user whose claims are all released has a record too, of nothing
		u = &used{}
		r.users[string(p.UserID)] = u
	}
	if day := r.days.of(p.At.UnixMilli()); day > u.day {
		u.day, u.onDay = day, 0 // by a claim that was released as well: its day had begun
	}
	if p.Live {
		r.staged.taken += p.Quantity
		u.total += p.Quantity
		u.onDay += p.Quantity // a user's days never go back
	}
}

// stage queues one command of what is buffered, and sends when enough are queued.
func (r *Rebuild) stage(ctx context.Context, key string) error {
	if len(r.buffer) == 0 {
		return nil
	}
	r.pipe.HSet(ctx, key, r.buffer...)
	r.queued += len(r.buffer) / 2
	r.buffer = r.buffer[:0] // HSet has copied it, and what it is made of stays until it is sent
	if !r.begun[key] {
		r.begun[key] = true
		r.pipe.PExpire(ctx, key, stagedFor)
	}
	if r.pipe.Len() >= r.pace.commands() {
		return r.send(ctx)
	}
	return nil
}

// send sends what is queued, and then lets others go first if need be.
func (r *Rebuild) send(ctx context.Context) error {
	if r.pipe.Len() == 0 {
		return nil
	}
	if _, err := r.pipe.Exec(ctx); err != nil {
		return sortError("stage", err)
	}
	queued := r.queued
	r.queued, r.bytes = 0, r.bytes[:0]
	return r.pace.after(ctx, queued)
}

// Position is what was staged so far: the load, and the highest seq in it. SetSeq raises the latter.
func (r *Rebuild) Position() Position { return Position{Epoch: r.campaign.Epoch, Seq: r.staged.seq} }

// SetSeq has the campaign go on after seq, though no claim that was staged reaches it: higher ones are known to be lost.
func (r *Rebuild) SetSeq(seq int64) { r.staged.seq = max(r.staged.seq, seq) }

// Taken is the units of the live claims that were staged so far.
func (r *Rebuild) Taken() int64 { return r.staged.taken }

// Released is how many of the claims that were staged so far had been released.
func (r *Rebuild) Released() int64 { return r.staged.released }

// Claims is how many were staged so far, and must all have had a key of their own.
func (r *Rebuild) Claims() int64 { return r.staged.keys }

// Finish puts what was staged in force in one step, with the status of the campaign that NewRebuild was given. loaded is
// false when Redis holds a load that may not be replaced; then nothing was changed. Errors as Load.
func (r *Rebuild) Finish(ctx context.Context) (loaded bool, err error) {
	if err := r.stage(ctx, r.keysKey); err != nil {
		return false, err
	}
	for user, u := range r.users {
		at := len(r.bytes)
		r.bytes = u.appendRecord(r.bytes)
		r.buffer = append(r.buffer, user, r.bytes[at:])
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

// appendRecord writes a user's record as claim.lua does: a bucket for each limit, in the order of its table.
func (u *used) appendRecord(b []byte) []byte {
	b = append(b, "0:"...)
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
