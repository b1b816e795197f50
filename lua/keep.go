package lua

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"dibs/models"
)

// Keeping is how a yes waits until it is durable. The script and what tells that its writes are kept go in one pipeline, as
// a wait speaks for its own connection only, and one wait serves every claim of the call:
//
//	fast       EVALSHA
//	fsync      EVALSHA, WAITAOF 1 0 ms                     Redis from 7.2, Valkey: the counts say whether it is on disk
//	           EVALSHA, CONFIG GET appendonly, appendfsync …   before: with appendfsync always no reply leaves before the fsync
//	replica:N  EVALSHA, WAIT N ms                          the count says how many have it
//
// A wait that ends without having what it waited for is ErrOutcomeUnknown: the claim was made, and may be lost. Asking
// again with the same key replays it, and waits again.

// keepTimeout is how long Redis may wait, within what is left of the caller's time. It is shorter than replyTimeout, so
// that a wait in vain is answered and does not cost the connection; and longer than a second, which is what appendfsync
// everysec takes.
const keepTimeout = 2 * time.Second

// keepShare is the part of the caller's time that a wait may take: its answer needs some, too.
const keepShare = 0.75

// nodesMax is how many nodes of a cluster are asked for one call.
const nodesMax = 3

// markLife is how long a mark stays in Redis, in milliseconds. Nobody reads it.
const markLife = 60_000

var (
	// errKept is wrapped by everything that says that a write is not known to be kept.
	errKept = errors.New("not known to be durable")
	// errNoWaitAOF says that the server does not know WAITAOF.
	errNoWaitAOF = errors.New("the server knows no WAITAOF")
	// errNotSent is wrapped where no node was found to send a script to.
	errNotSent = errors.New("not sent")
)

// runKept is run for a script whose writes must be durable before they are told; kept is nil when they are. A script that
// wrote nothing has nothing that kept could speak for.
func (s *Scripts) runKept(ctx context.Context, one script, keys []string, args []any) (reply []any, kept, err error) {
	if !s.opts.Durability.Waits() {
		reply, err = s.run(ctx, one, keys, args)
		return reply, nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, fmt.Errorf("%w: %s not sent: %w", ErrUnavailable, one.name, err)
	}
	start := s.opts.Clock()
	cmd := scriptCmd(ctx, "evalsha", one.Hash(), keys, args)
	kept = s.pipe(ctx, keys[0], cmd)
	if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") { // nothing ran, so there was nothing to wait for
		cmd = scriptCmd(ctx, "eval", one.source, keys, args)
		kept = s.pipe(ctx, keys[0], cmd)
	}
	reply, err = cmd.Slice()
	err = sortError(one.name, err)
	s.opts.Observe(one.name, s.opts.Clock().Sub(start), cmp.Or(err, kept))
	return reply, kept, err
}

// keep has the last word on a call of claims: what was taken is told only when it is kept. A no needs no keeping.
//
// Claims that were made before are told only when they are kept, too, and the wait behind the script does not speak for
// them when nothing new was taken: servers since 7.2 say of a connection that wrote nothing that all it wrote is kept. So
// something is written behind the old claim, and waited for.
func (s *Scripts) keep(ctx context.Context, partition int, replies []ClaimReply, kept error) error {
	if !s.opts.Durability.Waits() {
		return nil
	}
	claimed, replayed := false, false
	for i := range replies {
		claimed = claimed || replies[i].Outcome == models.OutcomeClaimed
		replayed = replayed || replies[i].Outcome == models.OutcomeReplayed
	}
	return s.keepWrites(ctx, partition, claimed, replayed, kept)
}

// keepWrites is keep for a call that wrote something, or met what was written before.
func (s *Scripts) keepWrites(ctx context.Context, partition int, wrote, repeated bool, kept error) error {
	if !s.opts.Durability.Waits() || !wrote && !repeated {
		return nil
	}
	if kept == nil && !wrote && s.waitsOnConnection() || errors.Is(kept, errNoWaitAOF) {
		kept = s.mark(ctx, partition)
	}
	if kept != nil {
		return fmt.Errorf("%w: it was done but is %w", ErrOutcomeUnknown, kept)
	}
	return nil
}

