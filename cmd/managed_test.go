package cmd_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/internal/testenv"
)

// Such a Redis refuses CONFIG and ACL, and its INFO lacks fields that
// some managed servers omit. Claims must still be possible.
func TestAManagedRedisThatHidesWhatItCan(t *testing.T) {
	t.Parallel()
	s := newServers(t)
	addr := testenv.Redis(t, `rename-command CONFIG ""`, `rename-command ACL ""`, "appendonly yes").Addr()
	for _, field := range []string{"maxmemory_policy", "run_id", "connected_slaves", "role", "aof_enabled", "loading", "used_memory"} {
		addr = testenv.Rewriting(t, addr, "\n"+field+":", "\n"+strings.Repeat("x", len(field))+":")
	}
	environ := s.with("DIBS_REDIS_URL=redis://" + addr + "?maxmemory_policy=noeviction")
	serve := start(t, environ, "serve")
	serve.post("/campaigns", `{"id":"spring","kind":"coupon","total":40}`)
	for i := range 40 {
		serve.claim("spring", fmt.Sprint("user-", i))
	}
	serve.synced("spring", 40)
	serve.stop()
	require.Contains(t, requireOK(t, run(t, environ, "reconcile")), "agree")
}
