package redisbatch

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/redis/go-redis/v9"
)

const (
	// firstID is before the first entry of any stream, and the cursor
	// of a finished XAUTOCLAIM.
	firstID = "0-0"
	// groupStart makes a group start at the first entry, even one that Redis
	// lost. No unread entry may be skipped, and handlers deduplicate.
	groupStart = "0"
)

// reader reads entries into the window and sends their messages in
// order. After an error it reads its own pending entries again, as a
// lost reply left entries there. It creates a missing group; entries in
// flight become stale, as the new group delivers them again.
type reader struct {
	*subscription

	retry *backoff.ExponentialBackOff

	groupExists bool
	pendingRead bool   // all of this consumer's pending entries were read
	pendingAt   string // cursor of these

	reclaimAt   time.Time // next search for entries of silent consumers
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
		if err != nil {
			return err
		}
		r.accept(entries)
		return nil
	}
}

func (r *reader) createGroup() error {
	err := r.cfg.Client.XGroupCreateMkStream(r.stop, r.stream, r.cfg.Group, groupStart).Err()
	if err != nil && !redis.HasErrorPrefix(err, "BUSYGROUP") {
		return fmt.Errorf("redisbatch: creating group %s on %s: %w", r.cfg.Group, r.stream, err)
	}
	return nil
}

// readPending reads entries pending under this
// name, from before a restart or a lost reply.
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
	unsent := r.cfg.Client.Pipeline() // it sets the command's read timeout
	cmd := onceRead{unsent.XReadGroup(r.stop, &redis.XReadGroupArgs{
		Group: r.cfg.Group, Consumer: r.cfg.Name, Streams: []string{r.stream, after}, Count: int64(count), Block: block,
	})}
	_ = r.cfg.Client.Process(r.stop, cmd) // cmd has the error
	streams, err := cmd.Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, err
	}
	if len(streams) == 0 {
		return nil, nil
	}
	return streams[0].Messages, nil
}

// onceRead is a read that the client never retries, as a cluster client
// does despite MaxRetries. After a retry, entries of the lost reply
// would follow those of the second one.
type onceRead struct{ *redis.XStreamSliceCmd }

// NoRetry makes the client return the error.
func (onceRead) NoRetry() bool { return true }

// reclaim claims entries idle for MinIdle: of dead consumers, or of a
// lost reply. It ignores those that are in flight here.
func (r *reader) reclaim(count int) error {
	entries, next, deleted, err := r.cfg.Client.XAutoClaimWithDeleted(r.stop, &redis.XAutoClaimArgs{
		Stream: r.stream, Group: r.cfg.Group, Consumer: r.cfg.Name, MinIdle: r.cfg.MinIdle,
		Start: r.reclaimFrom, Count: int64(count),
	}).Result()
	if err != nil {
		return err
	}
	r.reclaimFrom = next
	if next == firstID {
		r.reclaimAt = time.Now().Add(r.cfg.ReclaimEvery)
	}
	r.reportLost(slices.DeleteFunc(deleted, r.window.holds)) // entries in flight here are not lost
	if added := r.accept(entries); added > 0 {
		r.counters.reclaimed.Add(float64(added))
		r.log.Info("claimed entries of a consumer that was silent", "entries", added)
	}
	return nil
}

// accept adds entries to the window and sends their
// messages in order. It reports trimmed entries and
// acknowledges them. It returns how many entries are new.
func (r *reader) accept(read []redis.XMessage) int {
	entries := r.window.add(read)
	r.counters.read.Add(float64(len(entries)))
	r.counters.inFlight.Add(float64(len(entries)))
	var trimmed []string
	present := make([]*entry, 0, len(entries))
	for _, e := range entries {
		if e.Values != nil {
			present = append(present, e)
			continue
		}
		trimmed = append(trimmed, e.ID)
		r.window.ack(e)
	}
	r.reportLost(trimmed)
	if len(present) == 0 {
		return len(entries)
	}
	if !r.awaitReady(present[len(present)-1]) {
		r.window.forget(present)
		r.counters.inFlight.Sub(float64(len(present)))
		r.pendingRead = false // some of them may be there
		r.pendingAt = firstID
		return len(entries) - len(present)
	}
	r.send(present...)
	return len(entries)
}

// readyPause is the first pause between two calls of IsReady. It
// doubles, up to BlockTime.
const readyPause = 5 * time.Millisecond

// awaitReady waits until entries up to the last one may be delivered, or the
// subscription stops. They are in the window, and so stay with this consumer.
// It returns false if Redis has lost the last one by then: what is
// ready are other entries.
func (r *reader) awaitReady(last *entry) (isThere bool) {
	if r.cfg.IsReady == nil {
		return true
	}
	for pause := readyPause; ; pause = min(2*pause, r.cfg.BlockTime) {
		if r.cfg.IsReady(r.stop, r.stream, last.ID) {
			found, err := r.cfg.Client.XRangeN(r.stop, r.stream, last.ID, last.ID, 1).Result()
			if err == nil {
				return len(found) > 0 && maps.Equal(found[0].Values, last.Values)
			}
		}
		if !sleep(r.stop, pause) {
			return true
		}
		r.cfg.OnRead(r.stream) // else the reader would seem stalled
	}
}

// reportLost reports entries trimmed before their acknowledgement. Redis
// reports them to one consumer, while another may still have them in flight.
func (r *reader) reportLost(ids []string) {
	if len(ids) == 0 {
		return
	}
	r.counters.lost.Add(float64(len(ids)))
	r.log.Error("the stream was trimmed before these entries were handled: this group never gets their events",
		"entries", len(ids), "first", ids[0], "last", ids[len(ids)-1])
}
