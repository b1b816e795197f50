package writer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"pgregory.net/rapid"

	"dibs/consumer"
	"dibs/internal/sqlstore"
	"dibs/internal/testkit/syncertest"
	"dibs/internal/testkit/testenv"
	"dibs/lua"
	"dibs/models"
	"dibs/models/event"
	"dibs/models/stored"
	"dibs/syncer/campaigns"
	"dibs/syncer/offset"
	"dibs/syncer/tables"
	"dibs/syncer/writer"
)

// world is a claim stream in a real Redis, a database, and the processes
// between them. Processes die between any two statements, or read the same
// partition. MySQL is restored, and replies to commits are lost. Redis loses
// the end of the stream, and reuses its ids. Lots are locked, and rows are
// bad. When all is idle, MySQL must be the fold of the stream.
type world struct {
	t       *rapid.T
	ctx     context.Context //nolint:containedctx // of the run
	rdb     *redis.Client
	db      *gorm.DB
	isMySQL bool
	through *gorm.DB     // db as processes reach it
	isDeaf  *atomic.Bool // see deaf

	ever    map[string]event.Event // all that was ever in the stream, by id
	seqs    map[string]int64
	dumps   []syncertest.Dump
	running []*process
	free    func() // of the locked lot; nil: none is
	isLossy bool   // Redis has lost entries
	version int64  // of the newest definition
}

type process struct {
	w      *writer.Writer
	stop   func()
	dieIn  atomic.Int64 // steps of flushes; 0: it does not die
	isDeaf atomic.Bool  // it does not get the reply to its next commit
	isDead chan struct{}
}

const badUser = "nobody-may-have-a-row"

func (w *world) start() {
	p := &process{isDead: make(chan struct{})}
	var err error
	p.w, err = writer.NewTuned(writer.Config{DB: w.through, FlushInterval: time.Millisecond, Logger: syncertest.Quiet()},
		writer.Tuning{Step: func(step string) {
			if step == "positions" && p.isDeaf.Swap(false) {
				w.isDeaf.Store(true)
			}
			if step == "begin" {
				w.isDeaf.Store(false)
			}
			if p.dieIn.Load() > 0 && p.dieIn.Add(-1) == 0 {
				close(p.isDead)
				runtime.Goexit() // the connection is dropped, and the transaction with it
			}
		}})
	require.NoError(w.t, err)
	applier, err := consumer.NewApplier(consumer.ApplierConfig{
		Client: w.rdb, Name: fmt.Sprint("p", uuid.NewString()), Log: p.w, BlockTime: 5 * time.Millisecond, GatherPause: time.Microsecond,
		ReadCount: 7, Logger: syncertest.Quiet(), Registerer: prometheus.NewRegistry(),
	})
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(w.ctx)
	var reading sync.WaitGroup
	reading.Go(func() { _ = applier.Run(ctx) })
	p.stop = sync.OnceFunc(func() {
		cancel()
		reading.Wait()
		closing, now := context.WithTimeout(w.ctx, 20*time.Second)
		defer now()
		_ = p.w.Close(closing)
	})
	w.running = append(w.running, p)
}

func (w *world) bury() {
	var alive []*process
	for _, p := range w.running {
		select {
		case <-p.isDead:
			p.stop()
		default:
			alive = append(alive, p)
		}
	}
	w.running = alive
	if len(alive) == 0 {
		w.start()
	}
}

func (w *world) append(id string, e event.Event) {
	payload, err := json.Marshal(&e)
	require.NoError(w.t, err)
	require.NoError(w.t, w.rdb.XAdd(w.ctx, &redis.XAddArgs{Stream: lua.StreamKey(0), ID: id, Values: []any{
		"_watermill_message_uuid", e.ID, "metadata", "", "payload", payload}}).Err())
	w.ever[e.ID] = e
}

