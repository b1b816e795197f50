package cmd_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Passwords must be changeable without a restart: first the file, then
// the servers. New connections must use the new one. An unusable file
// must leave the last one in force.
func TestPasswordsInFilesAreReplacedWhileItRuns(t *testing.T) {
	t.Parallel()
	s := newServers(t, "user dibs on >hunter2 ~* &* +@all")
	name := s.dsn[strings.LastIndex(s.dsn, "/")+1:]
	name, _, _ = strings.Cut(name, "?")
	user := "u" + name[max(0, len(name)-20):]
	s.exec("CREATE USER '" + user + "'@'%' IDENTIFIED BY 'hunter2'")
	t.Cleanup(func() { _, _ = s.db.Exec("DROP USER '" + user + "'@'%'") })
	s.exec("GRANT ALL ON `" + name + "`.* TO '" + user + "'@'%'")
	dir := t.TempDir()
	write := func(file, text string) string {
		path := filepath.Join(dir, file)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	url := func(password string) string {
		return strings.Replace(s.redis.URL(), "redis://", "redis://dibs:"+password+"@", 1) + "\n"
	}
	dsn := func(password string) string {
		return "\ufeff" + user + ":" + password + s.dsn[strings.LastIndex(s.dsn, "@"):] + "\r\n"
	}
	files := []string{"DIBS_REDIS_URL_FILE=" + write("redis", url("hunter2")), "DIBS_MYSQL_DSN_FILE=" + write("mysql", dsn("hunter2"))}
	requireOK(t, run(t, files, "migrate"))
	serve := start(t, files, "serve")
	serve.post("/campaigns", `{"id":"spring","kind":"coupon","total":99}`)
	serve.claim("spring", "ada")
	serve.synced("spring", 1)

	write("redis", url("tiger5"))
	write("mysql", dsn("tiger5"))
	admin := s.redis.Client()
	require.NoError(t, admin.Do(t.Context(), "ACL", "SETUSER", "dibs", "resetpass", ">tiger5").Err())
	s.exec("ALTER USER '" + user + "'@'%' IDENTIFIED BY 'tiger5'")
	disconnect := func() {
		require.NoError(t, admin.Do(t.Context(), "CLIENT", "KILL", "USER", "dibs").Err())
		rows, err := s.db.Query("SELECT id FROM information_schema.processlist WHERE user = ?", user)
		require.NoError(t, err)
		defer func() { _ = rows.Close() }()
		var ids []int64
		for rows.Next() {
			var id int64
			require.NoError(t, rows.Scan(&id))
			ids = append(ids, id)
		}
		require.NoError(t, rows.Err())
		for _, id := range ids {
			_, _ = s.db.Exec("KILL ?", id) // it may have ended
		}
	}
	disconnect()
	eventually(t, "a claim is taken after both passwords changed", func() bool {
		return call(t, http.MethodPost, serve.url+"/v1/campaigns/spring/claims", `{"user_id":"eve"}`).status == http.StatusCreated
	})
	var claims struct{ Claims []struct{ ID string } }
	eventually(t, "MySQL is written with the new password", func() bool {
		got := call(t, http.MethodGet, serve.url+"/v1/users/eve/claims", "")
		if got.status == http.StatusOK {
			got.into(t, &claims)
		}
		return len(claims.Claims) == 1
	})

	write("redis", "redis://dibs:oo/ps@127.0.0.1:1")
	write("mysql", "nonsense")
	eventually(t, "it says that a file can't be used", func() bool {
		disconnect()
		call(t, http.MethodPost, serve.url+"/v1/campaigns/spring/claims", `{"user_id":"bob"}`)
		return strings.Contains(serve.problems.String(), "what it said before stays in force")
	})
	eventually(t, "files that cannot be used change nothing", func() bool {
		return call(t, http.MethodPost, serve.url+"/v1/campaigns/spring/claims", `{"user_id":"zoe"}`).status == http.StatusCreated
	})
	said := serve.stop().stderr
	for _, secret := range []string{"hunter2", "tiger5", "oo/ps", "nonsense"} {
		require.NotContains(t, said, secret)
	}
	require.Contains(t, said, "what it said before stays in force")
}
