package consumer

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/redis/go-redis/v9"

	"dibs/consumer/redisbatch"
	"dibs/lua"
	"dibs/models"
	"dibs/models/event"
)

const (
	// parkedPage is how many messages are read and replayed at once, so
	// that handlers can batch.
	parkedPage = 256
	// deleteTimeout bounds the deletion of
	// handled messages after ctx has ended.
	deleteTimeout = 2 * time.Second
)

// Fields of a parked entry, in front of its own.
const (
	parkedIDField     = "_dibs_id"     // id of the entry in its stream
	parkedGroupField  = "_dibs_group"  // group that could not handle it
	parkedReasonField = "_dibs_reason" // for operators
	parkedTriesField  = "_dibs_tries"  // attempts of the process that parked it; 0: unreadable
	parkedAtField     = "_dibs_at"     // in models.TimeLayout, by that process' clock
)

const reasonLength = 1000 // bytes

// ErrNoParked reports an id without a parked message.
var ErrNoParked = errors.New("consumer: no such parked message")

// Parked is a message that a group could not handle.
type Parked struct {
	// its own: "p<partition>/<entry id in the parked stream>"
	ID        string      `json:"id"`
	EventID   string      `json:"event_id"`  // "" if unreadable
	Partition int         `json:"partition"` // of its claim stream
	Entry     string      `json:"entry"`     // its id in the claim stream
	Reason    string      `json:"reason"`
	Attempts  int64       `json:"attempts"` // of the process that parked it; 0: unreadable
	At        models.Time `json:"at"`       // when it was parked
	Payload   string      `json:"payload"`  // unchanged

	key, entryID string // the parked stream and the entry there
}

// Is reports whether id is this message's id, or its event's.
func (p *Parked) Is(id string) bool { return id == p.ID || id != "" && id == p.EventID }

// ParkingLot is what a group has parked in all
// partitions. It is safe for concurrent use.
type ParkingLot struct {
	client     redis.UniversalClient
	partitions int
	group      string
}

// NewParkingLot returns the parking lot of a group.
func NewParkingLot(client redis.UniversalClient, partitions int, group string) *ParkingLot {
	return &ParkingLot{client: client, partitions: max(partitions, 1), group: group}
}

// All yields every parked message, oldest first, by partition. It ends
// after an error. It may omit messages parked after its start, so that
// a replay that parks again ends.
func (l *ParkingLot) All(ctx context.Context) iter.Seq2[Parked, error] {
	return func(yield func(Parked, error) bool) {
		for p := range l.partitions {
			more, err := l.in(ctx, p, yield)
			if err != nil {
				yield(Parked{}, fmt.Errorf("consumer: reading %s: %w", lua.ParkedKey(p, l.group), err))
			}
			if err != nil || !more {
				return
			}
		}
	}
}

func (l *ParkingLot) in(ctx context.Context, partition int, yield func(Parked, error) bool) (more bool, err error) {
	key := lua.ParkedKey(partition, l.group)
	from := "-"
	last, err := l.client.XRevRangeN(ctx, key, "+", "-", 1).Result()
	for err == nil && len(last) > 0 {
		page, err := l.client.XRangeN(ctx, key, from, last[0].ID, parkedPage).Result()
		if err != nil {
			return true, err
		}
		for i := range page {
			if !yield(parkedOf(partition, key, &page[i]), nil) {
				return false, nil
			}
			from = "(" + page[i].ID
		}
		if len(page) < parkedPage {
			return true, nil
		}
	}
	return true, err
}

// named yields the message with an id, or
// all if it may be the id of an event.
func (l *ParkingLot) named(ctx context.Context, id string) iter.Seq2[Parked, error] {
	number, entry, _ := strings.Cut(id, "/")
	partition, err := strconv.Atoi(strings.TrimPrefix(number, "p"))
	_, notEntry := lua.ParseEntryID(entry)
	if err != nil || notEntry != nil || partition < 0 || partition >= l.partitions {
		return l.All(ctx)
	}
	return func(yield func(Parked, error) bool) {
		key := lua.ParkedKey(partition, l.group)
		found, err := l.client.XRange(ctx, key, entry, entry).Result()
		if err != nil {
			yield(Parked{}, fmt.Errorf("consumer: reading %s: %w", key, err))
		} else if len(found) > 0 {
			yield(parkedOf(partition, key, &found[0]), nil)
		}
	}
}