// event draws an event, mostly a claim.
// The ids of the campaigns differ by case.
func (w *world) event() event.Event {
	campaign := rapid.SampledFrom([]string{"a", "a", "A", "unknown"}).Draw(w.t, "campaign")
	w.seqs[campaign]++
	e := syncertest.ClaimsOf(campaign, w.seqs[campaign], 1)[0]
	switch rapid.IntRange(0, 9).Draw(w.t, "kind") {
	case 0:
		e.Type = rapid.SampledFrom([]event.Type{event.CampaignLowStock, "from.the.future"}).Draw(w.t, "no claim")
	case 1:
		e.UserID = badUser
	}
	return e
}

func (w *world) come() {
	for range rapid.IntRange(1, 25).Draw(w.t, "events") {
		w.append("*", w.event())
	}
}

func (w *world) kill() {
	w.running[0].dieIn.Store(rapid.Int64Range(1, 14).Draw(w.t, "steps"))
}

func (w *world) forget() {
	w.running[0].isDeaf.Store(w.isMySQL)
}

// second starts another process for the same
// partition: one of the two leases is stale.
func (w *world) second() {
	if len(w.running) < 2 {
		w.start()
	}
}

func (w *world) dump() {
	w.unlock()
	w.dumps = append(w.dumps, syncertest.DumpOf(w.t, w.db))
}

func (w *world) restore() {
	if len(w.dumps) == 0 {
		return
	}
	w.restoreTo(rapid.IntRange(0, len(w.dumps)-1).Draw(w.t, "dump"))
}

func (w *world) restoreTo(at int) {
	w.unlock()
	for range 20 { // a flush may be in the way
		if w.dumps[at].Restore(w.db) == nil {
			break
		}
	}
	w.dumps = w.dumps[:at+1]
}

// lose makes Redis lose the last entries, and reuse their ids for others.
func (w *world) lose() {
	w.isLossy = true
	lost := rapid.IntRange(1, 12).Draw(w.t, "lost")
	var others []event.Event
	for range rapid.IntRange(0, lost).Draw(w.t, "replaced") {
		others = append(others, w.event())
	}
	key := lua.StreamKey(0)
	// A reader that starts a new turn may write
	// to the stream. Then all is repeated.
	for {
		err := w.rdb.Watch(w.ctx, func(tx *redis.Tx) error {
			entries, err := tx.XRevRangeN(w.ctx, key, "+", "-", int64(lost)+1).Result()
			if err != nil || len(entries) < 2 {
				return err
			}
			_, err = tx.TxPipelined(w.ctx, func(p redis.Pipeliner) error {
				for _, e := range entries[:len(entries)-1] {
					p.XDel(w.ctx, key, e.ID)
				}
				p.Do(w.ctx, "XSETID", key, entries[len(entries)-1].ID)
				for i := range min(len(others), len(entries)-1) {
					e := others[i]
					payload, err := json.Marshal(&e)
					require.NoError(w.t, err)
					p.XAdd(w.ctx, &redis.XAddArgs{Stream: key, ID: entries[len(entries)-2-i].ID, Values: []any{
						"_watermill_message_uuid", e.ID, "metadata", "", "payload", payload}})
					w.ever[e.ID] = e
				}
				return nil
			})
			return err
		}, key)
		if !errors.Is(err, redis.TxFailedErr) {
			require.NoError(w.t, err)
			return
		}
	}
}

func (w *world) decide() {
	w.decideOf(rapid.IntRange(0, 99).Draw(w.t, "claim"), rapid.Bool().Draw(w.t, "redeems"))
}

// decideTwice decides on a claim in two timelines,
// in the second before the first was read.
func (w *world) decideTwice() {
	which, redeems := rapid.IntRange(0, 99).Draw(w.t, "claim"), rapid.Bool().Draw(w.t, "redeems")
	w.dump()
	w.decideOf(which, redeems)
	w.relay()
	w.restoreTo(len(w.dumps) - 1)
	w.decideOf(which, !redeems)
	w.relay()
}

