package syncer_test

import (
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

	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer"
)

// house is a Redis of its own, a database, and what is between them.
type house struct {
	t       testing.TB
	server  *testenv.RedisServer
	rdb     *redis.Client
	db      *gorm.DB
	scripts *lua.Scripts
	writer  *syncer.Writer
}

func newHouse(t testing.TB) *house {
	t.Helper()
	server := testenv.Redis(t)
	rdb := server.Client()
	scripts, err := lua.New(rdb, lua.Options{})
	require.NoError(t, err)
	db := openServer(t)
	h := &house{t: t, server: server, rdb: rdb, db: db, scripts: scripts}
	h.writer = startWriter(t, syncer.WriterConfig{DB: db, FlushInterval: time.Millisecond})
	h.group()
	return h
}

// group makes the syncer's group, as its consumer does.
func (h *house) group() {
	h.t.Helper()
	err := h.rdb.XGroupCreateMkStream(h.t.Context(), lua.StreamKey(0), "syncer", "0").Err()
	if err != nil && !redis.HasErrorPrefix(err, "BUSYGROUP") {
		require.NoError(h.t, err)
	}
}

// open makes a campaign and brings it into Redis.
func (h *house) open(total int64, change func(c *models.Campaign)) string {
	h.t.Helper()
	c := campaignOf(testenv.UniqueID(h.t, "c"), total)
	if change != nil {
		change(&c)
	}
	_, _, err := newCampaigns(h.t, h.db, h.scripts).Create(h.t.Context(), c)
	require.NoError(h.t, err)
	require.NoError(h.t, h.hydrate(c.ID))
	return c.ID
}

func (h *house) hydrator() *syncer.Hydrator { return newHydrator(h.t, h.db, h.scripts) }

func (h *house) hydrate(id string) error {
	_, err := h.hydrator().Hydrate(h.t.Context(), id)
	return err
}

func (h *house) campaign(id string) models.Campaign {
	h.t.Helper()
	c, err := newCampaigns(h.t, h.db, h.scripts).Get(h.t.Context(), id)
	require.NoError(h.t, err)
	return c
}

func (h *house) residency(id string) models.Residency { h.t.Helper(); return h.campaign(id).Residency }

// ask is a claim of one unit under a new id.
func ask(user, key string) lua.ClaimRequest {
	return lua.ClaimRequest{ID: uuid.Must(uuid.NewV7()), UserID: user, Quantity: 1, Key: key}
}

// claim asks for all in calls of up to lua.ClaimsMax.
func (h *house) claim(id string, reqs ...lua.ClaimRequest) []lua.ClaimReply {
	h.t.Helper()
	replies, _ := h.claimAfter(id, lua.Position{}, reqs...)
	return replies
}

func (h *house) claimAfter(id string, seen lua.Position, reqs ...lua.ClaimRequest) (all []lua.ClaimReply, now lua.CampaignView) {
	h.t.Helper()
	c := h.campaign(id)
	meta, err := h.scripts.MetaOf(&c)
	require.NoError(h.t, err)
	for part := range slices.Chunk(reqs, lua.ClaimsMax) {
		replies, left, err := h.scripts.ClaimAfter(h.t.Context(), meta, seen, part)
		require.NoError(h.t, err)
		all, now = append(all, replies...), left
	}
	return all, now
}

func outcomesOf(replies []lua.ClaimReply) []models.Outcome {
	outcomes := make([]models.Outcome, len(replies))
	for i := range replies {
		outcomes[i] = replies[i].Outcome
	}
	return outcomes
}

// asks are n claims, every other one under a key.
func asks(prefix string, n int) []lua.ClaimRequest {
	reqs := make([]lua.ClaimRequest, n)
	for i := range reqs {
		key := ""
		if i%2 == 0 {
			key = fmt.Sprintf("key-%s-%d", prefix, i)
		}
		reqs[i] = ask(fmt.Sprintf("%s-%d", prefix, i), key)
	}
	return reqs
}

// sync does what the consumer does until the stream is read and acknowledged.
func (h *house) sync() {
	h.t.Helper()
	for {
		read, err := h.rdb.XReadGroup(h.t.Context(), &redis.XReadGroupArgs{
			Group: "syncer", Consumer: "one", Streams: []string{lua.StreamKey(0), ">"}, Count: 1000, Block: -1,
		}).Result()
		if errors.Is(err, redis.Nil) {
			return
		}
		require.NoError(h.t, err)
		var g errgroup.Group
		var ids []string
		for _, entry := range read[0].Messages {
			payload := []byte(entry.Values["payload"].(string))
			e, err := models.DecodeEvent(payload)
			require.NoError(h.t, err)
			ids = append(ids, entry.ID)
			g.Go(func() error { return h.writer.Submit(h.t.Context(), e, payload) })
		}
		require.NoError(h.t, g.Wait())
		require.NoError(h.t, h.rdb.XAck(h.t.Context(), lua.StreamKey(0), "syncer", ids...).Err())
	}
}

// evict evicts whatever has been idle for idle.
func (h *house) evict(idle time.Duration) int {
	h.t.Helper()
	n, err := newEvictor(h.t, h.db, h.scripts, idle).Evict(h.t.Context())
	require.NoError(h.t, err)
	return n
}

