package syncer_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/testenv"
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
