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
)

const (
	// parkedPage is how many parked messages are read, and how many replayed at once, so that a handler can batch them.
	parkedPage = 256
	// deleteTimeout bounds the deletion of what was handled when the caller's context has ended.
	deleteTimeout = 2 * time.Second
)

// Fields of a parked entry, before the fields that the entry had.
const (
	parkedIDField     = "_dibs_id"     // id of the entry in its stream
	parkedGroupField  = "_dibs_group"  // group that could not handle it
	parkedReasonField = "_dibs_reason" // why, for people
	parkedTriesField  = "_dibs_tries"  // how often the process that gave up had handed it to its handler; 0: it could not be read
	parkedAtField     = "_dibs_at"     // when, in models.TimeLayout, by that process' clock
)

// reasonLength bounds the reason, in bytes.
const reasonLength = 1000

// ErrNoParked says that no parked message has the id that was asked for.
var ErrNoParked = errors.New("consumer: no such parked message")

// Parked is a message that a group could not handle.
type Parked struct {
	ID        string      `json:"id"`        // its own: "p<partition>/<entry id in the parked stream>"
	EventID   string      `json:"event_id"`  // "" when it could not be read
	Partition int         `json:"partition"` // of its claim stream
	Entry     string      `json:"entry"`     // its id in the claim stream
	Reason    string      `json:"reason"`
	Attempts  int64       `json:"attempts"` // by the process that parked it; 0: it could not be read
	At        models.Time `json:"at"`       // when it was parked
	Payload   string      `json:"payload"`  // as it came

	key, entryID string // the parked stream and the entry there
}

// Is reports whether id means this message: its own id, or its event's.
func (p *Parked) Is(id string) bool { return id == p.ID || id != "" && id == p.EventID }

// ParkingLot is what a group has parked, in all partitions. Any number of goroutines and processes may share it.
type ParkingLot struct {
	client     redis.UniversalClient
	partitions int
	group      string
}

// NewParkingLot returns the lot of a group.
func NewParkingLot(client redis.UniversalClient, partitions int, group string) *ParkingLot {
	return &ParkingLot{client: client, partitions: max(partitions, 1), group: group}
}

// All yields every parked message, oldest first, partition by partition. It ends after an error of Redis. Messages that are parked after
// it started may be left out, so that a replay whose messages are parked again comes to an end.
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

// in yields what is parked in a partition, and reports whether the caller wants more.
func (l *ParkingLot) in(ctx context.Context, partition int, yield func(Parked, error) bool) (more bool, err error) {
	key := lua.ParkedKey(partition, l.group)
	from := "-"
	last, err := l.client.XRevRangeN(ctx, key, "+", "-", 1).Result()
	for err == nil && len(last) > 0 {
		page, err := l.client.XRangeN(ctx, key, from, last[0].ID, parkedPage).Result()
		for i := range page {
			if !yield(parkedOf(partition, key, &page[i]), nil) {
				return false, nil
			}
			from = "(" + page[i].ID
		}
		if err != nil || len(page) < parkedPage {
			return true, err
		}
	}
	return true, err
}

// named yields the messages that an id may mean: the one whose own id it is, or else all, as it may be an event's.
func (l *ParkingLot) named(ctx context.Context, id string) iter.Seq2[Parked, error] {
	place, entry, _ := strings.Cut(id, "/")
	partition, err := strconv.Atoi(strings.TrimPrefix(place, "p"))
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
		Entry: field(parkedIDField), Reason: field(parkedReasonField), Payload: field("payload"), key: key, entryID: message.ID,
	}
	if e, err := models.DecodeEvent([]byte(p.Payload)); err == nil {
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
	Handled int      `json:"handled"` // by the handler, and parked no more
	Left    []Parked `json:"left"`    // still parked, each with why as its Reason
}

// Replay hands parked messages to a handler once more, all or the one with an id of its own or its event's, and deletes those that it
// handles. An attempt has DefaultHandleTimeout. It does not put them back into the claim
// stream, where seq must stay as it is. A message that the handler refuses, for good or for now, stays parked. After a crash in
// between, messages are replayed again, which every handler must tolerate. Errors: ErrNoParked when there is no message ID; those of Redis.
func (l *ParkingLot) Replay(ctx context.Context, id string, handle HandleFunc) (Replay, error) {
	var sum Replay
	var page []Parked
	handling := &service{handle, DefaultHandleTimeout}
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
			e := models.RawEvent{Payload: []byte(page[i].Payload)}
			e.Event, failures[i] = models.DecodeEvent(e.Payload)
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
	// What was handled is deleted even when the caller has no more time for the rest.
	deleting, cancel := context.WithTimeout(context.WithoutCancel(ctx), deleteTimeout)
	defer cancel()
	if err := l.remove(deleting, handled); err != nil {
		return err
	}
	sum.Handled += len(handled)
	return ctx.Err()
}

// Discard deletes a parked message for good, by its own id or its event's, and returns what it was. Errors: ErrNoParked.
func (l *ParkingLot) Discard(ctx context.Context, id string) ([]Parked, error) {
	var chosen []Parked
	for p, err := range l.named(ctx, id) {
		if err != nil {
			return nil, err
		}
		if p.Is(id) {
			chosen = append(chosen, p)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("%w: %q", ErrNoParked, id)
	}
	return chosen, l.remove(ctx, chosen)
}

// replaysFor is how long it is remembered which messages are to be replayed.
const replaysFor = 24 * time.Hour

// AskReplay has a process of the group replay messages, by their own ids, within some seconds.
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

// Asked are the ids of messages that are to be replayed, each with why its last replay left it; "" is one that no one has replayed yet.
func (l *ParkingLot) Asked(ctx context.Context) (map[string]string, error) {
	asked, err := l.client.HGetAll(ctx, lua.ReplaysKey(l.group)).Result()
	if err != nil {
		return nil, fmt.Errorf("consumer: reading %s: %w", lua.ReplaysKey(l.group), err)
	}
	return asked, nil
}

// ReplayAsked calls replay for each message that is to be replayed. replay returns why it left the message, "" when it did not.
func (l *ParkingLot) ReplayAsked(ctx context.Context, replay func(ctx context.Context, id string) (left string, err error)) error {
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

// remove deletes messages of one or more partitions.
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

// parking is what watermill's PoisonQueue publishes to. A message is acked after it was parked. It may be parked twice when a process
// dies in between. (One MULTI of XADD and XACK would not be better: Redis rolls nothing back, and where the XADD fails the XACK would
// be done all the same.)
type parking struct{ *partition }

// triesKey is the metadata of a message that is parked: how often it was handled.
const triesKey = "dibs_tries"

// Publish adds the entry of each message to a stream of parked messages, with its own fields. It refuses when ParkedMax are there, so that
// a fault that concerns every entry does not fill Redis: the entries then stay where they are. Several processes may exceed the limit.
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