// mark writes something and waits until it is kept, and so all that was written before.
func (s *Scripts) mark(ctx context.Context, partition int) error {
	key := KeptKey(partition)
	cmd := onceCmd{redis.NewCmd(ctx, "set", key, "", "px", markLife)}
	kept := s.pipe(ctx, key, cmd)
	if err := cmd.Err(); err != nil {
		return fmt.Errorf("%w: %w", errKept, err)
	}
	return kept
}

// waitsOnConnection tells whether keeping is known by a wait, which speaks for what its connection wrote.
func (s *Scripts) waitsOnConnection() bool {
	return s.opts.Durability.Replicas > 0 || !s.noWaitAOF.Load()
}

// pipe sends a command and what tells that its writes are kept, on one connection of the server that holds key. What
// became of the command is in it.
func (s *Scripts) pipe(ctx context.Context, key string, cmd onceCmd) (kept error) {
	for range nodesMax {
		node, err := s.nodeOf(ctx, key)
		if err != nil {
			cmd.SetErr(fmt.Errorf("%w: %w", errNotSent, err))
			return nil
		}
		witness := s.witness(ctx)
		_, _ = node.Pipelined(ctx, func(p redis.Pipeliner) error { // each command has its own error
			_ = p.Process(ctx, cmd)
			if witness != nil {
				_ = p.Process(ctx, witness)
			}
			return nil
		})
		kept = s.verdict(witness)
		if !s.relearn(ctx, cmd.Err()) {
			break
		}
	}
	return kept
}

// witness is the command that tells whether what its connection wrote is kept; nil when nobody can, and that was vouched for.
func (s *Scripts) witness(ctx context.Context) *redis.Cmd {
	d := s.opts.Durability
	switch {
	case d.Replicas > 0:
		return redis.NewCmd(ctx, "wait", d.Replicas, keepMs(ctx))
	case !s.noWaitAOF.Load():
		return redis.NewCmd(ctx, "waitaof", 1, 0, keepMs(ctx))
	case !d.Vouched:
		return configGet(ctx)
	default:
		return nil
	}
}

// keepMs is how long a wait may take. Never 0, which would be for ever.
func keepMs(ctx context.Context) int64 {
	most := keepTimeout
	if deadline, bounded := ctx.Deadline(); bounded {
		most = min(most, time.Duration(keepShare*float64(time.Until(deadline))))
	}
	return max(1, most.Milliseconds())
}

// verdict reads what the witness says.
func (s *Scripts) verdict(witness *redis.Cmd) error {
	if witness == nil {
		return nil
	}
	if isUnknownCommand(witness.Err()) && witness.Name() == "waitaof" {
		s.noWaitAOF.Store(true)
		return fmt.Errorf("%w: %w", errKept, errNoWaitAOF)
	}
	var err error
	switch witness.Name() {
	case "wait":
		err = checkCount(witness, s.opts.Durability.Replicas, "replicas have it")
	case "waitaof":
		err = checkCount(witness, 1, "disks have it")
	default:
		_, err = checkConfig(witness, false)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errKept, err)
	}
	return nil
}

func isUnknownCommand(err error) bool {
	return err != nil && strings.Contains(strings.ToLower(err.Error()), "unknown command")
}

var errTooFew = errors.New("too few")

// checkCount reads the reply of WAIT, a number, or of WAITAOF, whose first number counts.
func checkCount(witness *redis.Cmd, need int, what string) error {
	value, err := witness.Result()
	if err != nil {
		return err
	}
	if list, isList := value.([]any); isList && len(list) == 2 {
		value = list[0]
	}
	n, isNumber := value.(int64)
	if !isNumber {
		return fmt.Errorf("%w: %s replied %.100v", errTooFew, witness.Name(), value)
	}
	if n < int64(need) {
		return fmt.Errorf("%w: %d of %d %s", errTooFew, n, need, what)
	}
	return nil
}
