package lua_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/testenv"
	"dibs/internal/tracing"
	"dibs/lua"
	"dibs/models"
	"dibs/models/event"
)

var update = flag.Bool("update", false, "write the golden files again")

const parentA, parentB = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// oddUsers are legal user ids that JSON, Lua or a hash might garble.
var oddUsers = []string{
	`"quoted"`, `back\slash`, `\u0041`, "Zoë", "用户", "😀", "<&>'", "a b", "]]", "--", "%d%s", "0", "nil",
	strings.Repeat("𝔘", models.UserIDLength), // 4 bytes each
}

// The script's own calendar must equal Go's.
func TestEventTimeIsTheClaimsTime(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		for _, at := range []string{
			"1970-01-01T00:00:00.001Z", "1999-12-31T23:59:59.999Z", "2000-02-29T12:34:56.789Z", "2024-02-29T00:00:00.000Z",
			"2026-03-01T00:00:00.007Z", "2026-12-31T23:59:59.090Z", "2099-11-30T01:02:03.400Z", "2100-02-28T23:59:59.999Z", "2100-03-01T00:00:00.000Z",
		} {
			now, err := time.Parse(models.TimeLayout, at)
			require.NoError(t, err)
			b := newBundle(t, rdb, nil)
			b.setClock(now)
			reply := b.claim(want("u", 1, ""))[0]
			require.Equal(t, at, reply.Claim.ClaimedAt.Format(models.TimeLayout))
			require.Equal(t, at, b.events()[0].At.Format(models.TimeLayout))
		}
	})
}

func TestEventIsLetterForLetterTheGolden(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, func(c *models.Campaign) { c.ID, c.Epoch = "spring-sale", 3 })
		id := uuid.MustParse("0195665e-7bfb-7a51-8c33-5d0e4b2f9a10")
		other := uuid.MustParse("0195665e-7bfb-7a51-8c33-5d0e4b2f9a11")
		b.claim(lua.ClaimRequest{ID: id, UserID: `Zoë "Z" \ 用户`, Quantity: 2, Key: "order-1"}, lua.ClaimRequest{ID: other, UserID: "u-2", Quantity: 1})
		entries, err := rdb.XRange(t.Context(), b.keys.Stream, "-", "+").Result()
		require.NoError(t, err)
		for i, name := range []string{"claim_accepted_with_key.json", "claim_accepted.json"} {
			payload := entries[i].Values["payload"].(string) + "\n"
			file := filepath.Join("testdata", "events", name)
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(payload), 0o600))
			}
			golden, err := os.ReadFile(file)
			require.NoError(t, err, "a golden that is missing is written with -update, on purpose")
			require.Equal(t, string(golden), payload)
			require.Empty(t, entries[i].Values["metadata"])
			require.Len(t, entries[i].Values, 3)
		}
	})
}

func FuzzUserIDsSurviveTheEvent(f *testing.F) {
	for _, user := range oddUsers {
		f.Add(user)
	}
	rdb, users := connect(f, testenv.Redis(f).URL()), 0
	var b *bundle
	f.Fuzz(func(t *testing.T, user string) {
		if models.CheckUserID(user) != nil {
			return
		}
		if users++; users%1000 == 1 { // ten million don't fit
			require.NoError(t, rdb.FlushAll(t.Context()).Err()) //nolint:forbidigo // a server of its own
			b = newBundle(t, rdb, func(c *models.Campaign) { c.Total = 1_000_000 })
		}
		b.t = t
		reply := b.claim(want(user, 1, strconv.Itoa(users)))[0]
		require.Equal(t, user, reply.Claim.UserID)
		require.Equal(t, user, b.last().UserID)
	})
}

// The event of a claim says that its answer waits for MySQL. So a claim
// that was never answered can be distinguished.
func TestClaimsOfModeMySQLSaySo(t *testing.T) {
	eachRedis(t, func(t *testing.T, rdb redis.UniversalClient) {
		b := newBundle(t, rdb, nil)
		fast := b.claim(want("fast", 1, ""))
		s, err := lua.New(rdb, lua.Options{
			Clock: func() time.Time { return time.UnixMilli(b.ourMs.Load()) }, ServerClock: b.redisMs.Load, Durability: lua.MySQL,
		})
		require.NoError(t, err)
		b.s = s
		waits := b.claim(want("waits", 1, "key"), want("waits", 1, "key"))
		events := b.events()
		require.Equal(t, []string{"", event.ModeMySQL}, []string{events[0].Mode, events[1].Mode})
		require.Equal(t, []bool{false, true}, []bool{events[0].IsAwaited(), events[1].IsAwaited()})
		require.Equal(t, []int64{1, 1, 0}, []int64{fast[0].Epoch, waits[0].Epoch, waits[1].Epoch}, "a replay says nothing of the load")
		b.requireBooks()
	})
}

// Only traced claims that were taken have metadata, each its own, which
// our consumers read, as does the stock unmarshaller of watermill.
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
			e, err := event.Decode(msg.Payload)
			require.NoError(t, err)
			require.Equal(t, e.ID, msg.UUID)
			parents = append(parents, msg.Metadata.Get("traceparent"))
			require.Equal(t, msg.Metadata.Get("traceparent"), tracing.ParentIn(entry.Values["metadata"].(string)))
			require.Equal(t, msg.Metadata.Get("traceparent") == "", entry.Values["metadata"] == "", "nothing where nothing is traced")
		}
		require.Equal(t, []string{"", parentA, "", parentB, "", "", "", "", ""}, parents, "the second of ada's was refused")
	})
}
