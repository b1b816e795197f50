package shards

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"pgregory.net/rapid"

	"dibs/internal/sqlstore"
	"dibs/internal/syncertest"
	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/campaigns"
	"dibs/syncer/residency"
	"dibs/syncer/writer"
)

// servers are Dibs' scripts on a real Redis, and its store on SQLite. They do what a world does to one campaign, and say where they
// differ from it.
// A Redis that dies is one lot whose keys become what they were when they were on the disk; its stream was read before. A MySQL that is
// restored has the definitions, positions and transfers of its lots as they were; its claims came back.
type servers struct {
	t       *testing.T
	scripts *lua.Scripts
	rdb     goredis.UniversalClient
	db      *gorm.DB
	writer  *writer.Writer
	loader  *residency.Hydrator

	id        string
	disk      map[string]map[string]string // dumps of keys by lot
	metas     map[string]lua.Meta
	lots      []models.Campaign // as they were saved; their transfers are in the table saved_moves
	loads     map[string]int    // by what came of them
	different error             // the first difference
}

// newServers starts them, for any number of campaigns.
func newServers(t *testing.T) *servers {
	t.Helper()
	rdb, err := lua.Connect(testenv.Redis(t).URL())
	require.NoError(t, err)
	t.Cleanup(func() { _ = rdb.Close() })
	r := &servers{t: t, rdb: rdb, scripts: syncertest.ScriptsOn(t, rdb, 5), loads: make(map[string]int)} // each of up to five lots has a stream
	r.db = syncertest.OpenStore(t, sqlstore.Config{Path: filepath.Join(t.TempDir(), "dibs.db")})
	r.writer = syncertest.StartWriter(t, writer.Config{DB: r.db, FlushInterval: time.Millisecond})
	r.loader = syncertest.NewHydrator(t, r.db, r.scripts)
	return r
}

// open makes the campaign of a world.
func (r *servers) open(t testing.TB, w *world) {
	r.id = testenv.UniqueID(t, "c")
	r.disk = make(map[string]map[string]string)
	r.metas = make(map[string]lua.Meta)
	r.different = nil
	c := syncertest.CampaignOf(r.id, w.total)
	c.Shards = len(w.lots) - 1
	_, _, err := syncertest.NewCampaigns(t, r.db, r.scripts).Create(t.Context(), c)
	require.NoError(t, err)
	w.real = r
	for i, s := range w.lots {
		r.metas[r.lotID(s)], err = r.loader.Hydrate(t.Context(), r.lotID(s))
		require.NoError(t, err)
		r.keep(s)
		r.loaded(s, &w.mysql[i])
	}
	r.save()
}

func (r *servers) lotID(s *place) string { return models.ShardID(r.id, s.number) }

func (r *servers) keysOf(s *place) []string {
	k := r.scripts.KeysOf(r.lotID(s))
	return []string{k.State, k.Users, k.Keys}
}

// wrongf notes a difference.
func (r *servers) wrongf(s *place, format string, args ...any) {
	if r.different == nil {
		r.different = fmt.Errorf("lot %d: "+format, append([]any{s.number}, args...)...)
	}
}

func (r *servers) must(s *place, what string, err error) {
	if err != nil {
		r.wrongf(s, "%s: %w", what, err)
	}
}

func (r *servers) claim(s *place, units int64) {
	if r == nil {
		return
	}
	req := lua.ClaimRequest{ID: uuid.Must(uuid.NewV7()), UserID: "u", Quantity: units}
	replies, _, err := r.scripts.ClaimAfter(context.Background(), r.metas[r.lotID(s)], lua.Position{}, []lua.ClaimRequest{req})
	if err != nil || replies[0].Outcome != models.OutcomeClaimed {
		r.wrongf(s, "a claim of %d: %v, %w", units, replies, err)
	}
}

// keep has what a lot holds be on its disk.
func (r *servers) keep(s *place) {
	if r == nil {
		return
	}
	dumps := make(map[string]string)
	for _, key := range r.keysOf(s) {
		dump, err := r.rdb.Dump(context.Background(), key).Result()
		if err == nil {
			dumps[key] = dump
		} else if !errors.Is(err, goredis.Nil) {
			r.must(s, "dump", err)
		}
	}
	r.disk[r.lotID(s)] = dumps
}

func (r *servers) die(s *place) {
	if r == nil || s.isAbsent && !s.isFenced {
		return
	}
	ctx := context.Background()
	r.must(s, "del", r.rdb.Del(ctx, r.keysOf(s)...).Err())
	for key, dump := range r.disk[r.lotID(s)] {
		r.must(s, "restore", r.rdb.Restore(ctx, key, 0, dump).Err())
	}
	if s.isFenced {
		r.fence(s)
	}
}