func (w *world) decideOf(which int, redeems bool) {
	var rows []stored.ClaimRow
	require.NoError(w.t, w.db.Where("campaign_id IN ?", []string{"a", "A"}).Order("id").Find(&rows).Error)
	if len(rows) == 0 {
		return
	}
	row := &rows[which%len(rows)]
	e := event.Event{
		CampaignID: row.CampaignID, UserID: row.UserID, Quantity: row.Quantity, Seq: row.Seq, ClaimID: row.ID, Decision: row.DecisionsMade() + 1,
		ClaimedAt: new(models.NewTime(row.ClaimedAt)), Type: event.ClaimReleased,
	}
	kind := stored.OutboxRelease
	switch {
	case row.Status == models.ClaimRedeemed:
		e.Type, e.OrderID, kind = event.ClaimReopened, *row.OrderID, stored.OutboxEvent
	case row.Status != models.ClaimClaimed:
		return
	case redeems:
		e.Type, e.OrderID, kind = event.ClaimRedeemed, uuid.NewString(), stored.OutboxEvent
	}
	out, err := campaigns.NewOutboxRow(kind, &e)
	require.NoError(w.t, err)
	out.ClaimID = &row.ID
	err = sqlstore.Retry(w.ctx, func() error { // a flush may lock the same rows
		return w.db.WithContext(w.ctx).Transaction(func(tx *gorm.DB) error {
			n, err := tables.Decide(tx, &e, []string{row.ID}, true)
			if err == nil && n == 0 {
				err = errTooLate
			}
			if err != nil {
				return err
			}
			return campaigns.PutOutbox(w.ctx, tx, []stored.OutboxRow{out})
		})
	})
	if !errors.Is(err, errTooLate) {
		require.NoError(w.t, err)
		w.ever[e.ID] = e
	}
}

var errTooLate = errors.New("another decision came first")

func (w *world) relay() {
	var rows []stored.OutboxRow
	require.NoError(w.t, w.db.Order("id").Find(&rows).Error)
	told := make(map[string]bool)
	for _, e := range w.entries() {
		told[e.ID] = true
	}
	for i := range rows {
		if e, err := event.Decode(rows[i].Payload); !told[rows[i].ID] {
			require.NoError(w.t, err)
			w.append("*", e)
		}
	}
}

func (w *world) entries() (all []event.Event) {
	entries, err := w.rdb.XRange(w.ctx, lua.StreamKey(0), "-", "+").Result()
	require.NoError(w.t, err)
	for _, entry := range entries {
		all = append(all, w.ever[fmt.Sprint(entry.Values["_watermill_message_uuid"])])
	}
	return all
}

func (w *world) define() {
	id := rapid.SampledFrom([]string{"a", "A"}).Draw(w.t, "defined")
	w.version++
	name := fmt.Sprint("name ", w.version)
	require.NoError(w.t, w.db.Exec("UPDATE definitions SET name = ?, version = ? WHERE campaign_id = ?", name, w.version+1, id).Error)
	var d models.Definition
	require.NoError(w.t, w.db.Where("campaign_id = ?", id).Take(&d).Error)
	d.Total = 1000
	w.append("*", event.Event{
		V: 1, Type: event.CampaignChanged, ID: uuid.NewString(), CampaignID: id, At: models.NewTime(time.Now()), Version: d.Version, Definition: &d,
	})
}

func (w *world) lock() {
	if w.free != nil || !w.isMySQL {
		return
	}
	tx := w.db.Begin()
	if tx.Exec("SELECT id FROM lots WHERE id = 'a' FOR UPDATE").Error != nil {
		tx.Rollback()
		return
	}
	w.free = func() { tx.Rollback() }
}

func (w *world) unlock() {
	if w.free != nil {
		w.free()
		w.free = nil
	}
}

