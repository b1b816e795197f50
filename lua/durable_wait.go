package lua

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// An answer that must be durable waits for it. The script and a command that reports whether its writes are durable go to Redis in one
// pipeline: a wait speaks for the writes of its own connection only. One wait serves every claim of the call.
//
//	fast       EVALSHA
//	fsync      EVALSHA, WAITAOF 1 0 ms                     Redis from 7.2, Valkey: the counts say whether it is on disk
//	           EVALSHA, CONFIG GET appendonly, appendfsync …   before: with appendfsync always no reply leaves before the fsync
//	replica:N  EVALSHA, WAIT N ms                          the count says how many have it
//
// A wait that ends without having what it waited for is ErrOutcomeUnknown: the claim was made, and may be lost. The same request
// with the same key replays the claim, and waits again.

// maxWait is how long Redis may wait, within what is left of the caller's time. It is shorter than replyTimeout, so that a wait in
// vain is answered and does not cost the connection. It is longer than a second, which is what appendfsync everysec takes.
const maxWait = 2 * time.Second

// waitShare is the part of the caller's time that a wait may take. The answer needs the rest.
const waitShare = 0.75

// nodesMax is how many nodes of a cluster are asked for one call.
const nodesMax = 3

// aloneFor is how long a server that was a primary without replicas is not asked for replicas again.
const aloneFor = time.Second

// barrierLifeMs is how long a barrier stays in Redis. No one reads it.
const barrierLifeMs = 60_000

var (
	// errNotDurable is wrapped by every error that says that a write is not known to be durable.
	errNotDurable = errors.New("not known to be durable")
	// errNoWaitAOF says that the server does not know WAITAOF.
	errNoWaitAOF = errors.New("the server knows no WAITAOF")
	// errNotSent is wrapped where no node was found to send a script to.
	errNotSent = errors.New("not sent")
)

// runAndWait runs a script and waits until its writes are durable; waitErr is nil when they are. A script that wrote nothing has
// nothing that waitErr speaks of.
func (s *Scripts) runAndWait(ctx context.Context, one script, keys []string, args []any) (reply []any, waitErr, err error) {
	if !s.opts.Durability.Waits() {
		reply, err = s.run(ctx, one, keys, args)
		return reply, nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, fmt.Errorf("%w: %s not sent: %w", ErrUnavailable, one.name, err)
	}
	start := s.opts.Clock()
	reply, err = s.sendScript(ctx, one, func(command, script string) ([]any, error) {
		cmd := scriptCmd(ctx, command, script, keys, args)
		waitErr = s.sendAndWait(ctx, keys[0], cmd) // of a script that did not run there is nothing to wait for
		return cmd.Slice()
	})
	err = classifyError(one.name, err)
	s.opts.Observe(one.name, s.opts.Clock().Sub(start), cmp.Or(err, waitErr))
	return reply, waitErr, err
}

// awaitDurable returns an error unless what a call tells is durable: what it wrote, and what it replayed. A call that did neither
// has nothing to wait for.
//
// The wait behind a script speaks for what its connection wrote, so it does not speak for a replay: servers since 7.2 say of a
// connection that wrote nothing that all it wrote is durable. A barrier does, as it is written behind the replayed claim.
func (s *Scripts) awaitDurable(ctx context.Context, partition int, wrote, replayed bool, waitErr error) error {
	if !s.opts.Durability.Waits() || !wrote && !replayed {
		return nil
	}
	if waitErr == nil && !wrote && s.waitsOnConnection() || errors.Is(waitErr, errNoWaitAOF) {
		waitErr = s.writeBarrier(ctx, barrierKey(partition))
	}
	if waitErr != nil {
		return fmt.Errorf("%w: it was done but is %w", ErrOutcomeUnknown, waitErr)
	}
	return nil
}

// writeBarrier writes a key and waits until that is durable, and with it all that was written before.
func (s *Scripts) writeBarrier(ctx context.Context, key string) error {
	cmd := onceCmd{redis.NewCmd(ctx, "set", key, "", "px", barrierLifeMs)}
	waitErr := s.sendAndWait(ctx, key, cmd)
	if err := cmd.Err(); err != nil {
		return fmt.Errorf("%w: %w", errNotDurable, err)
	}
	return waitErr
}

