package syncer_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/syncer"
)

// An operator's DSN may ask for what would make the books wrong; the code sets what it relies on.
func TestOpen_AnOperatorsDSNCannotMakeTheBooksWrong(t *testing.T) {
	t.Parallel()
	dsn, _, _ := strings.Cut(testenv.Database(t).DSN, "?")
	db := openStore(t, syncer.StoreConfig{
		DSN: dsn + "?clientFoundRows=true&interpolateParams=false&multiStatements=true&loc=Asia%2FTokyo&charset=latin1&sql_mode=%27%27&time_zone=%27-05%3A00%27",
	})
	addCampaign(t, db, "c", 1000)
	w := startWriter(t, syncer.WriterConfig{DB: db, FlushInterval: 5 * time.Millisecond})
	events := claimsOf("c", 1, 20)
	events[3].UserID = strings.Repeat("ü☘", 64)
	require.NoError(t, submitAll(t.Context(), w, events[:10]))
	require.NoError(t, submitAll(t.Context(), w, events))
	requireBooks(t, db, "c", events)
	bad := claimsOf("c", 21, 1)[0]
	bad.UserID = strings.Repeat("x", 129)
	require.NoError(t, w.Submit(t.Context(), bad, nil))
	require.Equal(t, []string{bad.ID}, parkedIDs(t, db), "not cut and written")

	var user string
	var at time.Time
	require.NoError(t, db.Raw("SELECT user_id, claimed_at FROM claims WHERE seq = 4").Row().Scan(&user, &at))
	require.Equal(t, events[3].UserID, user)
	require.Equal(t, events[3].At.Time, at.UTC())
	_, created, err := newCampaigns(t, db, openScripts(t)).Create(t.Context(), campaignOf("c2", 1))
	require.NoError(t, err)
	require.True(t, created)
	_, created, err = newCampaigns(t, db, openScripts(t)).Create(t.Context(), campaignOf("c2", 1))
	require.NoError(t, err)
	require.False(t, created)
}

func TestOpen_RefusesWhatItCannotUse(t *testing.T) {
	t.Parallel()
	for _, cfg := range []syncer.StoreConfig{
		{Logger: quiet()}, {Logger: quiet(), DSN: "x", Path: "y"}, {Path: "y"}, {Logger: quiet(), DSN: "no dsn"},
	} {
		_, err := syncer.Open(t.Context(), cfg)
		require.ErrorIs(t, err, syncer.ErrConfig)
	}
}

func TestStockWatch_IsALineACampaign(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, db *gorm.DB) {
		addCampaign(t, db, "busy", 100)
		addCampaign(t, db, "idle", 5)
		w := startWriter(t, syncer.WriterConfig{DB: db})
		require.NoError(t, submitAll(t.Context(), w, claimsOf("busy", 1, 3))) // 6 units
		now := time.Now().UTC()
		for i, drift := range []int{7, 0} {
			require.NoError(t, db.Exec("INSERT INTO reconciliations VALUES (?, 'busy', 94, 94, ?, ?, ?)",
				uuid.Must(uuid.NewV7()).String(), 10+i, drift, now.Add(time.Duration(i-2)*time.Minute)).Error)
		}
		type line struct {
			CampaignID                       string
			Total, Remaining, Claimed        int64
			Backlog, Drift, LastFlushAgeSecs *int64
		}
		var lines []line
		require.NoError(t, db.Raw("SELECT campaign_id, total, remaining, claimed, backlog, drift, last_flush_age_seconds AS last_flush_age_secs"+
			" FROM stock_watch ORDER BY campaign_id").Scan(&lines).Error)
		require.Len(t, lines, 2)
		age := lines[0].LastFlushAgeSecs
		require.NotNil(t, age)
		require.True(t, slices.Contains([]int64{0, 1, 2, 3, 4, 5}, *age), "age %d", *age)
		require.Equal(t, []line{
			{CampaignID: "busy", Total: 100, Remaining: 94, Claimed: 6, Backlog: new(int64(11)), Drift: new(int64(0)), LastFlushAgeSecs: age},
			{CampaignID: "idle", Total: 5, Remaining: 5},
		}, lines)
	})
}

func TestTrimmer_WorksOnEmbeddedRedis(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1})
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	s := &stream{t: t, rdb: rdb, key: lua.StreamKey(0)}
	trimmer := newTrimmer(t, syncer.TrimmerConfig{Redis: rdb, Partitions: 1, Groups: []string{"syncer", "finance"}})
	trim(t, trimmer)
	s.add(500)
	s.ack("syncer", s.read("syncer", 500)...)
	require.Zero(t, trim(t, trimmer))
	slow := s.read("finance", 300)
	s.ack("finance", slow[:100]...)
	require.Equal(t, int64(100), trim(t, trimmer))
	require.Empty(t, s.unreadGone("syncer", "finance"))
	s.ack("finance", slow...)
	require.Equal(t, int64(200), trim(t, trimmer))
}
