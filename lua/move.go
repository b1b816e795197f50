package lua

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"dibs/internal/sleep"
	"dibs/models"
)

// Replies of move.lua to a move that is not the shard's next one, and to one whose number another move had.
const statusNotNext, statusReused = 3, 5

// ErrNotNext says that a shard has taken a later move, or lacks an earlier one. Nothing was changed.
var ErrNotNext = errors.New("lua: not the next move of the shard")

// ErrReused says that a shard has taken another move with the same number: MySQL has lost that one. Nothing was changed.
var ErrReused = errors.New("lua: the shard has taken another move of that number")

// Move has a shard take a move of units between it and its campaign's reserve, and returns how many went. However often it is called,
// they go once. A recall is answered once Redis has it on its disk and in all of its replicas: the units are given to others then, and a
// Redis that lost it would have them again. m.Packets are those that went, then, of a packet campaign. c is the shard by MySQL. Errors: ErrAbsent, ErrOther,
// ErrNotNext, ErrReused, ErrDamaged, ErrUnavailable, ErrOutcomeUnknown (safe to send again).
func (s *Scripts) Move(ctx context.Context, c *models.Campaign, m *models.StockMove) (amount int64, err error) {
	keys, args, err := s.moveCall(c, m)
	if err != nil {
		return 0, err
	}
	waits := s
	if m.Kind == models.MoveRecall {
		waits = s.keeper
	}
	reply, waitErr, err := waits.runAndWait(ctx, s.move, keys, args)
	if err != nil {
		return 0, err
	}
	code, err := status(s.move.name, reply)
	if err != nil {
		return 0, err
	}
	switch {
	case code == statusOK && len(reply) == 4:
		amount, ok := reply[1].(int64)
		if !ok || !putMoved(m, reply[3]) || c.Kind == models.KindPacket && int64(len(m.Packets)) != amount {
			return 0, badReply(s.move.name, reply)
		}
		again := reply[2] == int64(1)
		partition := PartitionOf(c.ID, s.opts.Partitions)
		err := waits.awaitDurable(ctx, partition, !again, again, waitErr)
		if m.Kind == models.MoveRecall {
			err = s.awaitKept(ctx, barrierKey(partition), err)
		}
		return amount, err
	case code == statusAbsent:
		return 0, fmt.Errorf("%w: %s", ErrAbsent, c.ID)
	case code == statusNotNext:
		return 0, fmt.Errorf("%w: move %d of %s, it has taken %v", ErrNotNext, m.No, c.ID, reply[1:])
	case code == statusReused:
		return 0, fmt.Errorf("%w: move %d of %s", ErrReused, m.No, c.ID)
	case code == statusOther:
		return 0, fmt.Errorf("%w: %s at epoch %d", ErrOther, c.ID, c.Epoch)
	}
	return 0, damaged(s.move.name, keys, reply)
}

// moveCall is the call of move.lua for a move.
func (s *Scripts) moveCall(c *models.Campaign, m *models.StockMove) (keys []string, args []any, err error) {
	k := s.KeysOf(c.ID)
	keys = []string{k.State}
	args = []any{c.Epoch, m.No, string(m.Kind), m.Want}
	if c.Kind != models.KindPacket {
		return keys, args, nil
	}
	if m.Want > PushMax {
		return nil, nil, fmt.Errorf("%w: move of %d packets, must be at most %d", ErrUnavailable, m.Want, PushMax)
	}
	keys = append(keys, k.Waves, k.Packets(c.Epoch, m.ReleaseMs))
	if m.Kind == models.MoveGrant {
		args = append(args, m.ReleaseMs)
		for i := range m.Packets {
			args = append(args, packetEntry(&m.Packets[i]))
		}
	}
	return keys, args, nil
}

// putMoved gives a recall the packets that it was answered, "amount:id" of each, joined by " ".
func putMoved(m *models.StockMove, moved any) bool {
	text, ok := moved.(string)
	if !ok || m.Kind != models.MoveRecall {
		return ok
	}
	m.Packets = nil
	for entry := range strings.FieldsSeq(text) {
		amount, id, _ := strings.Cut(entry, ":")
		n, err := strconv.ParseInt(amount, 10, 64)
		if err != nil {
			return false
		}
		m.Packets = append(m.Packets, models.Packet{ID: id, Amount: n})
	}
	return true
}

