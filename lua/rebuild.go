package lua

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"dibs/models"
)

const (
	// stageFields is the most fields that one command stages: some 100 µs of Redis.
	stageFields = 128
	// stageCommands is how many commands share a round trip, and stageCommandsPaced how many do while others claim. Redis serves
	// others between two of them.
	stageCommands      = 8
	stageCommandsPaced = 2
	// archivedField stands for archived claims among the records of users and of claims: no user and no claim is called so.
	archivedField = ""
	// stagedFor is how long staged records stay after their loader died.
	stagedFor = time.Hour
)

// Rebuild stages a campaign's claims beside what Redis holds of it, and puts them in force in one step, see Finish. It is for one
// goroutine.
type Rebuild struct {
	s        *Scripts
	campaign models.Campaign

	usersKey, keysKey string
	buffer            []any  // of fields and values for one key
	bytes             []byte // that buffer points into
	pipe              redis.Pipeliner
	queued            int // fields in pipe
	pace              *pace
	users             *UserRecords
	staged            staged
	started           map[string]bool // keys that have their expiry
	sets              []*redis.IntCmd // that stage claims, in pipe
	records           int64           // of claims that Redis staged; claims with the same idempotency key share one
	isArchived        bool            // units of claims without records are taken
}

// NewRebuild begins load c.Epoch of a campaign with the definition in c. It removes what earlier loads since epoch after staged and
// left. With replace, the load may replace a fenced campaign, and what is left of one.
func (s *Scripts) NewRebuild(ctx context.Context, c *models.Campaign, after int64, replace bool) (*Rebuild, error) {
	users, err := NewUserRecords(c, c.SyncedSeq)
	if err != nil {
		return nil, err
	}
	r := &Rebuild{
		s: s, campaign: *c, users: users, pipe: s.rdb.Pipeline(), started: make(map[string]bool), staged: staged{replace: replace},
	}
	r.usersKey, r.keysKey = s.KeysOf(c.ID).staged(c.Epoch)
	for epoch := max(after+1, c.Epoch-leftoversMax); epoch <= c.Epoch; epoch++ {
		users, keys := s.KeysOf(c.ID).staged(epoch)
		r.pipe.Unlink(ctx, users, keys)
	}
	r.pace = s.newPace(ctx, r.keysKey, 2*c.SyncedSeq) // a claim has a record, and its user has one
	return r, r.send(ctx)
}

// leftoversMax bounds how many earlier loads a loader cleans up. Older ones expire.
const leftoversMax = 16

// Add stages a claim. Claims come in order of seq.
func (r *Rebuild) Add(ctx context.Context, p *ClaimRecord) error {
	at := len(r.bytes)
	var err error
	r.bytes, err = appendRecord(r.bytes, p)
	if err != nil {
		return err
	}
	if r.campaign.Kind == models.KindPacket {
		r.bytes = append(strconv.AppendInt(append(r.bytes, ':'), p.Amount, 10), ':')
		r.bytes = append(r.bytes, p.PacketID...)
	} else if !p.Live {
		r.bytes = append(r.bytes, releasePending...)
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

// count adds a claim to what the campaign and its user hold.
func (r *Rebuild) count(p *ClaimRecord) {
	r.staged.seq = max(r.staged.seq, p.Seq)
	r.users.Add(p)
	if p.Live {
		r.staged.taken += p.Quantity
	}
}

// stage queues one command with what is buffered, and sends when enough commands are queued.
func (r *Rebuild) stage(ctx context.Context, key string) error {
	if len(r.buffer) == 0 {
		return nil
	}
	set := r.pipe.HSet(ctx, key, r.buffer...)
	if key == r.keysKey {
		r.sets = append(r.sets, set)
	}
	r.queued += len(r.buffer) / 2
	r.buffer = r.buffer[:0] // HSet has copied it; r.bytes stays until it is sent
	if !r.started[key] {
		r.started[key] = true
		r.pipe.PExpire(ctx, key, stagedFor)
	}
	if r.pipe.Len() >= r.pace.commands() {
		return r.send(ctx)
	}
	return nil
}

// send sends what is queued, and then waits as the pace requires.
func (r *Rebuild) send(ctx context.Context) error {
	if r.pipe.Len() == 0 {
		return nil
	}
	if _, err := r.pipe.Exec(ctx); err != nil {
		return classifyError("stage", err)
	}
	for _, set := range r.sets {
		r.records += set.Val()
	}
	r.sets = r.sets[:0]
	queued := r.queued
	r.queued = 0
	r.bytes = r.bytes[:0]
	return r.pace.after(ctx, queued)
}

// Position is what was staged so far: the load, and the highest seq in it. SetSeq raises the latter.
func (r *Rebuild) Position() Position { return Position{Epoch: r.campaign.Epoch, Seq: r.staged.seq} }

// SetSeq has the campaign go on after seq although no staged claim reaches it: the claims between are known to be lost.
func (r *Rebuild) SetSeq(seq int64) { r.staged.seq = max(r.staged.seq, seq) }

// AddArchived counts claims that were moved away: units of live ones, and how many were released. They have no records; a field
// without a name stands for them, because a campaign with units taken must have records.
func (r *Rebuild) AddArchived(units, released int64) {
	r.staged.taken += units
	r.staged.released += released
	r.isArchived = units > 0
}

// SetUnits has a shard begin with these units, and count these that it exchanged.
func (r *Rebuild) SetUnits(total int64, shares Shares) {
	r.campaign.Total = total
	r.staged.shares = shares
}

// Taken is the units of the live claims that were staged so far.
func (r *Rebuild) Taken() int64 { return r.staged.taken }

// Released is how many of the claims that were staged so far are released.
func (r *Rebuild) Released() int64 { return r.staged.released }

// Claims is how many claims were staged so far.
func (r *Rebuild) Claims() int64 { return r.staged.keys }

// Finish puts what was staged in force in one step, with the status that the campaign had in NewRebuild. loaded is false when Redis
// holds a load that may not be replaced; then nothing was changed. Errors as Load.
func (r *Rebuild) Finish(ctx context.Context) (loaded bool, err error) {
	nameless := int64(0)
	if r.isArchived {
		nameless = 1
		r.buffer = append(r.buffer, archivedField, "")
	}
	if err := r.stage(ctx, r.keysKey); err != nil {
		return false, err
	}
	for field, u := range r.users.byField {
		at := len(r.bytes)
		r.bytes = u.appendTo(r.bytes, r.users.limits.of(field))
		r.buffer = append(r.buffer, field, r.bytes[at:])
		if len(r.buffer) == 2*stageFields {
			if err := r.stage(ctx, r.usersKey); err != nil {
				return false, err
			}
		}
	}
	if r.isArchived {
		r.buffer = append(r.buffer, archivedField, "")
	}
	if err := r.stage(ctx, r.usersKey); err != nil {
		return false, err
	}
	if err := r.send(ctx); err != nil {
		return false, err
	}
	st := r.staged
	st.users = int64(len(r.users.byField)) + nameless
	st.keys = r.records
	return r.s.loadStaged(ctx, &r.campaign, &st)
}

// Drop removes what was staged.
func (r *Rebuild) Drop(ctx context.Context) error {
	r.pipe.Discard()
	return classifyError("unlink", r.s.rdb.Unlink(ctx, r.usersKey, r.keysKey).Err())
}