// keysOf are the names of a campaign's keys that Redis holds, without its own part.
func (h *house) keysOf(id string) []string {
	h.t.Helper()
	base := lua.KeysOf(id, 0).State
	keys, err := h.rdb.Keys(h.t.Context(), "*").Result()
	require.NoError(h.t, err)
	var parts []string
	for _, key := range keys {
		if part, is := strings.CutPrefix(key, base); is {
			parts = append(parts, part)
		}
	}
	slices.Sort(parts)
	return parts
}

// content is everything that Redis holds of a campaign, but for which load it is and when it was.
func (h *house) content(id string) map[string]map[string]string {
	h.t.Helper()
	k := lua.KeysOf(id, 0)
	all := map[string]map[string]string{}
	for _, key := range []string{k.State, k.Users, k.Keys} {
		fields, err := h.rdb.HGetAll(h.t.Context(), key).Result()
		require.NoError(h.t, err)
		all[key] = maps.Clone(fields)
		ttl, err := h.rdb.TTL(h.t.Context(), key).Result()
		require.NoError(h.t, err)
		require.Equal(h.t, time.Duration(-1), ttl, "%s stays", key)
	}
	for _, field := range []string{"epoch", "last_ms", "version"} {
		delete(all[k.State], field)
	}
	return all
}

// lose takes keys of a campaign out of Redis.
func (h *house) lose(id string, which func(k lua.CampaignKeys) []string) {
	h.t.Helper()
	require.NoError(h.t, h.rdb.Del(h.t.Context(), which(lua.KeysOf(id, 0))...).Err())
}

func stateOnly(k lua.CampaignKeys) []string { return []string{k.State} }

func wholeCampaign(k lua.CampaignKeys) []string { return []string{k.State, k.Users, k.Keys} }

// requireBooks checks that rows, counters and Redis say the same, and that nothing is oversold.
func (h *house) requireBooks(id string, units int64) {
	h.t.Helper()
	b := booksOf(h.t, h.db, id)
	state, err := h.scripts.State(h.t.Context(), id)
	require.NoError(h.t, err)
	require.Equal(h.t, []int64{units, units, units, units, max(0, b.Total-units)}, []int64{b.Claimed, b.Units, state.Taken, b.Total - state.Remaining(), b.Remaining})
	require.Equal(h.t, state.Seq, b.SyncedSeq)
	require.LessOrEqual(h.t, units, b.Total)
}

func (h *house) reconciler(change func(cfg *syncer.ReconcilerConfig)) *syncer.Reconciler {
	h.t.Helper()
	cfg := syncer.ReconcilerConfig{DB: h.db, Scripts: h.scripts, Redis: h.rdb, Hydrator: h.hydrator(), Logger: quiet()}
	if change != nil {
		change(&cfg)
	}
	r, err := syncer.NewReconciler(cfg)
	require.NoError(h.t, err)
	return r
}

func (h *house) compare(id string) syncer.Comparison {
	h.t.Helper()
	found, err := h.reconciler(nil).Compare(h.t.Context(), id, syncer.DepthUsers)
	require.NoError(h.t, err)
	return found
}

func (h *house) exec(sql string, args ...any) {
	h.t.Helper()
	require.NoError(h.t, h.db.Exec(sql, args...).Error)
}

func (h *house) keys(id string) lua.CampaignKeys { return lua.KeysOf(id, 0) }

func (h *house) repair(id string, how syncer.RepairHow) syncer.Repaired {
	h.t.Helper()
	done, err := h.reconciler(nil).Repair(h.t.Context(), id, how)
	require.NoError(h.t, err)
	return done
}

func (h *house) parkedRows(id, where string) int {
	h.t.Helper()
	var n int
	require.NoError(h.t, h.db.Raw("SELECT COUNT(*) FROM parked_events WHERE campaign_id = ? AND "+where, id).Scan(&n).Error)
	return n
}

func (h *house) accept() { h.t.Helper(); h.exec("ALTER TABLE claims DROP CONSTRAINT not_u3") }

// refusing is a campaign of ten units, all of them claimed, where MySQL would not take the row of u-3.
func (h *house) refusing() string {
	h.t.Helper()
	id := h.open(10, func(c *models.Campaign) { c.PerUser = 1 })
	h.exec("ALTER TABLE claims ADD CONSTRAINT not_u3 CHECK (user_id <> 'u-3')")
	h.t.Cleanup(func() { _ = h.db.Exec("ALTER TABLE claims DROP CONSTRAINT not_u3").Error })
	h.claim(id, asks("u", 10)...)
	h.sync()
	require.Equal(h.t, 1, h.parkedRows(id, "discarded_at IS NULL"))
	return id
}

// take makes claims that have their rows and returns their ids.
func (h *house) take(campaignID string, reqs ...lua.ClaimRequest) (ids []string) {
	h.t.Helper()
	for _, reply := range h.claim(campaignID, reqs...) {
		require.Equal(h.t, models.OutcomeClaimed, reply.Outcome)
		ids = append(ids, reply.Claim.ID)
	}
	h.sync()
	return ids
}

func (h *house) shut(id string) {
	h.t.Helper()
	_, err := newCampaigns(h.t, h.db, h.scripts).Change(h.t.Context(), id, models.Change{Status: new(models.StatusClosed)})
	require.NoError(h.t, err)
}
