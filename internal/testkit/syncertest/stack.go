package syncertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"gorm.io/gorm"

	"dibs/internal/redisconn"
	"dibs/internal/testkit/testenv"
	"dibs/lua"
	"dibs/models"
	"dibs/models/event"
	"dibs/syncer/adder"
	"dibs/syncer/compare"
	"dibs/syncer/lots"
	"dibs/syncer/offset"
	"dibs/syncer/writer"
)

// Stack is a Redis, a database, and the parts between them.
type Stack struct {
	T       testing.TB
	Server  *testenv.RedisServer
	Redis   *redis.Client
	DB      *gorm.DB
	Scripts *lua.Scripts
	Writer  *writer.Writer
}

// NewStack starts the servers.
func NewStack(t testing.TB) *Stack {
	t.Helper()
	server := testenv.Redis(t)
	rdb := server.Client()
	connected, err := redisconn.Connect(server.URL()) // as the commands do
	require.NoError(t, err)
	t.Cleanup(func() { _ = connected.Close() })
	scripts, err := lua.New(connected, lua.Options{})
	require.NoError(t, err)
	db := OpenServer(t)
	h := &Stack{T: t, Server: server, Redis: rdb, DB: db, Scripts: scripts}
	h.Writer = StartWriter(t, writer.Config{DB: db, Partitions: scripts.Partitions(), FlushInterval: time.Millisecond})
	return h
}

// Create makes a campaign and loads it into Redis.
func (h *Stack) Create(total int64, change func(c *models.Campaign)) string {
	h.T.Helper()
	c := CampaignOf(testenv.UniqueID(h.T, "c"), total)
	if change != nil {
		change(&c)
	}
	_, _, err := NewCampaigns(h.T, h.DB, h.Scripts).Create(h.T.Context(), c)
	require.NoError(h.T, err)
	h.Sync()
	require.NoError(h.T, h.Load(c.ID))
	h.Sync()
	return c.ID
}

// Loader makes a loader, like that of another process.
func (h *Stack) Loader() *lots.Loader { return NewLoader(h.T, h.DB, h.Scripts) }

// Load loads a campaign with its own loader.
func (h *Stack) Load(id string) error {
	_, err := h.Loader().Load(h.T.Context(), id)
	return err
}

// Reload fences a campaign in Redis and reloads it from MySQL.
func (h *Stack) Reload(id string) {
	h.T.Helper()
	h.Sync()
	require.NoError(h.T, h.Loader().Reload(h.T.Context(), id))
	h.Sync()
}

// Campaign reads a campaign from MySQL.
func (h *Stack) Campaign(id string) models.Campaign {
	h.T.Helper()
	c, err := NewCampaigns(h.T, h.DB, h.Scripts).Get(h.T.Context(), id)
	require.NoError(h.T, err)
	return c
}

// Residency returns where MySQL records a campaign to be.
func (h *Stack) Residency(id string) models.Residency { h.T.Helper(); return h.Campaign(id).Residency }

// Ask returns a claim of one unit with a new id.
func Ask(user, key string) lua.ClaimRequest {
	return lua.ClaimRequest{ID: uuid.Must(uuid.NewV7()), UserID: user, Quantity: 1, Key: key}
}

// Claim claims in calls of up to lua.ClaimsMax.
func (h *Stack) Claim(id string, reqs ...lua.ClaimRequest) []lua.ClaimReply {
	h.T.Helper()
	replies, _ := h.ClaimAfter(id, lua.Position{}, reqs...)
	return replies
}

// ClaimAfter is Claim by a process that has seen a position.
func (h *Stack) ClaimAfter(id string, seen lua.Position, reqs ...lua.ClaimRequest) (all []lua.ClaimReply, now lua.CampaignView) {
	h.T.Helper()
	c := h.Campaign(id)
	meta, err := h.Scripts.MetaOf(&c)
	require.NoError(h.T, err)
	for part := range slices.Chunk(reqs, lua.ClaimsMax) {
		replies, left, err := h.Scripts.ClaimAfter(h.T.Context(), meta, seen, part)
		require.NoError(h.T, err)
		all = append(all, replies...)
		now = left
	}
	return all, now
}

