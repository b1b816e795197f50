package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cenkalti/backoff/v5"
	"github.com/redis/go-redis/v9"

	"dibs/internal/sleep"
	"dibs/internal/tracing"
	"dibs/lua"
	"dibs/models"
	"dibs/models/event"
)

var (
	// errTurn ends a turn without a failure: the next one starts at once.
	errTurn = errors.New("consumer: the reader begins again at MySQL's offset")
	// errGap reports that MySQL is older than the start of a stream.
	errGap = errors.New("consumer: the claim stream was trimmed past MySQL's offset: roll MySQL's binary log forward")
)

// offsetSubscriber is a message.Subscriber that reads from MySQL's offset.
type offsetSubscriber struct {
	*Applier

	mu      sync.Mutex
	stops   []context.CancelFunc
	readers sync.WaitGroup
}

// Subscribe starts the reader of a claim stream. A message has a StreamRead
// in its context and no payload. The next one follows after its ack.
func (s *offsetSubscriber) Subscribe(ctx context.Context, stream string) (<-chan *message.Message, error) {
	partition, err := strconv.Atoi(partitionOf(stream))
	if err != nil {
		return nil, fmt.Errorf("consumer: %q is no claim stream: %w", stream, err)
	}
	ctx, stop := context.WithCancel(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stops = append(s.stops, stop)
	retry := backoff.NewExponentialBackOff()
	retry.MaxInterval = time.Second
	retry.InitialInterval = 10 * time.Millisecond
	r := &offsetReader{
		Applier: s.Applier, partition: partition, stream: stream, out: make(chan *message.Message), retry: retry,
	}
	s.readers.Go(func() {
		defer close(r.out)
		r.run(ctx)
	})
	return r.out, nil
}

func (s *offsetSubscriber) Close() error {
	s.mu.Lock()
	for _, stop := range s.stops {
		stop()
	}
	s.mu.Unlock()
	s.readers.Wait()
	return nil
}

type offsetReader struct {
	*Applier

	partition  int
	stream     string
	out        chan *message.Message
	retry      *backoff.ExponentialBackOff
	isEmbedded bool // the Redis has no XGROUP SETID

	recovered int64 // the generation that this reader started and recovers
}

func (r *offsetReader) run(ctx context.Context) {
	for ctx.Err() == nil {
		held := ctx
		if r.cfg.Leases != nil {
			var err error
			held, err = r.cfg.Leases.Await(ctx, r.partition)
			if err != nil {
				return
			}
		}
		for held.Err() == nil {
			r.waitAfter(held, r.turn(held))
		}
	}
}

func (r *offsetReader) waitAfter(ctx context.Context, err error) {
	if err == nil || errors.Is(err, errTurn) || ctx.Err() != nil {
		r.retry.Reset()
		return
	}
	wait := r.retry.NextBackOff()
	r.metrics.errors.WithLabelValues(strconv.Itoa(r.partition)).Inc()
	level := slog.LevelWarn
	if errors.Is(err, errGap) {
		level = slog.LevelError
	}
	r.cfg.Logger.LogAttrs(ctx, level, "reading a claim stream failed, trying again", slog.String("stream", r.stream),
		slog.Any("error", err), slog.Int64("wait_ms", wait.Milliseconds()))
	_ = sleep.For(ctx, wait) // the caller checks ctx
}

func (r *offsetReader) turn(ctx context.Context) error {
	turn, offset, err := r.cfg.Log.Begin(ctx, r.partition)
	if err != nil {
		return err
	}
	// its reader died
	if offset.State == event.PartitionRecovering && offset.Generation != r.recovered {
		return r.recover(ctx, offset)
	}
	if err := r.checkStart(ctx, offset); err != nil {
		return err
	}
	if err := r.join(ctx); err != nil {
		return err
	}
	for at := offset; ; {
		free, err := r.cfg.Log.Free(ctx, r.partition, turn)
		if err != nil {
			return fmt.Errorf("%w: %w", errTurn, err)
		}
		entries, isThere, err := r.read(ctx, at, min(free, r.cfg.ReadCount))
		switch {
		case err != nil:
			return err
		case !isThere && at != offset: // the offset may have moved
			return errTurn
		case !isThere:
			return r.recover(ctx, offset)
		case offset.State == event.PartitionGap:
			return r.noGap(ctx, offset)
		case len(entries) == 0:
			err = r.await(ctx, at)
		default:
			at, err = r.deliver(ctx, turn, at, entries)
		}
		if err != nil {
			return err
		}
		r.retry.Reset()
	}
}

// checkStart refuses to start at the beginning of a trimmed stream.
func (r *offsetReader) checkStart(ctx context.Context, offset event.Offset) error {
	if !offset.IsStart() {
		return nil
	}
	trimmed, err := r.trimmed(ctx)
	if err != nil || trimmed == (lua.EntryID{}) {
		return err
	}
	return r.gap(ctx, offset, trimmed)
}

func (r *offsetReader) trimmed(ctx context.Context) (lua.EntryID, error) {
	text, err := r.cfg.Client.Get(ctx, lua.TrimmedKey(r.partition)).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return lua.EntryID{}, fmt.Errorf("consumer: %w", err)
	}
	return lua.ParseEntryID(text)
}