func (r *servers) fence(s *place) {
	if r != nil {
		r.must(s, "fence", r.scripts.Fence(context.Background(), r.lotID(s), 1<<40))
	}
}

// book does what the consumer of a lot's stream does.
func (r *servers) book(s *place, b *books) {
	if r == nil {
		return
	}
	defer r.compareRows(s, b)
	partition := lua.PartitionOf(r.lotID(s), r.scripts.Partitions())
	syncertest.ApplyOne(r.t, r.rdb, r.writer, partition)
	tip, err := r.rdb.XRevRangeN(context.Background(), lua.StreamKey(partition), "+", "-", 1).Result()
	r.must(s, "tip", err)
	if len(tip) > 0 {
		require.Eventually(r.t, func() bool {
			applied, err := writer.Applied(context.Background(), r.db.ConnPool, partition)
			return err == nil && applied.String() == tip[0].ID
		}, time.Minute, time.Millisecond)
	}
}

func (r *servers) row(s *place) models.Campaign {
	c, err := campaigns.Read(r.db, r.lotID(s))
	r.must(s, "row", err)
	return c
}

// evict evicts a lot. Of every other one MySQL is not told: the evictor died.
func (r *servers) evict(s *place) {
	if r == nil {
		return
	}
	c := r.row(s)
	evicted, err := r.scripts.Evict(context.Background(), &c, 0)
	if err != nil || !evicted {
		r.wrongf(s, "not evicted: %w", err)
	}
	if s.number%2 == 0 {
		err = r.db.Exec("UPDATE lots SET residency = ? WHERE id = ?", models.ResidencyEvicted, c.ID).Error
		r.must(s, "eviction", err)
	}
}

func (r *servers) save() {
	if r == nil {
		return
	}
	var err error
	r.lots, err = campaigns.ReadLots(r.db, r.id)
	if err == nil {
		err = errors.Join(r.db.Exec("DROP TABLE IF EXISTS saved_moves").Error,
			r.db.Exec("CREATE TABLE saved_moves AS SELECT * FROM stock_moves WHERE campaign_id = ?", r.id).Error)
	}
	r.different = cmp.Or(r.different, err)
}

func (r *servers) forget(w *world) {
	if r == nil {
		return
	}
	defer func() {
		for i, s := range w.lots {
			r.compareRows(s, &w.mysql[i])
		}
	}()
	err := r.db.Transaction(func(tx *gorm.DB) error {
		for i := range r.lots {
			was := &r.lots[i]
			err := tx.Exec("UPDATE lots SET total = ?, tseq = ?, epoch = ?, load_attempts = ?, residency = ?, residency_reason = ? WHERE id = ?",
				was.Total, was.TSeq, was.Epoch, was.LoadAttempts, was.Residency, was.ResidencyReason, was.ID).Error
			if err != nil {
				return err
			}
		}
		if err := tx.Exec("DELETE FROM stock_moves WHERE campaign_id = ?", r.id).Error; err != nil {
			return err
		}
		return tx.Exec("INSERT INTO stock_moves SELECT * FROM saved_moves").Error
	})
	r.different = cmp.Or(r.different, err)
}

// sameError reports whether two errors of a transfer say the same.
func sameError(a, b error) bool {
	for _, one := range []error{lua.ErrMovedOn, lua.ErrAbsent, lua.ErrOther, lua.ErrPeer, lua.ErrBehind} {
		if errors.Is(a, one) != errors.Is(b, one) {
			return false
		}
	}
	return (a == nil) == (b == nil)
}

func (r *servers) compare(s *place, what string, told, want lua.Transferred, err, wantErr error) {
	if !sameError(err, wantErr) || err == nil && (told.Upto != want.Upto || told.Units != want.Units) {
		r.wrongf(s, "%s: the servers say %+v, %v; the fake says %+v, %v", what, told, err, want, wantErr)
	}
}

func (r *servers) debit(s *place, d *lua.Debit, want lua.Transferred, wantErr error) {
	if r == nil || s.isAway {
		return
	}
	told, err := r.scripts.Debit(context.Background(), &models.Campaign{ID: r.lotID(s), Kind: models.KindCoupon}, d)
	r.compare(s, fmt.Sprintf("debit %+v", *d), told, want, err, wantErr)
}

func (r *servers) credit(s *place, d *lua.Credit, want lua.Transferred, wantErr error) {
	if r == nil || s.isAway {
		return
	}
	told, err := r.scripts.Credit(context.Background(), &models.Campaign{ID: r.lotID(s), Kind: models.KindCoupon}, d)
	r.compare(s, fmt.Sprintf("credit %+v", *d), told, want, err, wantErr)
}

