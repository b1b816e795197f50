package lua

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"dibs/models"
)

const (
	// stageFields bounds the fields of a command: some 100 µs of Redis.
	stageFields = 128
	// stageCommands is how many commands share a round
	// trip. It is stageCommandsPaced while others
	// claim. Redis serves others between two commands.
	stageCommands      = 8
	stageCommandsPaced = 2
	// namelessField stands for claims without a
	// record. No user and no claim has that name.
	namelessField = ""
	// stagedFor is how long staged records stay after their loader died.
	stagedFor = time.Hour
)

// Staging stages a lot beside its live keys, and loads
// it in one step. It counts Taken and Released; the
// caller sets the rest of Load. It serves one goroutine.
type Staging struct {
	Load

	s *Scripts

	usersKey, keysKey, wavesKey string

	buffer  []any  // of fields and values for one key
	bytes   []byte // the memory of buffer
	pipe    redis.Pipeliner
	queued  int // fields and packets in pipe
	pace    *pace
	records *UserRecords
	started map[string]bool // keys with an expiry
	sets    []*redis.IntCmd // of claims, in pipe
}

// NewStaging starts load c.Epoch of a lot of about claims claims.
func (s *Scripts) NewStaging(ctx context.Context, c *models.Campaign, claims int64) (*Staging, error) {
	records, err := NewUserRecords(c, claims)
	if err != nil {
		return nil, err
	}
	r := &Staging{Load: Load{Campaign: c}, s: s, records: records}
	r.pipe = s.rdb.Pipeline()
	r.started = make(map[string]bool)
	r.usersKey, r.keysKey, r.wavesKey = s.KeysOf(c.ID).staged(c.Epoch)
	r.pace = s.newPace(ctx, r.keysKey, 2*claims) // one for the claim, one for its user
	return r, nil
}

// Add stages a claim. Claims are added in order of seq.
func (r *Staging) Add(ctx context.Context, p *ClaimRecord) error {
	at := len(r.bytes)
	var err error
	r.bytes, err = appendRecord(r.bytes, p)
	if err != nil {
		return err
	}
	if r.Campaign.Kind == models.KindPacket {
		r.bytes = append(strconv.AppendInt(append(r.bytes, ':'), p.Amount, 10), ':')
		r.bytes = append(r.bytes, p.PacketID...)
	}
	if !p.Live {
		r.Released++
		if r.Campaign.Kind != models.KindPacket {
			r.bytes = append(r.bytes, releaseDone...)
		}
	}
	r.buffer = append(r.buffer, r.bytes[at:at+keyLength], r.bytes[at+keyLength:])
	r.records.Add(p)
	r.lastMs = max(r.lastMs, p.At.UnixMilli())
	if p.Live {
		r.Taken += p.Quantity
	}
	if len(r.buffer) == 2*stageFields {
		return r.stage(ctx, r.keysKey)
	}
	return nil
}

// AddPacket stages a free packet. Packets are added in order of position.
func (r *Staging) AddPacket(ctx context.Context, p *models.Packet, releaseMs int64) error {
	list := r.s.KeysOf(r.Campaign.ID).Packets(r.Campaign.Epoch, releaseMs)
	r.pipe.RPush(ctx, list, packetEntry(p))
	if !r.started[list] {
		r.started[list] = true
		r.pipe.PExpire(ctx, list, stagedFor)
		r.pipe.ZAdd(ctx, r.wavesKey, redis.Z{Score: float64(releaseMs), Member: list})
		r.pipe.PExpire(ctx, r.wavesKey, stagedFor)
	}
	r.packets++
	r.queued++
	if r.queued < PushMax {
		return nil
	}
	return r.send(ctx)
}

// SetLoad sets the parts of the load that are not staged.
func (r *Staging) SetLoad(l *Load) {
	l.users = r.users
	l.keys = r.keys
	l.packets = r.packets
	l.lastMs = r.lastMs
	r.Load = *l
}

// SetPushed sets the last position of the load's packets.
func (r *Staging) SetPushed(position int64) { r.pushed = position }

func (r *Staging) stage(ctx context.Context, key string) error {
	if len(r.buffer) == 0 {
		return nil
	}
	set := r.pipe.HSet(ctx, key, r.buffer...)
	if key == r.keysKey {
		r.sets = append(r.sets, set)
	}
	r.queued += len(r.buffer) / 2
	r.buffer = r.buffer[:0] // HSet has copied it, but r.bytes is used until it is sent
	if !r.started[key] {
		r.started[key] = true
		r.pipe.PExpire(ctx, key, stagedFor)
	}
	if r.pipe.Len() >= r.pace.commands() {
		return r.send(ctx)
	}
	return nil
}

func (r *Staging) send(ctx context.Context) error {
	if r.pipe.Len() == 0 {
		return nil
	}
	if _, err := r.pipe.Exec(ctx); err != nil {
		return classifyError("stage", err)
	}
	for _, set := range r.sets {
		r.keys += set.Val() // claims with the same key share a record
	}
	r.sets = r.sets[:0]
	queued := r.queued
	r.queued = 0
	r.bytes = r.bytes[:0]
	return r.pace.after(ctx, queued)
}

// Finish loads what was staged. Errors as LoadAll.
func (r *Staging) Finish(ctx context.Context) error {
	nameless := r.Sold > 0 // there must be records then, but archived and lost claims have none
	if nameless {
		r.buffer = append(r.buffer, namelessField, "")
	}
	if err := r.stage(ctx, r.keysKey); err != nil {
		return err
	}
	for field, u := range r.records.byField {
		at := len(r.bytes)
		r.bytes = u.appendTo(r.bytes, r.records.limits.of(field))
		r.buffer = append(r.buffer, field, r.bytes[at:])
		if len(r.buffer) == 2*stageFields {
			if err := r.stage(ctx, r.usersKey); err != nil {
				return err
			}
		}
	}
	r.users = int64(len(r.records.byField))
	if nameless {
		r.users++
		r.buffer = append(r.buffer, namelessField, "")
	}
	if err := r.stage(ctx, r.usersKey); err != nil {
		return err
	}
	if err := r.send(ctx); err != nil {
		return err
	}
	return r.s.LoadAll(ctx, []Load{r.Load})[0]
}

// Drop removes staged claims. The rest expires.
func (r *Staging) Drop(ctx context.Context) {
	r.pipe.Discard()
	r.s.rdb.Unlink(ctx, r.usersKey, r.keysKey, r.wavesKey)
}