// AwaitReplicas waits until all that a claim stream holds is in as many replicas as claims wait for. With DIBS_DURABILITY other than
// replica:N there is nothing to wait for, nor is there where no replica is up that could take over with less. Whoever books an
// event before has booked a claim that a failover undoes, and its place is given to another. An error means that it can't be told now.
func (s *Scripts) AwaitReplicas(ctx context.Context, stream string) error {
	if s.opts.Durability.Replicas == 0 {
		return nil
	}
	if last, known := s.alone.Load(stream); known && time.Since(last.(time.Time)) < aloneFor { //nolint:forcetypeassert // stored below
		return nil
	}
	waitErr := s.writeBarrier(ctx, barrierOf(stream))
	if waitErr == nil {
		return nil
	}
	asked := time.Now()
	if s.hasNoReplica(ctx, stream) {
		s.alone.Store(stream, asked)
		return nil
	}
	return fmt.Errorf("lua: entries of %s: %w", stream, waitErr)
}

// hasNoReplica reports whether the server that holds a key has no replica, by its own word and by that of most electors, see isAlone.
func (s *Scripts) hasNoReplica(ctx context.Context, key string) bool {
	node, err := s.nodeOf(ctx, key)
	if err != nil {
		return false
	}
	info, err := node.Info(ctx, "replication").Result()
	return err == nil && strings.Contains(info, "role:master") && strings.Contains(info, "connected_slaves:0\r\n") &&
		s.isAlone(ctx, node, key)
}

// waitsOnConnection reports whether durability is known by a wait, which speaks for what its connection wrote.
func (s *Scripts) waitsOnConnection() bool {
	return s.opts.Durability.Replicas > 0 || !s.noWaitAOF.Load()
}

// sendAndWait sends a command and the wait for its writes, on one connection of the server that holds key. The command has its own
// reply and error.
func (s *Scripts) sendAndWait(ctx context.Context, key string, cmd onceCmd) (waitErr error) {
	for range nodesMax {
		node, asking, err := s.nodeAfter(ctx, key, cmd.Err())
		if err != nil {
			cmd.SetErr(fmt.Errorf("%w: %w", errNotSent, err))
			return nil
		}
		wait := s.waitCmd(ctx)
		_, _ = node.Pipelined(ctx, func(p redis.Pipeliner) error { // each command has its own error
			if asking {
				_ = p.Do(ctx, "asking")
			}
			_ = p.Process(ctx, cmd)
			if wait != nil {
				_ = p.Process(ctx, wait)
			}
			return nil
		})
		waitErr = s.checkWait(wait)
		if !s.relearn(ctx, cmd.Err()) {
			break
		}
	}
	return waitErr
}

// waitCmd is the command that reports whether what its connection wrote is durable. It is nil when no command can, and someone vouched
// for it.
func (s *Scripts) waitCmd(ctx context.Context) *redis.Cmd {
	d := s.opts.Durability
	switch {
	case d.Replicas > 0:
		return redis.NewCmd(ctx, "wait", d.Replicas, waitMs(ctx))
	case !s.noWaitAOF.Load():
		return redis.NewCmd(ctx, "waitaof", 1, 0, waitMs(ctx))
	case !d.Vouched:
		return configGet(ctx)
	default:
		return nil
	}
}

// waitMs is how long a wait may take. It is never 0, which would be for ever.
func waitMs(ctx context.Context) int64 {
	most := maxWait
	if deadline, bounded := ctx.Deadline(); bounded {
		most = min(most, time.Duration(waitShare*float64(time.Until(deadline))))
	}
	return max(1, most.Milliseconds())
}

// checkWait reads the reply of waitCmd.
func (s *Scripts) checkWait(wait *redis.Cmd) error {
	if wait == nil {
		return nil
	}
	if isUnknownCommand(wait.Err()) && wait.Name() == "waitaof" {
		s.noWaitAOF.Store(true)
		return fmt.Errorf("%w: %w", errNotDurable, errNoWaitAOF)
	}
	var err error
	switch wait.Name() {
	case "wait":
		err = checkCount(wait, s.opts.Durability.Replicas, "replicas have it")
	case "waitaof":
		err = checkCount(wait, 1, "disks have it")
	default:
		_, err = checkConfig(wait, false)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errNotDurable, err)
	}
	return nil
}

func isUnknownCommand(err error) bool {
	return err != nil && strings.Contains(strings.ToLower(err.Error()), "unknown command")
}

var errTooFew = errors.New("too few")

// checkCount reads the reply of WAIT, a number, or of WAITAOF, whose first number counts.
func checkCount(wait *redis.Cmd, need int, what string) error {
	value, err := wait.Result()
	if err != nil {
		return err
	}
	if list, isList := value.([]any); isList && len(list) == 2 {
		value = list[0]
	}
	n, isNumber := value.(int64)
	if !isNumber {
		return fmt.Errorf("%w: %s replied %.100v", errTooFew, wait.Name(), value)
	}
	if n < int64(need) {
		return fmt.Errorf("%w: %d of %d %s", errTooFew, n, need, what)
	}
	return nil
}