// read reads the entries after at, and reports whether at is in the
// stream. It sets the group's position, so readers share no entries,
// and XINFO GROUPS shows the lag.
func (r *offsetReader) read(
	ctx context.Context, at event.Offset, count int,
) (entries []redis.XMessage, isThere bool, err error) {
	tx := r.cfg.Client.TxPipeline()
	last := tx.XRangeN(ctx, r.stream, at.EntryID, at.EntryID, 1)
	set := r.setPosition(ctx, tx, at)
	read := tx.XReadGroup(ctx, &redis.XReadGroupArgs{
		Group: models.GroupSyncer, Consumer: r.cfg.Name, Streams: []string{r.stream, ">"},
		Count: int64(count), Block: -1, NoAck: true,
	})
	_, execErr := tx.Exec(ctx)
	switch {
	case isNoGroup(execErr) || isNoGroup(read.Err()):
		return nil, true, r.createGroup(ctx)
	case isUnsupported(set.Err()) && !r.isEmbedded:
		r.isEmbedded = true
		return r.read(ctx, at, count)
	case execErr != nil && !errors.Is(execErr, redis.Nil):
		return nil, false, fmt.Errorf("consumer: read: %w", execErr)
	}
	isThere = at.IsStart() || lua.IsEntry(last.Val(), at)
	if !isThere || len(read.Val()) == 0 {
		return nil, isThere, nil
	}
	r.beat()
	return read.Val()[0].Messages, true, nil
}

func (r *offsetReader) beat() { r.cfg.Heartbeat.Beat("the reader of "+r.stream, readDeadline) }

// setPosition sets the group's position. go-redis' call lacks
// ENTRIESREAD, and the embedded Redis lacks the command.
func (r *offsetReader) setPosition(ctx context.Context, tx redis.Pipeliner, at event.Offset) redis.Cmder {
	if !r.isEmbedded {
		return tx.Do(ctx, "xgroup", "setid", r.stream, models.GroupSyncer, at.EntryID, "entriesread", at.Read)
	}
	tx.XGroupDestroy(ctx, r.stream, models.GroupSyncer)
	return tx.XGroupCreateMkStream(ctx, r.stream, models.GroupSyncer, at.EntryID)
}

func isNoGroup(err error) bool {
	return err != nil && (redis.HasErrorPrefix(err, "NOGROUP") || strings.Contains(err.Error(), "requires the key to exist"))
}

func isUnsupported(err error) bool {
	return err != nil && strings.Contains(strings.ToLower(err.Error()), "not supported")
}

// join creates the group and its consumer, before there is anything to read.
func (r *offsetReader) join(ctx context.Context) error {
	if err := r.createGroup(ctx); err != nil {
		return err
	}
	return r.cfg.Client.XGroupCreateConsumer(ctx, r.stream, models.GroupSyncer, r.cfg.Name).Err()
}

func (r *offsetReader) createGroup(ctx context.Context) error {
	err := r.cfg.Client.XGroupCreateMkStream(ctx, r.stream, models.GroupSyncer, "0").Err()
	if err != nil && !redis.HasErrorPrefix(err, "BUSYGROUP") {
		return fmt.Errorf("consumer: creating group %s: %w", models.GroupSyncer, err)
	}
	return nil
}

// await waits for entries after at, up to BlockTime.
func (r *offsetReader) await(ctx context.Context, at event.Offset) error {
	args := &redis.XReadArgs{Streams: []string{r.stream, at.EntryID}, Count: 1, Block: r.cfg.BlockTime}
	err := r.cfg.Client.XRead(ctx, args).Err()
	r.beat()
	switch {
	case errors.Is(err, redis.Nil):
		return nil
	case err != nil:
		return fmt.Errorf("consumer: read: %w", err)
	}
	return sleep.For(ctx, r.cfg.GatherPause)
}

// deliver sends a read as a message, waits
// for its ack, and returns the new offset.
func (r *offsetReader) deliver(
	ctx context.Context, turn int64, at event.Offset, entries []redis.XMessage,
) (event.Offset, error) {
	read := r.decode(turn, at, entries)
	msg := message.NewMessageWithContext(context.WithValue(ctx, streamReadKey{}, read), read.Upto.EntryID, nil)
	select {
	case r.out <- msg:
	case <-ctx.Done():
		return at, context.Cause(ctx)
	}
	select {
	case <-msg.Acked():
		r.metrics.read.WithLabelValues(strconv.Itoa(r.partition)).Add(float64(len(entries)))
		return read.Upto, nil
	case <-msg.Nacked():
		return at, errTurn
	case <-ctx.Done():
		return at, context.Cause(ctx)
	}
}

func (r *offsetReader) decode(turn int64, at event.Offset, entries []redis.XMessage) *event.Read {
	last := &entries[len(entries)-1]
	read := &event.Read{
		Partition: r.partition, Turn: turn, Events: make([]event.Raw, 0, len(entries)),
		Upto: event.Offset{
			EntryID: last.ID, EventID: lua.EventIDOf(last), Read: at.Read + int64(len(entries)),
			Generation: at.Generation, State: at.State,
		},
	}
	for i := range entries {
		e := r.decodeOne(&entries[i])
		read.Events = append(read.Events, e)
		if e.Type == event.PartitionGeneration && e.Generation >= read.Upto.Generation {
			read.Upto.Generation = e.Generation
			read.Upto.State = event.PartitionOK
		}
	}
	return read
}

func (r *offsetReader) decodeOne(entry *redis.XMessage) event.Raw {
	payload, _ := entry.Values["payload"].(string)
	id := lua.EventIDOf(entry)
	decoded, err := event.Decode([]byte(payload))
	if id == "" && err == nil {
		err = errNoUUID
	}
	e := event.Raw{Event: decoded, Payload: []byte(payload)}
	if err != nil {
		e.Event = event.Event{ID: id}
		e.Unreadable = err.Error()
	}
	if r.cfg.Tracer != nil {
		metadata, _ := entry.Values["metadata"].(string)
		e.TraceParent = tracing.ParentIn(metadata)
	}
	return e
}
