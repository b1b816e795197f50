package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"dibs/internal/sqlstore"
	"dibs/internal/testkit/syncertest"
	"dibs/internal/testkit/testenv"
	"dibs/syncer/writer"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// odd are server-wide defaults that would each break Dibs, and
// the session's value instead.
var odd = []struct{ name, value, want string }{
	{"autocommit", "0", "1"},
	{"completion_type", "CHAIN", "NO_CHAIN"},
	{"tx_isolation", "'READ-UNCOMMITTED'", "REPEATABLE-READ"},
	{"transaction_isolation", "'READ-UNCOMMITTED'", "REPEATABLE-READ"},
	{"tx_read_only", "1", "0"},
	{"innodb_snapshot_isolation", "ON", "0"},
	{"transaction_read_only", "1", "0"},
	{"sql_mode", "'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT'", "STRICT_ALL_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"},
	{"time_zone", "'+09:00'", "+00:00"},
	{"collation_connection", "latin1_swedish_ci", "utf8mb4_bin"},
	{"collation_server", "latin1_german2_ci", "latin1_german2_ci"}, // tables set their own
	{"sql_select_limit", "1", "18446744073709551615"},
	{"sql_safe_updates", "1", "0"},
	{"max_join_size", "1", "1"}, // limits small selects only
	{"sql_big_selects", "0", "1"},
	{"unique_checks", "0", "1"},
	{"check_constraint_checks", "0", "1"},
	{"max_sort_length", "64", "1024"},
	{"max_statement_time", "0.5", "0"},
	{"max_execution_time", "500", "0"},
	{"innodb_lock_wait_timeout", "1", "10"},
	{"default_storage_engine", "MyISAM", "InnoDB"},
}

// A command that reads for an hour, as a migration does, ends at once.
func TestOpen_AServerThatTakesConnectionsAndNeverAnswers(t *testing.T) {
	t.Parallel()
	silent, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, silent.Close()) }()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err = sqlstore.Open(ctx, sqlstore.Config{
		DSN: "root@tcp(" + silent.Addr().String() + ")/dibs?timeout=50ms", ReadTimeout: time.Hour, Logger: syncertest.Quiet(),
	})
	require.ErrorContains(t, err, "does not answer within 300ms")
	require.NoError(t, ctx.Err())
}

// Otherwise claims would differ or fail on servers with other defaults, or
// with an operator's options.
func TestOpen_WhateverTheDefaultsOfTheServerAndTheOptions(t *testing.T) {
	t.Parallel()
	server := testenv.SQLServer(t)
	admin, err := sql.Open("mysql", server.DSN(""))
	require.NoError(t, err)
	defer func() { _ = admin.Close() }()
	dsn, _, _ := strings.Cut(server.DSN("dibs"), "?")
	dsn += "?clientFoundRows=true&interpolateParams=false&multiStatements=true&loc=Asia%2FTokyo&charset=latin1" +
		"&sql_mode=%27%27&time_zone=%27-05%3A00%27"
	known := map[string]string{}
	for _, one := range odd {
		var was string
		if admin.QueryRow("SELECT @@GLOBAL."+one.name).Scan(&was) == nil {
			_, err := admin.Exec("SET GLOBAL " + one.name + " = " + one.value)
			require.NoError(t, err, one.name)
			known[one.name] = one.want
		}
	}
	require.Greater(t, len(known), len(odd)/2)
	db := syncertest.OpenStore(t, sqlstore.Config{DSN: dsn, Conns: 2})
	for name, want := range known {
		var has string
		require.NoError(t, db.Raw("SELECT @@SESSION."+name).Row().Scan(&has))
		require.Equal(t, want, strings.TrimSuffix(has, ".000000"), name)
	}

	events := syncertest.ClaimsOf("c", 1, 60)
	for i := range events { // a common prefix, in no order
		events[i].UserID = fmt.Sprintf("%s%02d", strings.Repeat("é", 30), (i*7)%len(events))
	}
	syncertest.AddCampaign(t, db, "c", 1000)
	w := syncertest.StartWriter(t, writer.Config{DB: db, FlushInterval: 5 * time.Millisecond})
	require.NoError(t, syncertest.SubmitAll(t.Context(), w, events[:40]))
	require.NoError(t, syncertest.SubmitAll(t.Context(), w, events)) // some again
	syncertest.RequireBooks(t, db, "c", events)

	var at time.Time
	require.NoError(t, db.Raw("SELECT claimed_at FROM claims WHERE seq = 4").Row().Scan(&at))
	require.Equal(t, events[3].At.Time, at.UTC())

	other := syncertest.OpenStore(t, sqlstore.Config{DSN: dsn}) // sees only committed rows
	var rows int
	require.NoError(t, other.Raw("SELECT COUNT(*) FROM claims").Scan(&rows).Error)
	require.Len(t, events, rows)
	var users []string
	// bypasses the index
	require.NoError(t, other.Raw("SELECT user_id FROM claims ORDER BY CONCAT(user_id, '')").Scan(&users).Error)
	require.Len(t, users, len(events))
	require.IsIncreasing(t, users)
	require.NoError(t, sqlstore.InTxBrief(t.Context(), other, func(tx *gorm.DB) error {
		return exec(t.Context(), tx, "UPDATE lots SET redis_total = 1 WHERE id = 'c'")
	}))
	require.NoError(t, other.Exec("UPDATE lots SET total = total + 1 WHERE total > 0").Error)
	require.EqualValues(t, 1001, totalOf(t, db), "it is committed at once, after a transaction too")
	require.NoError(t, other.WithContext(t.Context()).Transaction(func(tx *gorm.DB) error {
		require.NoError(t, exec(t.Context(), tx, "UPDATE lots SET total = 7"))
		require.EqualValues(t, 1001, totalOf(t, db), "what is not committed is not seen")
		return exec(t.Context(), tx, "UPDATE lots SET total = 1001")
	}))
	require.Error(t, other.Exec("UPDATE lots SET claimed = -1 WHERE id = 'c'").Error, "a check holds")
	require.Error(t, other.Exec("UPDATE definitions SET name = REPEAT('x', 1000)").Error, "nothing is cut")
	for i := range 2 {
		_, created, err := syncertest.NewCampaigns(t, db, syncertest.OpenScripts(t)).Create(t.Context(), syncertest.CampaignOf("c2", 1))
		require.NoError(t, err)
		require.Equal(t, i == 0, created)
	}
	var same, engines int
	require.NoError(t, other.Raw("SELECT 'a' = 'A'").Scan(&same).Error)
	require.Zero(t, same)
	require.NoError(t, other.Raw("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND engine <> 'InnoDB'").Scan(&engines).Error)
	require.Zero(t, engines)
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

func TestOpen_RefusesWhatItCannotUse(t *testing.T) {
	t.Parallel()
	for _, cfg := range []sqlstore.Config{
		{Logger: syncertest.Quiet()}, {Logger: syncertest.Quiet(), DSN: "x", Path: "y"}, {Path: "y"}, {Logger: syncertest.Quiet(), DSN: "no dsn"},
	} {
		_, err := sqlstore.Open(t.Context(), cfg)
		require.ErrorIs(t, err, sqlstore.ErrConfig)
	}
	file := syncertest.OpenStore(t, sqlstore.Config{Path: t.TempDir() + "/dibs.db"})
	require.NoError(t, sqlstore.CheckReads(t.Context(), file), "a file is one server")
}
