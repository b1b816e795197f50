package sqlstore_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/sqlstore"
	"dibs/internal/syncertest"
	"dibs/internal/testenv"
	"dibs/syncer/writer"
)

// Otherwise settings of an operator's DSN would make stored data wrong.
func TestOpen_AnOperatorsDSNCannotMakeTheBooksWrong(t *testing.T) {
	t.Parallel()
	dsn, _, _ := strings.Cut(testenv.Database(t).DSN, "?")
	db := syncertest.OpenStore(t, sqlstore.Config{
		DSN: dsn + "?clientFoundRows=true&interpolateParams=false&multiStatements=true&loc=Asia%2FTokyo&charset=latin1&sql_mode=%27%27&time_zone=%27-05%3A00%27",
	})
	syncertest.AddCampaign(t, db, "c", 1000)
	w := syncertest.StartWriter(t, writer.Config{DB: db, FlushInterval: 5 * time.Millisecond})
	events := syncertest.ClaimsOf("c", 1, 20)
	events[3].UserID = strings.Repeat("ü☘", 64)
	require.NoError(t, syncertest.SubmitAll(t.Context(), w, events[:10]))
	require.NoError(t, syncertest.SubmitAll(t.Context(), w, events))
	syncertest.RequireBooks(t, db, "c", events)
	bad := syncertest.ClaimsOf("c", 21, 1)[0]
	bad.UserID = strings.Repeat("x", 129)
	require.NoError(t, syncertest.Submit(t.Context(), w, bad))
	require.Equal(t, []string{bad.ID}, syncertest.ParkedIDs(t, db), "not cut and written")

	var user string
	var at time.Time
	require.NoError(t, db.Raw("SELECT user_id, claimed_at FROM claims WHERE seq = 4").Row().Scan(&user, &at))
	require.Equal(t, events[3].UserID, user)
	require.Equal(t, events[3].At.Time, at.UTC())
	_, created, err := syncertest.NewCampaigns(t, db, syncertest.OpenScripts(t)).Create(t.Context(), syncertest.CampaignOf("c2", 1))
	require.NoError(t, err)
	require.True(t, created)
	_, created, err = syncertest.NewCampaigns(t, db, syncertest.OpenScripts(t)).Create(t.Context(), syncertest.CampaignOf("c2", 1))
	require.NoError(t, err)
	require.False(t, created)
}

func TestOpen_RefusesWhatItCannotUse(t *testing.T) {
	t.Parallel()
	for _, cfg := range []sqlstore.Config{
		{Logger: syncertest.Quiet()}, {Logger: syncertest.Quiet(), DSN: "x", Path: "y"}, {Path: "y"}, {Logger: syncertest.Quiet(), DSN: "no dsn"},
	} {
		_, err := sqlstore.Open(t.Context(), cfg)
		require.ErrorIs(t, err, sqlstore.ErrConfig)
	}
}

func TestOpen_ShowsTheClientsCertificate(t *testing.T) {
	t.Parallel()
	cert, key := testenv.Certificate(t)
	mine, mineKey := testenv.CertificateFor(t, "client")
	server := testenv.SQLServer(t, "--ssl-cert="+cert, "--ssl-key="+key, "--ssl-ca="+mine)
	open := func(user string, options ...string) error {
		dsn := user + "@tcp(" + server.Addr() + ")/?" + strings.ReplaceAll(strings.Join(options, "&"), "/", "%2F")
		db, err := sqlstore.Open(t.Context(), sqlstore.Config{DSN: dsn, Logger: syncertest.Quiet()})
		if err == nil {
			err = errors.Join(db.Exec("CREATE USER IF NOT EXISTS x509 REQUIRE X509").Error, sqlstore.Close(db))
		}
		return err
	}
	require.NoError(t, open("root", "tls=false"))
	require.ErrorContains(t, open("x509", "tls_ca="+cert), "Access denied")
	shown := []string{"tls_cert=" + mine, "tls_key=" + mineKey}
	require.ErrorContains(t, open("x509", append(shown, "tls_ca="+cert)...), "CREATE USER", "it is let in, and may do nothing")
	require.ErrorContains(t, open("x509", append(shown, "tls=skip-verify")...), "CREATE USER")
	require.ErrorContains(t, open("x509", shown...), "unknown authority")
	require.ErrorContains(t, open("x509", append(shown, "tls=preferred", "tls_ca="+mine)...), "unknown authority")
	for _, options := range [][]string{{"tls_cert=" + mine}, {"tls_key=" + mineKey}, {"tls_ca="}, {"tls_cert=" + mine, "tls_key=" + key}} {
		require.ErrorIs(t, open("x509", options...), sqlstore.ErrConfig)
	}
}