// rest waits until MySQL has applied the
// whole stream, and nothing waits for a lock.
func (w *world) rest() {
	w.unlock()
	w.isDeaf.Store(false)
	w.bury()
	w.relay()
	until := time.Now().Add(10 * time.Second)
	for {
		w.bury()
		w.isDeaf.Store(false) // of a process that would have died by now
		last, err := w.rdb.XRevRangeN(w.ctx, lua.StreamKey(0), "+", "-", 1).Result()
		require.NoError(w.t, err)
		if len(last) == 0 {
			return
		}
		offsets, err := offset.Read(w.ctx, w.db, 0)
		require.NoError(w.t, err)
		var waiting int
		require.NoError(w.t, w.db.Raw("SELECT (SELECT COUNT(*) FROM stock_flushes WHERE waiting = 1) + (SELECT COUNT(*) FROM outbox)").Scan(&waiting).Error)
		at := offsets[0]
		if at.EntryID == last[0].ID && at.EventID == last[0].Values["_watermill_message_uuid"] && waiting == 0 {
			return
		}
		if time.Now().After(until) {
			w.t.Fatalf("MySQL is at %v, the stream ends at %s, %d rows of stock_flushes and outbox wait", at, last[0].ID, waiting)
		}
		<-time.After(time.Millisecond)
	}
}

func (w *world) check() {
	var rows []stored.ClaimRow
	require.NoError(w.t, w.db.Find(&rows).Error)
	has := make(map[string]bool)
	units := make(map[string]int64)
	sold := make(map[string]int64)
	claims := make(map[string]int64)
	for i := range rows {
		r := &rows[i]
		if e, known := w.ever[r.ID]; !known || e.Quantity != r.Quantity || e.Seq != r.Seq || w.isMySQL && e.UserID == badUser {
			w.t.Fatalf("a row that no event says: %+v", r)
		}
		has[r.ID] = true
		if r.Status == models.ClaimClaimed || r.Status == models.ClaimRedeemed {
			units[r.CampaignID] += r.Quantity
		}
		sold[r.CampaignID] += r.Quantity
		claims[r.CampaignID]++
	}
	parked := make(map[string]bool)
	for _, id := range syncertest.ParkedIDs(w.t, w.db) {
		parked[id] = true
	}
	for _, e := range w.entries() {
		isBad := e.CampaignID == "unknown" || e.UserID == badUser && w.isMySQL
		switch {
		case e.Type != event.ClaimAccepted:
		case isBad && !parked[e.ID]:
			w.t.Fatalf("a bad row is not parked: %+v", e)
		case !isBad && !has[e.ID]:
			w.t.Fatalf("an event of the stream has no row: %+v", e)
		}
	}
	w.checkDecisions(rows)
	for _, id := range []string{"a", "A"} {
		b := syncertest.BooksOf(w.t, w.db, id)
		want := fmt.Sprint(units[id], claims[id], sold[id], claims[id])
		if have := fmt.Sprint(b.Claimed, b.SyncedSeq, b.FlushedUnits, b.FlushedClaims); have != want {
			w.t.Fatalf("%s: counters are not the fold of the rows: have %s, want %s", id, have, want)
		}
	}
}

