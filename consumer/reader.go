package consumer

import (
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cenkalti/backoff/v5"
	"github.com/redis/go-redis/v9"

	"dibs/internal/sleep"
	"dibs/internal/tracing"
	"dibs/models"
)

// firstID is before the first entry of any stream, and the cursor of a finished XAUTOCLAIM.
const firstID = "0-0"

// turnsWithin is how long a read may take, with the wait for room in the window: what is there is committed by then, if all is well.
const turnsWithin = 30 * time.Second

// reader brings entries from Redis into the window and sends their messages in order. After every error it reads its own pending
// entries again: a reply that was lost on its way has left entries there that nobody has seen. When the group is gone it creates the
// group again, and what is in flight becomes stale: the new group delivers all of the stream, and handlers deduplicate.
type reader struct {
	*subscription
	retry *backoff.ExponentialBackOff

	groupExists bool
	pendingRead bool   // our own pending entries were all read
	pendingAt   string // cursor among them

	reclaimAt   time.Time // when to look for entries of silent consumers
	reclaimFrom string    // cursor of XAUTOCLAIM
}

func newReader(s *subscription) *reader {
	return &reader{subscription: s, retry: s.cfg.readBackoff.start(), pendingAt: firstID, reclaimFrom: firstID}
}

func (r *reader) run() {
	loop := "the reader of " + r.stream
	r.cfg.pulse.Beat(loop, turnsWithin)
	for r.stop.Err() == nil {
		if err := r.read(); err == nil {
			r.retry.Reset()
			r.cfg.pulse.Beat(loop, turnsWithin)
		} else if r.stop.Err() == nil {
			r.waitAfter(err)
		}
	}
}

func (r *reader) waitAfter(err error) {
	wait := r.retry.NextBackOff()
	r.counters.redisErrors.Inc()
	r.log.Warn("reading the stream failed, will try again", "error", err, "wait_ms", wait.Milliseconds())
	r.pendingRead, r.pendingAt, r.reclaimFrom = false, firstID, firstID
	if redis.HasErrorPrefix(err, "NOGROUP") {
		r.groupExists = false
		r.window.invalidate()
	}
	_ = sleep.For(r.stop, wait) // the loop looks at stop
}

// read creates the group, or reads a batch from one of the three places where entries are.
func (r *reader) read() error {
	if !r.groupExists {
		err := ensureGroup(r.stop, r.cfg.client, r.stream, r.cfg.group)
		r.groupExists = err == nil
		return err
	}
	wanted := min(r.cfg.readCount, max(1, r.cfg.window/4))
	count := min(r.window.awaitRoom(r.stop.Done(), wanted), r.cfg.readCount)
	switch {
	case count == 0:
		return nil // stopped
	case !r.pendingRead:
		return r.readPending(count)
	case !time.Now().Before(r.reclaimAt):
		return r.reclaim(count)
	default:
		return r.readNew(count)
	}
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

func (r *reader) readNew(count int) error {
	entries, err := r.xreadgroup(">", count, r.cfg.blockTime)
	if err != nil {
		return err
	}
	r.accept(entries)
	return nil
}

// xreadgroup reads the entries after an id; block < 0 does not wait.
func (r *reader) xreadgroup(after string, count int, block time.Duration) ([]redis.XMessage, error) {
	streams, err := r.cfg.client.XReadGroup(r.stop, &redis.XReadGroupArgs{
		Group:    r.cfg.group,
		Consumer: r.cfg.name,
		Streams:  []string{r.stream, after},
		Count:    int64(count),
		Block:    block,
	}).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, err
	}
	if len(streams) == 0 || len(streams[0].Messages) == 0 {
		return nil, nil
	}
	return streams[0].Messages, r.replicated()
}

// replicated waits until what was read is not undone by a failover.
func (r *reader) replicated() error {
	if r.cfg.replicated == nil {
		return nil
	}
	return r.cfg.replicated(r.stop, r.stream)
}

