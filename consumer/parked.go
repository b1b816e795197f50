package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"dibs/lua"
	"dibs/models"
)

const (
	// parkedPage is how many parked messages are read, and how many replayed at once, so that a handler can batch them.
	parkedPage = 256
	// parkedIDPrefix begins the id of a parked message.
	parkedIDPrefix = "p"
)

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

// Each calls visit with every parked message, oldest first, partition by partition. It ends with the error of visit, or of Redis.
// Messages that are parked meanwhile may be left out.
func (l *ParkingLot) Each(ctx context.Context, visit func(Parked) error) error {
	return l.pages(ctx, func(page []Parked) error {
		for _, p := range page {
			if err := visit(p); err != nil {
				return err
			}
		}
		return nil
	})
}

// pages calls visit with pages of the parked messages. Its own errors are wrapped, visit's are not.
func (l *ParkingLot) pages(ctx context.Context, visit func([]Parked) error) error {
	for p := range l.partitions {
		key := lua.ParkedKey(p, l.group)
		last, err := l.newest(ctx, key)
		for from := "-"; err == nil && last != ""; {
			var entries []redis.XMessage
			if entries, err = l.client.XRangeN(ctx, key, from, last, parkedPage).Result(); err != nil || len(entries) == 0 {
				break
			}
			page := make([]Parked, len(entries))
			for i := range entries {
				page[i] = parkedOf(p, key, &entries[i])
			}
			if err := visit(page); err != nil {
				return err
			}
			from = "(" + entries[len(entries)-1].ID
		}
		if err != nil {
			return fmt.Errorf("consumer: reading %s: %w", key, err)
		}
	}
	return nil
}

// newest is the last entry there is now, so that a replay whose messages are parked again comes to an end.
func (l *ParkingLot) newest(ctx context.Context, key string) (id string, err error) {
	entries, err := l.client.XRevRangeN(ctx, key, "+", "-", 1).Result()
	if err != nil || len(entries) == 0 {
		return "", err
	}
	return entries[0].ID, nil
}

func (l *ParkingLot) count(ctx context.Context, partition int) (int64, error) {
	return l.client.XLen(ctx, lua.ParkedKey(partition, l.group)).Result()
}

func parkedOf(partition int, key string, message *redis.XMessage) Parked {
	field := func(name string) string {
		text, _ := message.Values[name].(string)
		return text
	}
	p := Parked{
		ID: parkedIDPrefix + strconv.Itoa(partition) + "/" + message.ID, Partition: partition,
		Entry: field(poisonIDField), Reason: field(poisonReasonField), Payload: field("payload"), key: key, entryID: message.ID,
	}
	if e, err := models.DecodeEvent([]byte(p.Payload)); err == nil {
		p.EventID = e.ID
	}
	p.Attempts, _ = strconv.ParseInt(field(poisonTriesField), 10, 64)
	if at, err := time.Parse(models.TimeLayout, field(poisonAtField)); err == nil {
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

// ReplayConfig says what to replay.
type ReplayConfig struct {
	Handle HandleFunc   // required; an attempt has DefaultHandleTimeout
	ID     string       // of one message, or of its event; "" is all
	Logger *slog.Logger // required
}

// Replay hands parked messages to a handler once more, and deletes those that it handles. It does not put them back into the claim
// stream, where seq must stay as it is. A message that the handler refuses, for good or for now, stays parked. After a crash in
// between, messages are replayed again, which any handler must stand. Errors: ErrNoParked when there is no message ID; those of Redis.
func (l *ParkingLot) Replay(ctx context.Context, cfg ReplayConfig) (Replay, error) {
	var sum Replay
	found := cfg.ID == ""
	handling := ServiceConfig{Handle: cfg.Handle, Logger: cfg.Logger}.WithDefaults()
	err := l.pages(ctx, func(page []Parked) error {
		if cfg.ID != "" {
			page = slices.DeleteFunc(page, func(p Parked) bool { return !p.Is(cfg.ID) })
			found = found || len(page) > 0
		}
		return l.replayPage(ctx, &handling, page, &sum)
	})
	if err == nil && !found {
		err = fmt.Errorf("%w: %q", ErrNoParked, cfg.ID)
	}
	return sum, err
}

func (l *ParkingLot) replayPage(ctx context.Context, cfg *ServiceConfig, page []Parked, sum *Replay) error {
	var running sync.WaitGroup
	failures := make([]error, len(page))
	for i := range page {
		running.Go(func() { failures[i] = replayOne(ctx, cfg, &page[i]) })
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
	if ctx.Err() != nil && len(handled) == 0 {
		return ctx.Err()
	}
	// What was handled is deleted even when the caller has no more time for the rest.
	deleting, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
	defer cancel()
	if err := l.remove(deleting, handled); err != nil {
		return err
	}
	sum.Handled += len(handled)
	return ctx.Err()
}

func replayOne(ctx context.Context, cfg *ServiceConfig, p *Parked) error {
	event, err := models.DecodeEvent([]byte(p.Payload))
	if err != nil {
		return err
	}
	return attempt(ctx, cfg, &event, []byte(p.Payload))
}

// Discard deletes a parked message for good, by its own id or its event's, and returns what it was. Errors: ErrNoParked.
func (l *ParkingLot) Discard(ctx context.Context, id string) ([]Parked, error) {
	var chosen []Parked
	err := l.Each(ctx, func(p Parked) error {
		if p.Is(id) {
			chosen = append(chosen, p)
		}
		return nil
	})
	if err == nil && len(chosen) == 0 {
		err = fmt.Errorf("%w: %q", ErrNoParked, id)
	}
	if err != nil {
		return nil, err
	}
	return chosen, l.remove(ctx, chosen)
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
