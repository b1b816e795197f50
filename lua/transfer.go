package lua

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"dibs/internal/sleep"
	"dibs/models"
)

// Replies of debit.lua and of credit.lua that are about the transfer.
const (
	statusMovedOn   = 3 // others moved units in the meantime
	statusPeer      = 5 // what the peer says, or its load, does not fit
	statusBehindTwo = 6 // the lot is behind what the caller saw
)

var (
	// ErrMovedOn says that others moved units of the lot since it was read. Nothing was changed.
	ErrMovedOn = errors.New("lua: units of the lot moved in the meantime")
	// ErrPeer says that a lot and its peer contradict each other: the peer has packets that the lot did not debit, which is fenced then, or
	// was loaded again since it debited the units.
	ErrPeer = errors.New("lua: the lot and its peer contradict each other")
	// ErrBehind says that a lot is behind what the caller saw of it. It is fenced.
	ErrBehind = errors.New("lua: the lot is behind what was seen of it")
)

// Debit takes units out of a lot for a peer.
type Debit struct {
	Epoch  int64         // of the lot, as it was read
	Peer   int           // the number of the lot that the units are for
	Seen   int64         // units that were debited for it before, as they were read
	Units  int64         // that are wanted; 0 only raises floors
	Floors map[int]int64 // units that each peer was credited from the lot

	NeedNotWait bool // the floors make up for units that a server without durability forgot
}

// Credit brings a lot units that a peer has debited for it.
type Credit struct {
	Seen     Position // of the lot
	Peer     int      // the number of the lot that the units come from
	PeerLoad int64    // that debited them
	Before   int64    // of packets: units that were credited before the first of Packets
	Upto     int64    // units that the peer ever debited for the lot
	Packets  []string // "release_ms:amount:id" of each, as Debited returns them
}

// Transferred is what a lot says after a debit or a credit.
type Transferred struct {
	Upto  int64 // units that were ever debited for the peer, or credited from it
	Units int64 // that moved by this call
}

// Debit takes free units of a lot for a peer, if they were as d says. c is the lot. It returns once all that the lot has debited for the
// peer is where a failover or a restart finds it, unless d says that no one need wait. Errors: ErrAbsent, ErrOther, ErrMovedOn, ErrPeer,
// ErrDamaged, ErrUnavailable, ErrOutcomeUnknown (read again).
func (s *Scripts) Debit(ctx context.Context, c *models.Campaign, d *Debit) (Transferred, error) {
	k := s.KeysOf(c.ID)
	keys := []string{k.State, k.Stream}
	if c.Kind == models.KindPacket {
		keys = append(keys, k.Waves, k.Out(d.Epoch, d.Peer))
	}
	id, err := uuid.NewV7()
	if err != nil {
		return Transferred{}, fmt.Errorf("%w: debit: %w", ErrUnavailable, err)
	}
	args := []any{d.Epoch, d.Peer, d.Seen, d.Units, id.String(), models.NewTime(s.opts.Clock()).Format(models.TimeLayout), s.serverNow()}
	for _, peer := range slices.Sorted(maps.Keys(d.Floors)) {
		args = append(args, peer, d.Floors[peer])
	}
	if d.NeedNotWait && !s.opts.Durability.Waits() {
		code, reply, err := s.ask(ctx, s.debit, keys, args)
		return transferred(c.ID, s.debit.name, keys, code, reply, err)
	}
	reply, waitErr, err := s.durable.runAndWait(ctx, s.debit, keys, args)
	if err != nil {
		return Transferred{}, err
	}
	code, err := status(s.debit.name, reply)
	t, err := transferred(c.ID, s.debit.name, keys, code, reply, err)
	if err != nil {
		return t, err
	}
	partition := PartitionOf(c.ID, s.opts.Partitions)
	return t, s.awaitKept(ctx, barrierKey(partition), s.durable.awaitDurable(ctx, partition, true, false, waitErr))
}

// Credit brings a lot what a peer has debited for it, however often it is sent. c is the lot. A credit of what it has tells it the load of
// the peer, and returns what it was credited. Errors: as Debit, and ErrBehind.
func (s *Scripts) Credit(ctx context.Context, c *models.Campaign, d *Credit) (Transferred, error) {
	k := s.KeysOf(c.ID)
	keys := []string{k.State, k.Stream}
	if c.Kind == models.KindPacket {
		keys = append(keys, k.Waves)
	}
	id, err := uuid.NewV7()
	if err != nil {
		return Transferred{}, fmt.Errorf("%w: credit: %w", ErrUnavailable, err)
	}
	args := []any{
		d.Seen.Epoch, d.Seen.Seq, d.Seen.TSeq, d.Peer, d.PeerLoad, d.Before, d.Upto, id.String(),
		models.NewTime(s.opts.Clock()).Format(models.TimeLayout),
	}
	for _, packet := range d.Packets {
		args = append(args, packet)
	}
	code, reply, err := s.ask(ctx, s.credit, keys, args)
	return transferred(c.ID, s.credit.name, keys, code, reply, err)
}