// reclaim claims entries that have been idle for minIdle: those of consumers that died, and our own of a reply that was lost.
// Entries in flight here may be among them, and are left alone.
func (r *reader) reclaim(count int) error {
	entries, next, deleted, err := r.cfg.client.XAutoClaimWithDeleted(r.stop, &redis.XAutoClaimArgs{
		Stream:   r.stream,
		Group:    r.cfg.group,
		Consumer: r.cfg.name,
		MinIdle:  r.cfg.minIdle,
		Start:    r.reclaimFrom,
		Count:    int64(count),
	}).Result()
	if err != nil {
		return err
	}
	if len(entries) > 0 {
		if err := r.replicated(); err != nil {
			return err
		}
	}
	r.reclaimFrom = next
	if next == firstID {
		r.reclaimAt = time.Now().Add(r.cfg.reclaimEvery)
	}
	r.reportDeleted(deleted)
	if added := r.accept(entries); added > 0 {
		r.counters.reclaimed.Add(float64(added))
		r.log.Info("claimed entries of a consumer that was silent", "entries", added)
	}
	return nil
}

// accept puts entries into the window and sends their messages, in order. It returns how many were not in flight before.
func (r *reader) accept(read []redis.XMessage) int {
	entries := make([]*entry, len(read))
	for i := range read {
		entries[i] = &entry{id: read[i].ID, fields: read[i].Values}
	}
	entries = r.window.add(entries, time.Now())
	r.counters.read.Add(float64(len(entries)))
	r.counters.inFlight.Add(float64(len(entries)))
	r.ackTrimmed(entries)
	r.sendFirst(entries)
	return len(entries)
}

// sendFirst sends the entries for the first time, in order, as many to a message as the handler takes. An entry that makes no message
// goes to the poison stream.
func (r *reader) sendFirst(entries []*entry) {
	if len(entries) == 0 {
		return
	}
	sent := make(chan *delivery, len(entries))
	defer close(sent)
	r.waiting.Go(func() { r.awaitVerdicts(sent) })
	var batch []*entry
	for _, e := range entries {
		if r.stop.Err() != nil {
			return
		}
		if e.fields == nil {
			continue
		}
		msg, err := r.messageOf(e)
		switch {
		case err != nil:
			r.waiting.Go(func() { r.poisonUnreadable(e, err) })
		case r.cfg.inBatches:
			batch = append(batch, e)
		default:
			r.send(msg, []*entry{e}, sent)
		}
	}
	if len(batch) > 0 {
		r.send(nil, batch, sent)
	}
}

// messageOf reads an entry in the form that redisstream.Publisher and Dibs' scripts write. There is no message for handlers that take
// batches: they find the entries by the context.
func (s *subscription) messageOf(e *entry) (msg *message.Message, err error) {
	if !s.cfg.inBatches {
		msg, err = redisstream.DefaultMarshallerUnmarshaller{}.Unmarshal(e.fields)
	}
	if err != nil || !s.cfg.decode {
		return msg, err
	}
	payload, _ := e.fields["payload"].(string)
	e.event.Payload = []byte(payload)
	if metadata, _ := e.fields["metadata"].(string); metadata != "" && s.cfg.tracer != nil {
		e.event.TraceParent = tracing.ParentIn(metadata)
	}
	e.event.Event, err = models.DecodeEvent(e.event.Payload)
	return msg, err
}

// ackTrimmed reports the entries that are gone from the stream, and acks them.
func (r *reader) ackTrimmed(entries []*entry) {
	var gone []string
	for _, e := range entries {
		if e.fields == nil {
			gone = append(gone, e.id)
			r.acks.add(e)
		}
	}
	r.reportLost(gone)
}

// reportDeleted reports entries that XAUTOCLAIM has taken off the list of pending ones because they are gone from the stream. It
// looks at those of every consumer, however fresh; what is in flight here was read in time.
func (r *reader) reportDeleted(ids []string) {
	var gone []string
	for _, id := range ids {
		if !r.window.holds(id) {
			gone = append(gone, id)
		}
	}
	r.reportLost(gone)
}

// reportLost reports entries that were trimmed before they were acknowledged. Redis tells that to the consumer that looks first, so
// another one may have such an entry in flight still.
func (r *reader) reportLost(ids []string) {
	if len(ids) == 0 {
		return
	}
	r.counters.lost.Add(float64(len(ids)))
	r.log.Error("the stream was trimmed before these entries were handled: this group never gets their events",
		"entries", len(ids), "first", ids[0], "last", ids[len(ids)-1])
}