// OutcomesOf returns the outcomes of replies, in order.
func OutcomesOf(replies []lua.ClaimReply) []models.Outcome {
	outcomes := make([]models.Outcome, len(replies))
	for i := range replies {
		outcomes[i] = replies[i].Outcome
	}
	return outcomes
}

// Asks returns n claims, every other one with a key.
func Asks(prefix string, n int) []lua.ClaimRequest {
	reqs := make([]lua.ClaimRequest, n)
	for i := range reqs {
		key := ""
		if i%2 == 0 {
			key = fmt.Sprintf("key-%s-%d", prefix, i)
		}
		reqs[i] = Ask(fmt.Sprintf("%s-%d", prefix, i), key)
	}
	return reqs
}

// Sync applies each stream to MySQL up to its end, as the consumer does.
func (h *Stack) Sync() {
	h.T.Helper()
	SyncStreams(h.T, h.DB, h.Redis, h.Scripts, h.Writer)
}

// SyncStreams is Sync without a Stack.
func SyncStreams(t testing.TB, db *gorm.DB, rdb redis.UniversalClient, scripts *lua.Scripts, w *writer.Writer) {
	t.Helper()
	applied := offset.NewStreams(db, scripts)
	require.Eventually(t, func() bool { // a retry reads what arrives during the wait
		Apply(t, rdb, w, scripts.Partitions())
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		return applied.AwaitApplied(ctx) == nil
	}, time.Minute, time.Millisecond)
}

// Apply passes the unapplied entries of all claim streams to a writer.
func Apply(t testing.TB, rdb redis.UniversalClient, w *writer.Writer, partitions int) {
	t.Helper()
	for p := range partitions {
		ApplyOne(t, rdb, w, p)
	}
}

// ApplyOne is Apply for one stream. It begins again if the flush
// of an earlier turn moves the offset.
func ApplyOne(t testing.TB, rdb redis.UniversalClient, w *writer.Writer, partition int) {
	t.Helper()
	for {
		err := applyTurn(t, rdb, w, partition)
		if err == nil {
			return
		}
		require.ErrorIs(t, err, adder.ErrTurn)
	}
}

// applyTurn applies what a stream has. Errors: adder.ErrTurn.
func applyTurn(t testing.TB, rdb redis.UniversalClient, w *writer.Writer, partition int) error {
	t.Helper()
	turn, at, err := w.Begin(t.Context(), partition)
	require.NoError(t, err)
	there := rdb.XRangeN(t.Context(), lua.StreamKey(partition), at.EntryID, at.EntryID, 1).Val()
	if !at.IsStart() && !lua.IsEntry(there, at) { // Redis lost it
		recoverOne(t, rdb, w, partition, at)
		turn, at, err = w.Begin(t.Context(), partition)
		require.NoError(t, err)
	}
	for {
		capacity, err := w.Free(t.Context(), partition, turn)
		if errors.Is(err, adder.ErrTurn) {
			return err
		}
		require.NoError(t, err)
		read := nextOf(t, rdb, &event.Read{Partition: partition, Turn: turn, Upto: at}, capacity)
		if len(read.Events) == 0 {
			return nil
		}
		if err := w.Add(read); err != nil {
			return err
		}
		at = read.Upto
	}
}

// recoverOne does what the consumer does after Redis lost a partition's data.
func recoverOne(t testing.TB, rdb redis.UniversalClient, w *writer.Writer, partition int, at event.Offset) {
	t.Helper()
	scripts := ScriptsOn(t, rdb, lua.PartitionsMax)
	next := at
	next.State = event.PartitionRecovering
	next.Generation = 1 + max(at.Generation, scripts.Signals(t.Context())[partition].Generation)
	moved, err := w.Move(t.Context(), partition, at, next)
	require.True(t, moved)
	require.NoError(t, err)
	isNext, _, err := scripts.NextGeneration(t.Context(), partition, next.Generation)
	require.True(t, isNext)
	require.NoError(t, err)
	back := event.NoOffset()
	back.State = next.State
	back.Generation = next.Generation
	moved, err = w.Move(t.Context(), partition, next, back)
	require.True(t, moved)
	require.NoError(t, err)
}

