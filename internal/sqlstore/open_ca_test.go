package sqlstore_test

import (
	"errors"
	"strings"
	"testing"

	"dibs/internal/sqlstore"
	"dibs/internal/syncertest"
	"dibs/internal/testenv"

	"github.com/stretchr/testify/require"
)

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
