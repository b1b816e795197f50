package lua_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/internal/tracing"
	"dibs/lua"
	"dibs/models"
)

const parentA, parentB = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// Only traced claims that were taken have metadata, each its own, which
// watermill and our consumers read.
func TestATraceTravelsInTheMetadata(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, func(c *models.Campaign) { c.PerUser = 1 })
		traced := func(user, parent string) lua.ClaimRequest {
			req := want(user, 1, "")
			req.TraceParent = parent
			return req
		}
		b.claim(want("none", 1, ""), traced("ada", parentA), traced("ada", parentB), want("plain", 1, ""), traced("bob", parentB))
		b.claim(want("later", 1, ""))
		noTraces := []string{"x", "00-1;2=3-4", parentA[:52], strings.Repeat("0", 4000)}
		for i, parent := range noTraces {
			require.Equal(t, []models.Outcome{models.OutcomeClaimed}, b.outcomes(traced(fmt.Sprint("none", i), parent)))
		}
		b.requireBooks()
		entries, err := rdb.XRange(t.Context(), b.keys.Stream, "-", "+").Result()
		require.NoError(t, err)
		var parents []string
		for _, entry := range entries {
			if !strings.Contains(entry.Values["payload"].(string), b.c.ID) {
				continue
			}
			msg, err := redisstream.DefaultMarshallerUnmarshaller{}.Unmarshal(entry.Values)
			require.NoError(t, err)
			parents = append(parents, msg.Metadata.Get("traceparent"))
			require.Equal(t, msg.Metadata.Get("traceparent"), tracing.ParentIn(entry.Values["metadata"].(string)))
			require.Equal(t, msg.Metadata.Get("traceparent") == "", entry.Values["metadata"] == "", "nothing where nothing is traced")
		}
		require.Equal(t, []string{"", parentA, "", parentB, "", "", "", "", ""}, parents, "the second of ada's was refused")
	})
}