// nextOf reads once from a stream, after read.Upto.
func nextOf(t testing.TB, rdb redis.UniversalClient, read *event.Read, most int) *event.Read {
	t.Helper()
	entries, err := rdb.XRangeN(t.Context(), lua.StreamKey(read.Partition), "("+read.Upto.EntryID, "+", int64(min(most, 1000))).Result()
	require.NoError(t, err)
	for _, entry := range entries {
		payload := []byte(fmt.Sprint(entry.Values["payload"]))
		e, err := event.Decode(payload)
		require.NoError(t, err)
		read.Events = append(read.Events, event.Raw{Event: e, Payload: payload})
		read.Upto.EntryID = entry.ID
		read.Upto.EventID = fmt.Sprint(entry.Values["_watermill_message_uuid"])
		read.Upto.Read++
		if e.Type == event.PartitionGeneration && e.Generation >= read.Upto.Generation {
			read.Upto.Generation = e.Generation
			read.Upto.State = event.PartitionOK
		}
	}
	return read
}

// Evict evicts lots idle for the given time, and returns their number.
func (h *Stack) Evict(idle time.Duration) int {
	h.T.Helper()
	n, err := NewMaintainer(h.T, h.DB, h.Scripts, idle).Evict(h.T.Context())
	require.NoError(h.T, err)
	return n
}

// KeysOf returns a campaign's existing keys, without the common prefix.
func (h *Stack) KeysOf(id string) []string {
	h.T.Helper()
	base := h.Keys(id).State
	keys, err := h.Redis.Keys(h.T.Context(), "*").Result()
	require.NoError(h.T, err)
	var parts []string
	for _, key := range keys {
		if part, is := strings.CutPrefix(key, base); is {
			parts = append(parts, part)
		}
	}
	slices.Sort(parts)
	return parts
}

// Content returns a campaign's whole Redis content, without its
// epoch, version and last time.
func (h *Stack) Content(id string) map[string]map[string]string {
	h.T.Helper()
	k := h.Keys(id)
	all := map[string]map[string]string{}
	for _, key := range []string{k.State, k.Users, k.Keys} {
		fields, err := h.Redis.HGetAll(h.T.Context(), key).Result()
		require.NoError(h.T, err)
		all[key] = maps.Clone(fields)
		ttl, err := h.Redis.TTL(h.T.Context(), key).Result()
		require.NoError(h.T, err)
		require.Equal(h.T, time.Duration(-1), ttl, "%s stays", key)
	}
	for _, field := range []string{"epoch", "last_ms", "version"} {
		delete(all[k.State], field)
	}
	return all
}

// Lose deletes keys of a campaign from Redis.
func (h *Stack) Lose(id string, which func(k lua.CampaignKeys) []string) {
	h.T.Helper()
	require.NoError(h.T, h.Redis.Del(h.T.Context(), which(h.Keys(id))...).Err())
}

// StateOnly returns the state's key, for Lose.
func StateOnly(k lua.CampaignKeys) []string { return []string{k.State} }

// WholeCampaign returns all keys of a coupon campaign, for Lose.
func WholeCampaign(k lua.CampaignKeys) []string { return []string{k.State, k.Users, k.Keys} }

// RequireBooks checks that rows, counters and Redis agree on the
// units claimed, and that these don't exceed the total.
func (h *Stack) RequireBooks(id string, units int64) {
	h.T.Helper()
	b := BooksOf(h.T, h.DB, id)
	state, err := h.Scripts.State(h.T.Context(), id)
	require.NoError(h.T, err)
	require.Equal(h.T, []int64{units, units, units, units, max(0, b.Total-units)},
		[]int64{b.Claimed, b.Units, state.Taken, b.Total - state.Remaining(), b.Remaining})
	require.Equal(h.T, state.Seq, b.SyncedSeq)
	require.LessOrEqual(h.T, units, b.Total)
}

