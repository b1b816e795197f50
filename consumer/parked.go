package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"dibs/lua"
	"dibs/models"
)

const (
	// parkedPage is how many parked messages are read, and how many replayed at once, so that a handler can batch them.
	parkedPage = 256
	// parkedTagPrefix begins the id of a parked message.
	parkedTagPrefix = "p"
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

	key, place string // stream and entry that hold it
}

// Is tells whether id means this message: its own id, or its event's.
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

// Each calls take with every parked message, those parked first at first, partition by partition. It ends with the error of
// take, or of Redis. Messages that are parked meanwhile may be left out.
func (l *ParkingLot) Each(ctx context.Context, take func(Parked) error) error {
	return l.pages(ctx, func(page []Parked) error {
		for _, p := range page {
			if err := take(p); err != nil {
				return err
			}
		}
		return nil
	})
}

func (l *ParkingLot) pages(ctx context.Context, take func([]Parked) error) error {
	for p := range l.partitions {
		if err := l.pagesOf(ctx, p, take); err != nil {
			return err
		}
	}
	return nil
}

func (l *ParkingLot) pagesOf(ctx context.Context, partition int, take func([]Parked) error) error {
	key := lua.ParkedKey(partition, l.group)
	last, err := l.newest(ctx, key)
	for from := "-"; err == nil && last != ""; {
		var entries []redis.XMessage
		if entries, err = l.client.XRangeN(ctx, key, from, last, parkedPage).Result(); err != nil || len(entries) == 0 {
			break
		}
		page := make([]Parked, len(entries))
		for i := range entries {
			page[i] = parkedOf(partition, key, &entries[i])
		}
		if err := take(page); err != nil {
			return err
		}
		from = "(" + entries[len(entries)-1].ID
	}
	if err != nil {
		return fmt.Errorf("consumer: reading %s: %w", key, err)
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

func parkedOf(partition int, key string, entry *redis.XMessage) Parked {
	field := func(name string) string {
		text, _ := entry.Values[name].(string)
		return text
	}
	p := Parked{
		ID: parkedTagPrefix + strconv.Itoa(partition) + "/" + entry.ID, Partition: partition,
		Entry: field(PoisonIDField), Reason: field(PoisonReasonField), Payload: field("payload"), key: key, place: entry.ID,
	}
	if e, err := models.DecodeEvent([]byte(p.Payload)); err == nil {
		p.EventID = e.ID
	}
	p.Attempts, _ = strconv.ParseInt(field(PoisonTriesField), 10, 64)
	if at, err := time.Parse(models.TimeLayout, field(PoisonAtField)); err == nil {
		p.At = models.NewTime(at)
	} else {
		p.At = models.TimeFromMs(entryMs(entry.ID))
	}
	return p
}

// Replay is how a replay of parked messages ended.
type Replay struct {
	Handled int      `json:"handled"` // taken by the handler, and parked no more
	Left    []Parked `json:"left"`    // still parked, each with why as its Reason
}

// ReplayConfig says what to replay.
type ReplayConfig struct {
	Handle  HandleFunc    // required
	ID      string        // of one message, or of its event; "" is all
	Timeout time.Duration // of one attempt; 0 is DefaultHandleTimeout
	Logger  *slog.Logger  // required
}

// Replay hands parked messages to a handler once more, and deletes those that it takes. They are not put back into the
// claim stream, where seq must stay as it is. A message that the handler refuses, for good or for now, stays where it is. A
// crash in between has messages replayed again, as any handler must stand. Errors: ErrNoParked when there is no message ID;
// those of Redis.
func (l *ParkingLot) Replay(ctx context.Context, cfg ReplayConfig) (Replay, error) {
	var sum Replay
	found := cfg.ID == ""
	attempts := ServiceConfig{Handle: cfg.Handle, Timeout: orDefault(cfg.Timeout, DefaultHandleTimeout), Logger: cfg.Logger}
	err := l.pages(ctx, func(page []Parked) error {
		chosen := page
		if cfg.ID != "" {
			chosen = nil
			for _, p := range page {
				if p.Is(cfg.ID) {
					chosen = append(chosen, p)
				}
			}
			found = found || len(chosen) > 0
		}
		return l.replayPage(ctx, &attempts, chosen, &sum)
	})
	if err == nil && !found {
		err = fmt.Errorf("%w: %q", ErrNoParked, cfg.ID)
	}
	return sum, err
}

func (l *ParkingLot) replayPage(ctx context.Context, cfg *ServiceConfig, page []Parked, sum *Replay) error {
	var (
		mu      sync.Mutex
		handled []Parked
		running errgroup.Group
	)
	for _, p := range page {
		running.Go(func() error {
			err := replayOne(ctx, cfg, &p)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				handled = append(handled, p)
				return nil
			}
			p.Reason = err.Error()
			sum.Left = append(sum.Left, p)
			return nil
		})
	}
	_ = running.Wait() // what fails is left
	if ctx.Err() != nil && len(handled) == 0 {
		return ctx.Err()
	}
	// What was handled is noted even when the caller has no more time for the rest.
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
	places := make(map[string][]string)
	for _, p := range list {
		places[p.key] = append(places[p.key], p.place)
	}
	for key, ids := range places {
		if err := l.client.XDel(ctx, key, ids...).Err(); err != nil {
			return fmt.Errorf("consumer: deleting from %s: %w", key, err)
		}
	}
	return nil
}
