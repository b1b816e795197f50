package redisbatch

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/redis/go-redis/v9"
)

const (
	// firstID is before the first entry of any stream, and the cursor of a finished XAUTOCLAIM.
	firstID = "0-0"
	// groupStart is where a group begins: at the first entry there is. A group that Redis lost is created there as well, because no unread
	// entry may be skipped, and handlers deduplicate.
	groupStart = "0"
)

// reader brings entries from Redis into the window and sends their messages in order. After every error it reads its own pending
// entries again: a reply that was lost on its way has left entries there that were never delivered. When the group is gone it creates the
// group again, and what is in flight becomes stale: the new group delivers all of the stream, and handlers deduplicate.
type reader struct {
	*subscription

	retry *backoff.ExponentialBackOff

	groupExists bool
	pendingRead bool   // our own pending entries were all read
	pendingAt   string // cursor among them

	reclaimAt   time.Time // when to search for entries of silent consumers
	reclaimFrom string    // cursor of XAUTOCLAIM
}

func newReader(s *subscription) *reader {
	return &reader{subscription: s, retry: redisBackoff(), pendingAt: firstID, reclaimFrom: firstID}
}

func (r *reader) run() {
	r.cfg.OnRead(r.stream)
	for r.stop.Err() == nil {
		if err := r.read(); err == nil {
			r.retry.Reset()
			r.cfg.OnRead(r.stream)
		} else if r.stop.Err() == nil {
			r.waitAfter(err)
		}
	}
}

func (r *reader) waitAfter(err error) {
	wait := r.retry.NextBackOff()
	r.counters.redisErrors.Inc()
	r.log.Warn("reading the stream failed, will try again", "error", err, "wait_ms", wait.Milliseconds())
	r.pendingRead = false
	r.pendingAt = firstID
	r.reclaimFrom = firstID
	if redis.HasErrorPrefix(err, "NOGROUP") {
		r.groupExists = false
		r.window.invalidate()
	}
	sleep(r.stop, wait)
}

// read creates the group, or reads entries from one of the three places where they are.
func (r *reader) read() error {
	if !r.groupExists {
		err := r.createGroup()
		r.groupExists = err == nil
		return err
	}
	wanted := min(r.cfg.ReadCount, max(1, r.cfg.Window/4))
	count := min(r.window.awaitCapacity(r.stop, wanted), r.cfg.ReadCount)
	switch {
	case count == 0:
		return nil // stopped
	case !r.pendingRead:
		return r.readPending(count)
	case !time.Now().Before(r.reclaimAt):
		return r.reclaim(count)
	default:
		entries, err := r.xreadgroup(">", count, r.cfg.BlockTime)
		if err == nil {
			r.accept(entries)
		}
		return err
	}
}

// createGroup creates a group that is missing, and its stream.
func (r *reader) createGroup() error {
	err := r.cfg.Client.XGroupCreateMkStream(r.stop, r.stream, r.cfg.Group, groupStart).Err()
	if err != nil && !redis.HasErrorPrefix(err, "BUSYGROUP") {
		return fmt.Errorf("redisbatch: creating group %s on %s: %w", r.cfg.Group, r.stream, err)
	}
	return nil
}

// readPending reads on among the entries that Redis has given to this consumer name: before a restart, or in a reply that was lost.
func (r *reader) readPending(count int) error {
	entries, err := r.xreadgroup(r.pendingAt, count, -1)
	if err != nil {
		return err
	}
	if len(entries) == 0 {
		r.pendingRead = true
		return nil
	}
	r.pendingAt = entries[len(entries)-1].ID
	r.accept(entries)
	return nil
}

// xreadgroup reads the entries after an id; block < 0 does not wait.
func (r *reader) xreadgroup(after string, count int, block time.Duration) ([]redis.XMessage, error) {
	unsent := r.cfg.Client.Pipeline() // which sets the time that the command may block
	cmd := onceRead{unsent.XReadGroup(r.stop, &redis.XReadGroupArgs{
		Group: r.cfg.Group, Consumer: r.cfg.Name, Streams: []string{r.stream, after}, Count: int64(count), Block: block,
	})}
	_ = r.cfg.Client.Process(r.stop, cmd) // the command holds the error, too
	streams, err := cmd.Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, err
	}
	if len(streams) == 0 {
		return nil, nil
	}
	return streams[0].Messages, nil
}

// onceRead is a read that no client sends again by itself, as one of a cluster does whatever its MaxRetries: entries of a reply that was
// lost would come behind those of the second reply.
type onceRead struct{ *redis.XStreamSliceCmd }

// NoRetry has the client return the error.
func (onceRead) NoRetry() bool { return true }

// reclaim claims entries that have been idle for MinIdle: those of consumers that died, and our own of a reply that was lost.
// Entries in flight here may be among them, and are left alone.
func (r *reader) reclaim(count int) error {
	entries, next, deleted, err := r.cfg.Client.XAutoClaimWithDeleted(r.stop, &redis.XAutoClaimArgs{
		Stream: r.stream, Group: r.cfg.Group, Consumer: r.cfg.Name, MinIdle: r.cfg.MinIdle, Start: r.reclaimFrom, Count: int64(count),
	}).Result()
	if err != nil {
		return err
	}
	r.reclaimFrom = next
	if next == firstID {
		r.reclaimAt = time.Now().Add(r.cfg.ReclaimEvery)
	}
	r.reportLost(slices.DeleteFunc(deleted, r.window.holds)) // what is in flight here was read in time
	if added := r.accept(entries); added > 0 {
		r.counters.reclaimed.Add(float64(added))
		r.log.Info("claimed entries of a consumer that was silent", "entries", added)
	}
	return nil
}

// accept adds entries to the window and sends their messages, in order. Those that are gone from the stream are reported and acknowledged.
// It returns how many were not in flight before.
func (r *reader) accept(read []redis.XMessage) int {
	entries := r.window.add(read)
	r.counters.read.Add(float64(len(entries)))
	r.counters.inFlight.Add(float64(len(entries)))
	var gone []string
	present := make([]*entry, 0, len(entries))
	for _, e := range entries {
		if e.Values != nil {
			present = append(present, e)
			continue
		}
		gone = append(gone, e.ID)
		r.window.ack(e)
	}
	r.reportLost(gone)
	step := 1
	if r.cfg.Batches {
		step = max(1, len(present))
	}
	if len(present) > 0 {
		r.awaitReady(present[len(present)-1].ID)
	}
	for batch := range slices.Chunk(present, step) {
		r.send(batch...)
	}
	return len(entries)
}

// readyPause is the first pause before it is asked again whether entries may be handed out. It doubles, up to BlockTime.
const readyPause = 5 * time.Millisecond

// awaitReady waits until entries up to one of an id may be handed out, or the subscription stops. They are in the window, and so stay with
// this consumer.
func (r *reader) awaitReady(id string) {
	for pause := readyPause; !r.cfg.IsReady(r.stop, r.stream, id) && sleep(r.stop, pause); pause = min(2*pause, r.cfg.BlockTime) {
		r.cfg.OnRead(r.stream) // it waits for somebody else
	}
}

// reportLost reports entries that were trimmed before they were acknowledged. Redis reports that to the consumer that asks first, so
// another one may have such an entry in flight still.
func (r *reader) reportLost(ids []string) {
	if len(ids) == 0 {
		return
	}
	r.counters.lost.Add(float64(len(ids)))
	r.log.Error("the stream was trimmed before these entries were handled: this group never gets their events",
		"entries", len(ids), "first", ids[0], "last", ids[len(ids)-1])
}