// Leader makes the comparer and the maintainer of the leading
// syncer. It evicts nothing.
func (h *Stack) Leader() (*compare.Comparer, *lots.Keeper) {
	h.T.Helper()
	loader := h.Loader()
	return compare.New(h.DB, h.Scripts, loader, Quiet(), nil), lots.NewKeeper(loader, 24*time.Hour, nil)
}

// Maintainer makes the leading syncer's maintainer.
func (h *Stack) Maintainer() *lots.Keeper {
	h.T.Helper()
	_, maintainer := h.Leader()
	return maintainer
}

// Reconciler makes a reconciler.
func (h *Stack) Reconciler() *compare.Comparer {
	return compare.New(h.DB, h.Scripts, h.Loader(), Quiet(), nil)
}

// Compare compares a campaign at the strictest level.
func (h *Stack) Compare(id string) compare.Comparison {
	h.T.Helper()
	found, err := h.Reconciler().Compare(h.T.Context(), id)
	require.NoError(h.T, err)
	return found
}

// Exec runs a statement.
func (h *Stack) Exec(sql string, args ...any) {
	h.T.Helper()
	require.NoError(h.T, h.DB.Exec(sql, args...).Error)
}

// Keys returns the names of a campaign's keys.
func (h *Stack) Keys(id string) lua.CampaignKeys {
	return lua.KeysOf(id, lua.PartitionOf(id, h.Scripts.Partitions()))
}

// Repair repairs a campaign while MySQL applies new entries.
func (h *Stack) Repair(id string, givesUp bool) (done compare.Repaired) {
	h.T.Helper()
	var repairing errgroup.Group
	ended := make(chan struct{})
	repairing.Go(func() (err error) {
		defer close(ended)
		done, err = h.Reconciler().Repair(h.T.Context(), id, givesUp)
		return err
	})
	for isOver := false; !isOver; {
		Apply(h.T, h.Redis, h.Writer, h.Scripts.Partitions())
		waiting, cancel := context.WithTimeout(h.T.Context(), 100*time.Millisecond)
		// later entries are left to the next round
		_ = offset.NewStreams(h.DB, h.Scripts).AwaitApplied(waiting)
		cancel()
		select {
		case <-ended:
			isOver = true
		case <-time.After(time.Millisecond):
		}
	}
	require.NoError(h.T, repairing.Wait())
	return done
}

// ParkedRows counts a campaign's parked events that match a condition.
func (h *Stack) ParkedRows(id, where string) int {
	h.T.Helper()
	var n int
	require.NoError(h.T, h.DB.Raw("SELECT COUNT(*) FROM parked_events WHERE campaign_id = ? AND "+where, id).Scan(&n).Error)
	return n
}

// Accept removes the constraint of Refusing.
func (h *Stack) Accept() { h.T.Helper(); h.Exec("ALTER TABLE claims DROP CONSTRAINT not_u3") }

// Refusing makes a campaign of ten units, all claimed, where
// MySQL refuses the row of user u-3.
func (h *Stack) Refusing() string {
	h.T.Helper()
	id := h.Create(10, func(c *models.Campaign) { c.PerUser = 1 })
	h.Exec("ALTER TABLE claims ADD CONSTRAINT not_u3 CHECK (user_id <> 'u-3')")
	h.T.Cleanup(func() { _ = h.DB.Exec("ALTER TABLE claims DROP CONSTRAINT not_u3").Error })
	h.Claim(id, Asks("u", 10)...)
	h.Sync()
	require.Equal(h.T, 1, h.ParkedRows(id, "discarded_at IS NULL"))
	return id
}

// Take makes claims, waits for their rows, and returns their ids.
func (h *Stack) Take(campaignID string, reqs ...lua.ClaimRequest) (ids []string) {
	h.T.Helper()
	for _, reply := range h.Claim(campaignID, reqs...) {
		require.Equal(h.T, models.OutcomeClaimed, reply.Outcome)
		ids = append(ids, reply.Claim.ID)
	}
	h.Sync()
	return ids
}

// Shut closes a campaign.
func (h *Stack) Shut(id string) {
	h.T.Helper()
	_, err := NewCampaigns(h.T, h.DB, h.Scripts).Change(h.T.Context(), id, models.Change{Status: new(models.StatusClosed)})
	require.NoError(h.T, err)
}
