package cmd_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/cmd"
	"dibs/internal/testenv"
)

// Logs at the lowest level must contain no secret, through accepted
// and refused requests, sign-ins, and unreachable servers.
func TestNoLogHoldsASecret(t *testing.T) {
	t.Parallel()
	redis := testenv.Redis(t, "user dibs on >hunter2-redis ~* &* +@all")
	url := strings.Replace(redis.URL(), "redis://", "redis://dibs:hunter2-redis@", 1)
	settings := []string{
		"DIBS_REDIS_URL=" + url, "DIBS_MYSQL_DSN=" + testenv.Database(t).DSN, "DIBS_ADMIN_TOKEN=hunter2-admin-0123456789",
		"DIBS_STOREFRONT_TOKEN=hunter2-store-0123456789", "DIBS_LOG_LEVEL=debug", "DIBS_LOG_FORMAT=json", "DIBS_ACCESS_LOG=1",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://me:hunter2@" + testenv.Addr(t), "OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20hunter2",
	}
	require.Equal(t, cmd.ExitOK, run(t, settings, "migrate").code)
	serve := start(t, settings, "serve")
	admin := "Authorization: Bearer hunter2-admin-0123456789"
	traced := "Traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	serve.post("/campaigns", coupon, admin)
	serve.post("/campaigns/spring/claims", `{"user_id":"ada"}`, "Authorization: Bearer hunter2-store-0123456789", traced)
	for _, wrong := range []string{
		"Bearer hunter2-nobody-0123456789", "Basic aHVudGVyMjpodW50ZXIy", "Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJodW50ZXIyIn0.aHVudGVyMg",
	} {
		require.Equal(t, http.StatusUnauthorized, call(t, http.MethodGet, serve.url+"/v1/campaigns", "", "Authorization: "+wrong).status)
	}
	for _, token := range []string{"hunter2-admin-0123456789", "hunter2-wrong-0123456789"} {
		call(t, http.MethodPost, serve.url+"/console/sign-in", "token="+token, "Content-Type: application/x-www-form-urlencoded")
	}
	redis.Kill()
	require.NotEqual(t, http.StatusCreated, call(t, http.MethodPost, serve.url+"/v1/campaigns/spring/claims", `{"user_id":"bob"}`, admin).status)
	eventually(t, "the loss of Redis is not logged", func() bool { return strings.Contains(serve.problems.String(), "is redis up?") })
	said := serve.stop().stderr
	require.Contains(t, said, `"msg":"request"`)
	for _, secret := range []string{"hunter2", "aHVudGVyMjpodW50ZXIy", "eyJzdWIiOiJodW50ZXIyIn0"} {
		require.NotContains(t, said, secret)
	}
}