// load loads a lot, and returns false if that takes a person.
func (r *servers) load(s *place, epoch *int64) bool {
	if r == nil {
		return true
	}
	meta, err := r.loader.Hydrate(context.Background(), r.lotID(s))
	if errors.Is(err, campaigns.ErrLost) {
		r.loads["lost"]++
		return false
	}
	r.must(s, "load", err)
	r.loads["loaded"]++
	r.metas[r.lotID(s)] = meta
	*epoch = r.row(s).Epoch
	return true
}

// refuse loads a lot whose evicted copy knew more than MySQL does.
func (r *servers) refuse(s *place) {
	if r == nil {
		return
	}
	r.loads["refused"]++
	if _, err := r.loader.Hydrate(context.Background(), r.lotID(s)); !errors.Is(err, campaigns.ErrLost) {
		r.wrongf(s, "MySQL is behind the tombstone, and the load says %v", err)
	}
}

// loaded holds the rows of a lot against those of the fake after a load. Rows that were corrected may be cut otherwise, so the fake takes
// them over.
func (r *servers) loaded(s *place, b *books) {
	if r == nil {
		return
	}
	r.compareRows(s, b)
	rows, err := campaigns.ReadTransfers(context.Background(), r.db.ConnPool, r.lotID(s))
	r.must(s, "rows", err)
	b.rows = make(map[int64]row)
	for i := range rows {
		t := &rows[i]
		b.rows[t.TSeq] = row{tseq: t.TSeq, epoch: b.epoch, isOut: t.Type == models.EventUnitsDebited, peer: t.Peer, upto: t.Cumulative}
	}
	b.tseq = r.row(s).TSeq
	s.memory.tseq = b.tseq
	s.disk.tseq = b.tseq
}

// compareRows compares what MySQL has of a lot.
func (r *servers) compareRows(s *place, b *books) {
	rows, err := campaigns.ReadTransfers(context.Background(), r.db.ConnPool, r.lotID(s))
	r.must(s, "rows", err)
	out, in := b.counts()
	counted := campaigns.Counted(rows)
	c := r.row(s)
	if !sameCounts(counted.Out, out) || !sameCounts(counted.In, in) || c.Epoch != b.epoch || c.Total != has(in, out) {
		r.wrongf(s, "rows of load %d, total %d, out %v, in %v; the fake has load %d, out %v, in %v",
			c.Epoch, c.Total, counted.Out, counted.In, b.epoch, out, in)
	}
}

// sameCounts compares what is counted by peer; 0 is as good as nothing.
func sameCounts(a, b map[int]int64) bool {
	isZero := func(_ int, n int64) bool { return n == 0 }
	one := maps.Clone(a)
	maps.DeleteFunc(one, isZero)
	other := maps.Clone(b)
	maps.DeleteFunc(other, isZero)
	return maps.Equal(one, other)
}

// differ compares all lots, and returns the first difference that was ever seen.
func (r *servers) differ(w *world) error {
	if r == nil {
		return nil
	}
	ids := make([]string, len(w.lots))
	for i, s := range w.lots {
		ids[i] = r.lotID(s)
	}
	for i, v := range r.scripts.Shards(context.Background(), ids) {
		s := w.lots[i]
		h := &s.memory
		units := has(h.in, h.out)
		isThere := !s.isAbsent || s.isFenced
		switch {
		case (v.Err != nil) != s.isAbsent, (v.Status != "") != isThere:
			r.wrongf(s, "the servers say %s, %w; the fake: absent %v, fenced %v", v.Status, v.Err, s.isAbsent, s.isFenced)
		case !isThere:
		case v.Epoch != h.epoch, v.TSeq != h.tseq, v.Taken != h.taken, v.Total != max(0, units), v.Owed != max(0, -units),
			!sameCounts(v.Out, h.out), !sameCounts(v.In, h.in):
			r.wrongf(s, "the servers hold %+v, the fake %+v", v, *h)
		}
	}
	return r.different
}

// TestTheFakeIsAsTheServers: the schedules of TestUnitsAreNeverLostNorDoubled run against the fake and, step by step, against the scripts
// on a real Redis and the store on SQLite, which hold the same after each turn.
func TestTheFakeIsAsTheServers(t *testing.T) {
	t.Parallel()
	r := newServers(t)
	gen := rapid.Custom(func(rt *rapid.T) string {
		w := newWorld(rapid.Int64Range(1, 24).Draw(rt, "total"), rapid.IntRange(2, 4).Draw(rt, "shards"))
		r.open(t, w)
		if err := w.play(rt); err != nil {
			return err.Error()
		}
		return ""
	})
	for seed := range testenv.Pick(40, 600) {
		require.Empty(t, gen.Example(seed), "seed %d", seed)
	}
	t.Logf("loads: %v", r.loads)
	require.Positive(t, r.loads["loaded"])
	require.Positive(t, r.loads["refused"])
}