// Count counts the parked messages of all partitions.
func (l *ParkingLot) Count(ctx context.Context) (sum int64, err error) {
	for p := range l.partitions {
		n, err := l.client.XLen(ctx, lua.ParkedKey(p, l.group)).Result()
		if err != nil {
			return 0, fmt.Errorf("consumer: counting %s: %w", lua.ParkedKey(p, l.group), err)
		}
		sum += n
	}
	return sum, nil
}

func parkedOf(partition int, key string, message *redis.XMessage) Parked {
	field := func(name string) string {
		text, _ := message.Values[name].(string)
		return text
	}
	p := Parked{
		ID: "p" + strconv.Itoa(partition) + "/" + message.ID, Partition: partition,
		Entry: field(parkedIDField), Reason: field(parkedReasonField), Payload: field("payload"),
		key: key, entryID: message.ID,
	}
	if e, err := event.Decode([]byte(p.Payload)); err == nil {
		p.EventID = e.ID
	}
	p.Attempts, _ = strconv.ParseInt(field(parkedTriesField), 10, 64)
	if at, err := time.Parse(models.TimeLayout, field(parkedAtField)); err == nil {
		p.At = models.NewTime(at)
	} else if id, err := lua.ParseEntryID(message.ID); err == nil {
		p.At = models.TimeFromMs(int64(id.Ms))
	}
	return p
}

// Replay is the result of a replay of parked messages.
type Replay struct {
	Handled int      `json:"handled"` // and no longer parked
	Left    []Parked `json:"left"`    // still parked, with the new Reason
}

// Replay passes parked messages to a handler, all or those with an id. It
// deletes handled ones; the others stay. An attempt has DefaultHandleTimeout.
//
// Nothing returns to the claim stream, whose seqs are fixed. After a
// crash messages are replayed again, so handlers must be idempotent.
// Errors: ErrNoParked, and those of Redis.
func (l *ParkingLot) Replay(ctx context.Context, id string, handle HandleFunc) (Replay, error) {
	return l.replay(ctx, id, &service{handle, DefaultHandleTimeout})
}

func (l *ParkingLot) replay(ctx context.Context, id string, handling *service) (Replay, error) {
	var sum Replay
	var page []Parked
	found := id == ""
	for p, err := range l.named(ctx, id) {
		switch {
		case err != nil:
			return sum, err
		case id != "" && !p.Is(id):
			continue
		}
		found = true
		page = append(page, p)
		if len(page) == parkedPage {
			if err := l.replayPage(ctx, handling, page, &sum); err != nil {
				return sum, err
			}
			page = nil
		}
	}
	if !found {
		return sum, fmt.Errorf("%w: %q", ErrNoParked, id)
	}
	err := l.replayPage(ctx, handling, page, &sum)
	return sum, err
}

func (l *ParkingLot) replayPage(ctx context.Context, handling *service, page []Parked, sum *Replay) error {
	var running sync.WaitGroup
	failures := make([]error, len(page))
	for i := range page {
		running.Go(func() {
			e := event.Raw{Payload: []byte(page[i].Payload)}
			e.Event, failures[i] = event.Decode(e.Payload)
			if failures[i] == nil {
				failures[i] = handling.once(ctx, &e)
			}
		})
	}
	running.Wait()
	var handled []Parked
	for i, p := range page {
		if err := failures[i]; err != nil {
			p.Reason = err.Error()
			sum.Left = append(sum.Left, p)
		} else {
			handled = append(handled, p)
		}
	}
	// Handled messages are deleted even if the caller's time is over.
	deleting, cancel := context.WithTimeout(context.WithoutCancel(ctx), deleteTimeout)
	defer cancel()
	if err := l.remove(deleting, handled); err != nil {
		return err
	}
	sum.Handled += len(handled)
	return ctx.Err()
}

// Find returns messages by id. Errors: ErrNoParked.
func (l *ParkingLot) Find(ctx context.Context, id string) (found []Parked, err error) {
	for p, err := range l.named(ctx, id) {
		if err != nil {
			return nil, err
		}
		if p.Is(id) {
			found = append(found, p)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%w: %q", ErrNoParked, id)
	}
	return found, nil
}

// Discard deletes and returns messages by id. Errors: ErrNoParked.
func (l *ParkingLot) Discard(ctx context.Context, id string) ([]Parked, error) {
	chosen, err := l.Find(ctx, id)
	if err != nil {
		return nil, err
	}
	return chosen, l.remove(ctx, chosen)
}

const replaysFor = 24 * time.Hour

// AskReplay requests that the group's processes
// replay messages by id, within seconds.
func (l *ParkingLot) AskReplay(ctx context.Context, ids ...string) error {
	_, err := l.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, id := range ids {
			pipe.HSet(ctx, lua.ReplaysKey(l.group), id, "")
		}
		pipe.Expire(ctx, lua.ReplaysKey(l.group), replaysFor)
		return nil
	})
	if err != nil {
		return fmt.Errorf("consumer: asking for a replay: %w", err)
	}
	return nil
}

