package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Without MySQL, claims of a campaign in Redis must go on and all else be
// refused. Once MySQL is reachable, no restart may be needed, and a process
// with settings that contradict MySQL's data must end.
func TestAnAPIStartsWhileMySQLIsAway(t *testing.T) {
	t.Parallel()
	s := newSystem(t, setup{ownSQL: true})
	c := openCampaign(t, s.apis[0].url, campaign{Total: 10})
	require.Equal(t, http.StatusCreated, claimOnce(t, s.apis[0].url, c.ID, "ada", 1, "k").status)
	s.apis[0].stop()
	s.sql.Kill()

	s.apis[0].restart() // waits for /readyz
	require.Contains(t, s.apis[0].output(), "MySQL is away")
	require.Equal(t, http.StatusCreated, claimOnce(t, s.apis[0].url, c.ID, "bob", 1, "k2").status)
	replay := claimOnce(t, s.apis[0].url, c.ID, "ada", 1, "k")
	require.Equal(t, "true", replay.header.Get("Idempotent-Replayed"), replay.body)
	refused := call(t, http.MethodPost, s.apis[0].url+"/v1/campaigns", "", campaign{ID: "later", Kind: "coupon", Total: 1})
	require.Equal(t, "unavailable", refused.code(), refused.body)
	require.NotEmpty(t, refused.header.Get("Retry-After"))

	settings := map[string]string{"DIBS_REDIS_URL": s.redisURL, "DIBS_MYSQL_DSN": s.dsn, "DIBS_PARTITIONS": "4"}
	stranger := newProcess(t, "api", settings)
	consumer := makeProcess(t, "consumer", settings)
	consumer.start()
	consumer.awaitUp()

	s.sql.Start()
	consumer.awaitEnd()
	require.Equal(t, exitUsage, consumer.cmd.ProcessState.ExitCode(), consumer.tail())
	stranger.awaitEnd()
	require.Equal(t, exitUsage, stranger.cmd.ProcessState.ExitCode(), stranger.tail())
	require.Contains(t, stranger.output(), "DIBS_PARTITIONS: number of partitions cannot change")
	require.Eventually(t, func() bool {
		got := call(t, http.MethodPost, s.apis[0].url+"/v1/campaigns", "", campaign{ID: "later", Kind: "coupon", Total: 1})
		return got.status == http.StatusCreated
	}, upTimeout, pollEvery)
	require.Equal(t, 1, strings.Count(s.apis[0].output(), "MySQL is there"))
	require.Equal(t, http.StatusCreated, claimOnce(t, s.apis[0].url, "later", "ada", 1, "").status)
	s.apis[0].stop()
}
