package consumer

import (
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cenkalti/backoff/v5"
	"github.com/redis/go-redis/v9"
)

// firstID is before the first entry of any stream, and the cursor of a finished XAUTOCLAIM.
const firstID = "0-0"

// reader brings entries from Redis into the window and hands them out in order. What it knows of Redis' state is
// doubted after every error: it joins the group anew when that is gone, and reads its own pending entries again, for a
// reply that was lost on its way left entries there that nobody here has seen. After the loss of the group it parts with
// what is in flight: the group made anew delivers all of the stream, and handlers deduplicate.
type reader struct {
	*subscription
	retry *backoff.ExponentialBackOff

	joined    bool
	caughtUp  bool   // with our own pending entries
	pendingAt string // cursor among them

	reclaimAt   time.Time
	reclaimFrom string // cursor of XAUTOCLAIM
}

func (r *reader) run() {
	r.doubt()
	for r.stop.Err() == nil {
		if err := r.step(); err == nil {
			r.retry.Reset()
		} else if r.stop.Err() == nil {
			r.recover(err)
		}
	}
}

func (r *reader) recover(err error) {
	wait := r.retry.NextBackOff()
	r.meters.troubles.Inc()
	r.log.Warn("reading failed, will try again", "error", err, "wait_ms", wait.Milliseconds())
	r.doubt()
	if redis.HasErrorPrefix(err, "NOGROUP") {
		r.joined = false
		r.window.forget()
	}
	r.pause(wait)
}

func (r *reader) doubt() {
	r.caughtUp, r.pendingAt, r.reclaimFrom = false, firstID, firstID
}

// step does one thing: joins the group, or reads a batch from one of the three places where entries are.
func (r *reader) step() error {
	if !r.joined {
		return r.join()
	}
	wanted := min(r.cfg.ReadCount, max(1, r.cfg.Window/4))
	count := min(r.window.await(r.stop.Done(), wanted), r.cfg.ReadCount)
	switch {
	case count == 0:
		return nil // stopped
	case !r.caughtUp:
		return r.readPending(count)
	case !time.Now().Before(r.reclaimAt):
		return r.reclaim(count)
	default:
		return r.readNew(count)
	}
}

func (r *reader) join() error {
	if err := ensureGroup(r.stop, r.cfg.Client, r.stream, r.cfg.Group); err != nil {
		return err
	}
	r.joined = true
	return nil
}

// readPending reads on among the entries that Redis says this consumer has: what an earlier life left, and what was in
// a lost reply.
func (r *reader) readPending(count int) error {
	entries, err := r.xreadgroup(r.pendingAt, count, -1)
	if err != nil {
		return err
	}
	if len(entries) == 0 {
		r.caughtUp = true
		return nil
	}
	r.pendingAt = entries[len(entries)-1].ID
	r.take(entries)
	return nil
}

func (r *reader) readNew(count int) error {
	entries, err := r.xreadgroup(">", count, r.cfg.BlockTime)
	if err != nil {
		return err
	}
	r.take(entries)
	return nil
}

// xreadgroup reads the entries after an id; block < 0 does not wait.
func (r *reader) xreadgroup(after string, count int, block time.Duration) ([]redis.XMessage, error) {
	streams, err := r.cfg.Client.XReadGroup(r.stop, &redis.XReadGroupArgs{
		Group:    r.cfg.Group,
		Consumer: r.consumer,
		Streams:  []string{r.stream, after},
		Count:    int64(count),
		Block:    block,
	}).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, err
	}
	if len(streams) == 0 {
		return nil, nil
	}
	return streams[0].Messages, nil
}

// reclaim takes over entries that have been silent for MinIdle: those of consumers that died, and our own that were in
// a reply which never came. What is in flight here may be among them, and is left alone.
func (r *reader) reclaim(count int) error {
	entries, next, deleted, err := r.cfg.Client.XAutoClaimWithDeleted(r.stop, &redis.XAutoClaimArgs{
		Stream:   r.stream,
		Group:    r.cfg.Group,
		Consumer: r.consumer,
		MinIdle:  r.cfg.MinIdle,
		Start:    r.reclaimFrom,
		Count:    int64(count),
	}).Result()
	if err != nil {
		return err
	}
	r.reclaimFrom = next
	if next == firstID {
		r.reclaimAt = time.Now().Add(r.cfg.ReclaimEvery)
	}
	r.reportGone(deleted)
	if taken := r.take(entries); taken > 0 {
		r.meters.reclaimed.Add(float64(taken))
		r.log.Info("took over entries of a silent consumer", "entries", taken)
	}
	return nil
}

// take puts entries into the window and hands them out, in order. It returns how many were not in flight before.
func (r *reader) take(entries []redis.XMessage) int {
	flights := make([]*flight, len(entries))
	for i := range entries {
		flights[i] = &flight{Context: r.ctx, sub: r.subscription, id: entries[i].ID, fields: entries[i].Values}
	}
	flights = r.window.admit(flights, time.Now())
	r.meters.read.Add(float64(len(flights)))
	r.meters.inFlight.Add(float64(len(flights)))
	r.lose(flights)
	r.launch(flights)
	return len(flights)
}

// launch hands out the first message of each flight, in order, or starts the poisoning of one that makes no message.
func (r *reader) launch(flights []*flight) {
	if len(flights) == 0 {
		return
	}
	handed := make(chan carried, len(flights))
	defer close(handed)
	r.carriers.Add(1)
	go r.carry(handed)
	for _, f := range flights {
		if r.stop.Err() != nil {
			return
		}
		if f.fields == nil {
			continue
		}
		msg, err := r.unmarshal(f)
		if err != nil {
			r.carriers.Add(1)
			go r.carryPoison(f, err)
			continue
		}
		if d := f.deliver(msg); r.handOut(d) {
			handed <- carried{flight: f, delivery: d}
		}
	}
}

func (r *reader) unmarshal(f *flight) (*message.Message, error) {
	msg, err := r.cfg.Unmarshaller.Unmarshal(f.fields)
	if err == nil && r.cfg.Decode != nil {
		f.decoded, err = r.cfg.Decode(msg.Payload)
	}
	return msg, err
}

// lose reports the flights whose entries are gone from the stream, and acks them.
func (r *reader) lose(flights []*flight) {
	var gone []string
	for _, f := range flights {
		if f.fields == nil {
			gone = append(gone, f.id)
			r.acks.add(f)
		}
	}
	r.reportLoss(gone)
}

// reportGone reports entries that Redis has struck from the list of pending ones because they are gone from the stream;
// XAUTOCLAIM looks at everybody's, however fresh. What is in flight here was read in time.
func (r *reader) reportGone(ids []string) {
	var gone []string
	for _, id := range ids {
		if !r.window.holds(id) {
			gone = append(gone, id)
		}
	}
	r.reportLoss(gone)
}

func (r *reader) reportLoss(ids []string) {
	if len(ids) == 0 {
		return
	}
	r.meters.lost.Add(float64(len(ids)))
	r.log.Error("entries were gone from the stream before they were handled",
		"entries", len(ids), "first", ids[0], "last", ids[len(ids)-1])
	r.cfg.OnLoss(r.stream, ids)
}