// checkDecisions compares the outcomes of claims with the stream. Of
// decisions with one number the first counts, or the one that MySQL had
// applied before Redis lost entries.
func (w *world) checkDecisions(rows []stored.ClaimRow) {
	last := make(map[string]event.Event)
	booked := make(map[string]bool)
	newest := make(map[string]int64)
	orders := make(map[string]bool) // whether it was reopened
	for _, e := range w.entries() {
		switch {
		case e.Type == event.CampaignChanged:
			newest[e.CampaignID] = max(newest[e.CampaignID], e.Version)
		case e.IsDecision() && e.Decision > last[e.ClaimID].Decision && follows(last[e.ClaimID], e):
			last[e.ClaimID] = e
			booked[e.ID] = true
			if e.OrderID != "" {
				orders[e.OrderID] = e.Type == event.ClaimReopened
			}
		}
	}
	statuses := map[event.Type]models.ClaimStatus{
		event.ClaimRedeemed: models.ClaimRedeemed, event.ClaimReleased: models.ClaimReleased, event.ClaimReopened: models.ClaimClaimed,
	}
	is := make(map[string]bool)
	for i := range rows {
		r := &rows[i]
		is[r.ID] = true
		e := last[r.ID]
		if w.isLossy {
			continue
		}
		require.Equal(w.t, e.Decision, r.DecisionsMade())
		if e.Decision > 0 {
			require.Equal(w.t, statuses[e.Type], r.Status)
		}
		if e.Type == event.ClaimRedeemed {
			require.Equal(w.t, e.OrderID, *r.OrderID)
		}
	}
	var ledger []string
	require.NoError(w.t, w.db.Raw("SELECT id FROM ledger_events").Scan(&ledger).Error)
	var noted []stored.ClaimOrder
	require.NoError(w.t, w.db.Find(&noted).Error)
	if !w.isLossy {
		are := make(map[string]bool)
		for _, o := range noted {
			are[o.OrderID] = o.Reopened != nil
		}
		require.Equal(w.t, orders, are)
		for _, id := range ledger {
			require.True(w.t, booked[id], "a decision that does not count is in the ledger")
		}
		require.Len(w.t, ledger, len(booked))
	}
	var definitions []models.Definition
	require.NoError(w.t, w.db.Find(&definitions).Error)
	for _, d := range definitions {
		require.GreaterOrEqual(w.t, d.Version, newest[d.CampaignID])
		if d.Version > 1 {
			require.Equal(w.t, fmt.Sprint("name ", d.Version-1), d.Name)
		}
	}
}

func follows(was, e event.Event) bool {
	if e.Type == event.ClaimReopened {
		return was.Type == event.ClaimRedeemed && was.OrderID == e.OrderID
	}
	return was.Type == "" || was.Type == event.ClaimReopened
}

func (w *world) clear() {
	w.isDeaf.Store(false)
	for _, p := range w.running {
		p.stop()
	}
	w.unlock()
	require.NoError(w.t, w.rdb.FlushAll(w.ctx).Err()) //nolint:forbidigo // a server of its own
	for table := range syncertest.Dumped {
		require.NoError(w.t, w.db.Exec("DELETE FROM "+table).Error)
	}
}

func TestProperty_MySQLIsTheFoldOfTheStream(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStoreNamed(t, func(t *testing.T, db *gorm.DB, dsn string) {
		rdb := testenv.Redis(t).Client()
		isMySQL := db.Name() != "sqlite"
		through := db
		isDeaf := &atomic.Bool{}
		if isMySQL {
			through, isDeaf = deaf(t, dsn)
			require.NoError(t, db.Exec("ALTER TABLE claims ADD CONSTRAINT no_bad_user CHECK (user_id <> '"+badUser+"')").Error)
		}
		property := func(rt *rapid.T) {
			w := &world{t: rt, ctx: t.Context(), rdb: rdb, db: db, through: through, isDeaf: isDeaf, isMySQL: isMySQL,
				ever: map[string]event.Event{}, seqs: map[string]int64{}}
			defer w.clear()
			for _, id := range []string{"a", "A"} {
				syncertest.AddCampaign(t, db, id, 1000)
			}
			w.start()
			ops := map[string]func(){
				"events": w.come, "more events": w.come, "kill": w.kill, "second reader": w.second, "dump": w.dump, "restore": w.restore,
				"redis loses": w.lose, "lock": w.lock, "rest": w.rest, "forget": w.forget,
				"decide": w.decide, "decide again": w.decide, "decide twice": w.decideTwice, "relay": w.relay, "define": w.define,
			}
			names := slices.Sorted(maps.Keys(ops))
			for range rapid.IntRange(2, 12).Draw(rt, "steps of the world") {
				w.bury()
				ops[rapid.SampledFrom(names).Draw(rt, "op")]()
			}
			w.come()
			w.rest()
			w.check()
		}
		if !isMySQL && !testenv.Soak() { // it is slow
			syncertest.Few(t, 30, property)
			return
		}
		rapid.Check(t, property)
	})
}