// Asked returns the ids that await a replay,
// with the failure of the last one or "".
func (l *ParkingLot) Asked(ctx context.Context) (map[string]string, error) {
	asked, err := l.client.HGetAll(ctx, lua.ReplaysKey(l.group)).Result()
	if err != nil {
		return nil, fmt.Errorf("consumer: reading %s: %w", lua.ReplaysKey(l.group), err)
	}
	return asked, nil
}

// ReplayAsked calls replay for requested
// messages. left is why it stays parked, or "".
func (l *ParkingLot) ReplayAsked(
	ctx context.Context, replay func(ctx context.Context, id string) (left string, err error),
) error {
	asked, err := l.Asked(ctx)
	if err != nil {
		return err
	}
	for id, reason := range asked {
		if reason != "" {
			continue
		}
		left, err := replay(ctx, id)
		switch {
		case err != nil:
		case left == "":
			err = l.client.HDel(ctx, lua.ReplaysKey(l.group), id).Err()
		default:
			err = l.client.HSet(ctx, lua.ReplaysKey(l.group), id, left[:min(len(left), reasonLength)]).Err()
		}
		if err != nil {
			return fmt.Errorf("consumer: replaying %s: %w", id, err)
		}
	}
	return nil
}

func (l *ParkingLot) remove(ctx context.Context, list []Parked) error {
	ids := make(map[string][]string)
	for _, p := range list {
		ids[p.key] = append(ids[p.key], p.entryID)
	}
	for key, list := range ids {
		if err := l.client.XDel(ctx, key, list...).Err(); err != nil {
			return fmt.Errorf("consumer: deleting from %s: %w", key, err)
		}
	}
	return nil
}

// parking is the publisher of watermill's PoisonQueue.
// A message is acknowledged after it was parked. If
// the process dies in between, it is parked twice.
//
// Rejected: a MULTI of XADD and XACK. If the
// XADD fails, Redis still does the XACK.
type parking struct{ *partition }

const triesKey = "dibs_tries" // metadata: the attempts at a parked message

// Publish parks the entry of each message. It refuses beyond ParkedMax,
// which processes may exceed together: if every entry fails, they stay
// in their stream, and Redis does not fill up.
func (p *parking) Publish(key string, messages ...*message.Message) error {
	for _, msg := range messages {
		entries, err := redisbatch.Unmarshal(msg.Payload)
		if err != nil {
			return err
		}
		entry := entries[0]
		n, err := p.cfg.Client.XLen(msg.Context(), key).Result()
		switch {
		case err != nil:
			return fmt.Errorf("consumer: counting %s: %w", key, err)
		case n >= p.cfg.ParkedMax:
			return fmt.Errorf("consumer: %s is full, it holds %d entries: replay or delete some of them", key, n)
		}
		reason := msg.Metadata.Get(middleware.ReasonForPoisonedKey)
		if err := p.cfg.Client.XAdd(msg.Context(), &redis.XAddArgs{Stream: key, Values: append([]string{
			parkedIDField, entry.ID,
			parkedGroupField, p.cfg.Group,
			parkedReasonField, reason[:min(len(reason), reasonLength)],
			parkedTriesField, msg.Metadata.Get(triesKey),
			parkedAtField, models.NewTime(time.Now()).Format(models.TimeLayout),
		}, entry.Fields...)}).Err(); err != nil {
			return fmt.Errorf("consumer: adding entry %s to %s: %w", entry.ID, key, err)
		}
		p.poisoned.WithLabelValues(p.cfg.Group, p.label).Inc()
		p.cfg.Logger.Error("entry cannot be handled, it is parked", "entry", entry.ID, "parked_stream", key, "reason", reason)
	}
	return nil
}

// Close does nothing: the client is not the publisher's.
func (p *parking) Close() error { return nil }