func transferred(id, name string, keys []string, code int64, reply []any, err error) (t Transferred, _ error) {
	switch {
	case err != nil:
		return t, err
	case code == statusOK && len(reply) == 3:
		t.Upto, _ = reply[1].(int64)
		t.Units, _ = reply[2].(int64)
		return t, nil
	case code == statusMovedOn:
		return t, fmt.Errorf("%w: %s: %v", ErrMovedOn, id, reply[1:])
	case code == statusPeer:
		return t, fmt.Errorf("%w: %s: %v", ErrPeer, id, reply[1:])
	case code == statusBehindTwo:
		return t, fmt.Errorf("%w: %s: %v", ErrBehind, id, reply[1:])
	}
	return t, refusal(name, id, keys, code, reply)
}

// Debited reads the packets that a lot has debited for a peer, from a number of them on.
func (s *Scripts) Debited(ctx context.Context, lotID string, epoch int64, peer int, from int64) ([]string, error) {
	packets, err := s.rdb.LRange(ctx, s.KeysOf(lotID).Out(epoch, peer), from, -1).Result()
	return packets, classifyError("lrange", err)
}

// awaitKept waits until a debit is where a failover or a restart finds it, whatever claims wait for: in every replica that is connected,
// and on the disk of the primary if it writes a file. key is of the shard's slot; err is that of the wait for the disk.
func (s *Scripts) awaitKept(ctx context.Context, key string, err error) error {
	node, nodeErr := s.nodeOf(ctx, key)
	if nodeErr != nil {
		return fmt.Errorf("%w: %w", ErrOutcomeUnknown, nodeErr)
	}
	info, infoErr := Info(ctx, node, "replication")
	switch {
	case infoErr != nil && strings.Contains(infoErr.Error(), "is not supported"): // the embedded server: it has neither file nor replica
		return nil
	case infoErr != nil:
		return fmt.Errorf("%w: %w", ErrOutcomeUnknown, infoErr)
	}
	if err != nil && !s.opts.Durability.Fsync {
		err = awaitFile(ctx, node, err)
	}
	connected, parseErr := strconv.Atoi(info["connected_slaves"])
	replicas := max(connected, s.opts.Durability.Replicas)
	err = cmp.Or(err, parseErr)
	if err != nil || replicas == 0 {
		return err
	}
	all := &Scripts{rdb: s.rdb, opts: s.opts}
	all.opts.Durability = Durability{Replicas: replicas}
	if err := all.writeBarrier(ctx, key); err != nil {
		return fmt.Errorf("%w: the debit is not in all %d replicas: %w", ErrOutcomeUnknown, replicas, err)
	}
	return nil
}

const (
	// syncWithin is longer than what a server with appendfsync everysec takes to begin a sync of its file: a second, and what its clock lags.
	syncWithin = 1500 * time.Millisecond
	// syncPoll is how often it is asked whether a sync goes on.
	syncPoll = 50 * time.Millisecond
)

// awaitFile waits until a debit must be on the disk of a server that can't tell, where claims don't wait for the disk either: a sync begins
// within a second of a moment without one, and is over at the next such moment. A server that writes no file as it goes keeps nothing:
// there is nothing to wait for, and what it lost its peers tell. err is why the server can't tell.
func awaitFile(ctx context.Context, node redis.UniversalClient, err error) error {
	text := err.Error()
	isMute := isUnknownCommand(err) || isRefusal(err)
	for _, setting := range []string{"appendonly is disabled", `"appendonly yes"`, `"appendfsync always"`} {
		isMute = isMute || strings.Contains(text, setting)
	}
	if !isMute {
		return err
	}
	var idleAt time.Time
	for {
		info, infoErr := Info(ctx, node, "persistence")
		isIdle := info["aof_pending_bio_fsync"] == "0"
		switch {
		case infoErr != nil:
			return fmt.Errorf("%w: %w", ErrOutcomeUnknown, infoErr)
		case info["aof_enabled"] == "0", isIdle && !idleAt.IsZero() && time.Since(idleAt) > syncWithin:
			return nil
		case isIdle && idleAt.IsZero():
			idleAt = time.Now()
		}
		if err := sleep.For(ctx, syncPoll); err != nil {
			return fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
		}
	}
}
