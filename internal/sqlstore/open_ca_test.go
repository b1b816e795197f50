package sqlstore_test

import (
	"strings"
	"testing"

	"dibs/internal/sqlstore"
	"dibs/internal/syncertest"
	"dibs/internal/testenv"

	"github.com/stretchr/testify/require"
)

func TestOpen_TrustsAPrivateAuthorityAndNoOther(t *testing.T) {
	t.Parallel()
	cert, key := testenv.Certificate(t)
	other, _ := testenv.Certificate(t)
	server := testenv.SQLServer(t, "--ssl-cert="+cert, "--ssl-key="+key, "--ssl-ca="+cert)
	dsn := server.DSN("")
	with := func(parameter string) string {
		if strings.Contains(dsn, "?") {
			return dsn + "&" + parameter
		}
		return dsn + "?" + parameter
	}
	db, err := sqlstore.Open(t.Context(), sqlstore.Config{DSN: with("tls_ca=" + strings.ReplaceAll(cert, "/", "%2F")), Logger: syncertest.Quiet()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sqlstore.Close(db)) })
	var name, cipher string
	require.NoError(t, db.Raw("SHOW STATUS LIKE 'Ssl_cipher'").Row().Scan(&name, &cipher))
	require.NotEmpty(t, cipher, "the connection is encrypted")

	_, err = sqlstore.Open(t.Context(), sqlstore.Config{DSN: with("tls_ca=" + strings.ReplaceAll(other, "/", "%2F")), Logger: syncertest.Quiet()})
	require.ErrorContains(t, err, "unknown authority")
	_, err = sqlstore.Open(t.Context(), sqlstore.Config{DSN: with("tls_ca=/no/such"), Logger: syncertest.Quiet()})
	require.ErrorIs(t, err, sqlstore.ErrConfig)
}