// everySecForgets is longer than what a Redis with appendfsync everysec forgets when it dies: a second, and another while it waits for a
// slow disk.
const everySecForgets = 3 * time.Second

// awaitKept waits until a recall is where a failover or a restart finds it, whatever claims wait for: in every replica that is connected,
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
		err = awaitFile(ctx, err)
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
		return fmt.Errorf("%w: the recall is not in all %d replicas: %w", ErrOutcomeUnknown, replicas, err)
	}
	return nil
}

// awaitFile waits until a recall must be on the disk of a server that can't tell, where claims don't wait for the disk either. A server
// that writes no file as it goes keeps nothing: there is nothing to wait for, and what it lost is seen by its number of moves.
func awaitFile(ctx context.Context, err error) error {
	switch text := err.Error(); {
	case strings.Contains(text, "appendonly is disabled"), strings.Contains(text, `"appendonly yes"`):
		return nil
	case strings.Contains(text, `"appendfsync always"`), isUnknownCommand(err), isRefusal(err):
		return sleep.For(ctx, everySecForgets)
	}
	return err
}

// ShardView is what Redis holds of a shard at one moment. Err is ErrAbsent for one that Redis does not hold, or that takes no claims
// (its numbers are set nevertheless), ErrDamaged, or that of a Redis that is away.
type ShardView struct {
	Epoch, Version, Moves, Ups int64
	Seq, Total, Taken          int64
	Err                        error
}

// Free is the units that can be claimed in the shard.
func (v *ShardView) Free() int64 { return max(0, v.Total-v.Taken) }

// IsSame tells whether no unit became free in the shard between two views of it, and nothing else changed that matters to its stock.
func (v *ShardView) IsSame(o *ShardView) bool {
	return v.Err == nil && o.Err == nil && v.Epoch == o.Epoch && v.Version == o.Version && v.Moves == o.Moves && v.Ups == o.Ups
}

// Shards reads shards, each at one moment, in one round trip to each server. One whose server does not answer in time has an error of its
// own.
func (s *Scripts) Shards(ctx context.Context, ids []string) []ShardView {
	commands := make([]*redis.SliceCmd, len(ids))
	_, _ = s.rdb.Pipelined(ctx, func(p redis.Pipeliner) error { // each command has its own error
		for i, id := range ids {
			commands[i] = p.HMGet(ctx, s.KeysOf(id).State, "epoch", "version", "moves", "ups", "seq", "total", "taken", "status")
		}
		return nil
	})
	views := make([]ShardView, len(ids))
	for i, command := range commands {
		views[i] = shardView(ids[i], command)
	}
	return views
}

func shardView(id string, command *redis.SliceCmd) (v ShardView) {
	values, err := command.Result()
	if err != nil && len(values) == 0 { // while a server hangs, go-redis fails commands that others have answered
		v.Err = sortError("hmget", err)
		if isWrongType(err) {
			v.Err = fmt.Errorf("%w: %s", ErrDamaged, id)
		}
		return v
	}
	status, _ := values[7].(string)
	if status == "" {
		v.Err = fmt.Errorf("%w: %s", ErrAbsent, id)
		return v
	}
	f := &fields{text: make(map[string]string, len(values))}
	for i, name := range []string{"epoch", "version", "moves", "ups", "seq", "total", "taken"} {
		f.text[name], _ = values[i].(string)
	}
	v = ShardView{
		Epoch: f.number("epoch"), Version: f.number("version"), Moves: f.number("moves"), Ups: f.number("ups"),
		Seq: f.number("seq"), Total: f.number("total"), Taken: f.number("taken"),
	}
	switch {
	case f.err != nil:
		v.Err = fmt.Errorf("%w: %s: %w", ErrDamaged, id, f.err)
	case status == string(models.StatusLoading), status == string(models.StatusFenced):
		v.Err = fmt.Errorf("%w: %s is %s", ErrAbsent, id, status)
	}
	return v
}
