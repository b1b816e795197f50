package e2e

import (
	"fmt"
	"maps"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/testenv"
	"dibs/lua"
	"dibs/models"
)

// roles are Dibs' processes, stopped and started by a guide.
type roles struct {
	t        *testing.T
	settings map[string]string
	api      *process
	others   []*process
}

func startRoles(t *testing.T, s *servers) *roles {
	t.Helper()
	r := &roles{t: t, settings: map[string]string{
		"DIBS_REDIS_URL": s.redisURL, "DIBS_MYSQL_DSN": s.dsn, "DIBS_PARTITIONS": fmt.Sprint(s.partitions), "DIBS_NAME": "one",
		"DIBS_STREAM_KEEP": "0s",
	}}
	r.startOthers()
	r.startAPI()
	return r
}

func (r *roles) startOthers() {
	r.t.Helper()
	r.others = nil
	for _, role := range []string{"consumer", "syncer", "finance"} {
		r.others = append(r.others, newProcess(r.t, role, r.settings))
	}
}

func (r *roles) startAPI() { r.t.Helper(); r.api = newProcess(r.t, "api", r.settings) }

func (r *roles) stop() {
	r.t.Helper()
	r.api.stop()
	for _, p := range r.others {
		p.stop()
	}
}

func (r *roles) claimEach(campaignID string, from, to int) map[string]models.Claim {
	r.t.Helper()
	claims := map[string]models.Claim{}
	for user := from; user < to; user++ {
		got := claimUntilAnswered(r.t, r.api.url, campaignID, fmt.Sprint("user-", user), 1, fmt.Sprint("key-", user))
		require.Equal(r.t, http.StatusCreated, got.status, got.body)
		c := got.claim(r.t)
		claims[c.ID] = c
	}
	return claims
}

// sellOut claims until nothing is left, and requires that
// MySQL's rows then equal the total.
func (r *roles) sellOut(s *servers, c campaign) {
	r.t.Helper()
	for user := 0; ; user++ {
		got := claimUntilAnswered(r.t, r.api.url, c.ID, fmt.Sprint("late-", user), 1, "")
		if got.status != http.StatusCreated {
			require.Equal(r.t, "sold_out", got.code(), got.body)
			break
		}
	}
	(&system{servers: *s, t: r.t}).awaitSynced(c.ID, int(c.Total))
}

func hostPort(t *testing.T, redisURL string) (host, port string) {
	t.Helper()
	o, err := redis.ParseURL(redisURL)
	require.NoError(t, err)
	host, port, err = net.SplitHostPort(o.Addr)
	require.NoError(t, err)
	return host, port
}

// First Redis is lost, with claims that MySQL lacks; then both.
func TestGuide_BackupAndRestore(t *testing.T) {
	t.Parallel()
	s := newServers(t, setup{})
	r := startRoles(t, &s)
	whole := &system{servers: s, t: t}
	c := openCampaign(t, r.api.url, campaign{Total: 100, PerUser: 1})
	kept := r.claimEach(c.ID, 0, 20)
	whole.awaitSynced(c.ID, 20)
	other := testenv.Database(t)
	g := openGuide(t, "backup.md", &s, map[string]string{"NEW_DSN": other.DSN, "NEW_MYSQL": "mysql " + other.Name})
	require.Contains(t, g.run("dump"), "-- Dump completed")

	r.others[0].stop() // so that MySQL lacks claims
	r.claimEach(c.ID, 20, 27)
	s.redis.Kill()
	s.redis.Start() // empty
	r.others[0].restart()
	late := r.claimEach(c.ID, 27, 30) // without intervention
	whole.awaitSynced(c.ID, 23)
	require.Contains(t, runDibs(t, r.settings, "reconcile").stdout, "7 claims of 7 units are lost")
	require.Contains(t, g.run("give up"), "given up: 7 units are for sale again")

	r.stop()
	s.redis.Kill()
	s.redis.Start()
	require.Contains(t, g.run("load"), "campaigns\tclaimed\n1\t20")
	g.run("restore")
	r.startOthers()
	require.Contains(t, g.run("compare"), "agree")
	require.Contains(t, g.run("synced"), c.ID+"\t100\t20\t20")
	r.startAPI()
	for id := range late { // made after the dump
		eventually(t, upTimeout, "the partition is not ok", func() bool { return lookedUp(t, r.api.url, id).code() == "claim_not_found" })
	}
	for id, before := range kept {
		again := claimOnce(t, r.api.url, c.ID, before.UserID, 1, strings.Replace(before.UserID, "user", "key", 1))
		require.Equal(t, id, again.claim(t).ID, again.body)
		break
	}
	require.Equal(t, "user_limit", claimOnce(t, r.api.url, c.ID, "user-7", 1, "another key").code())
	r.sellOut(&s, c)

	r.stop()
	g.run("another kind")
	r.settings["DIBS_MYSQL_DSN"] = other.DSN
	r.startOthers()
	r.startAPI()
	got := runDibs(t, r.settings, "reconcile")
	require.Zero(t, got.code, got.stdout+got.stderr)
	for id := range kept {
		require.Equal(t, http.StatusOK, lookedUp(t, r.api.url, id).status)
	}
}

func TestGuide_AnotherRedis(t *testing.T) {
	t.Parallel()
	s := newServers(t, setup{})
	target := testenv.Redis(t)
	r := startRoles(t, &s)
	c := openCampaign(t, r.api.url, campaign{Total: 60, PerUser: 1})
	before := r.claimEach(c.ID, 0, 20)
	host, port := hostPort(t, s.redisURL)
	g := openGuide(t, "another-redis.md", &s, map[string]string{"NEW_REDIS_URL": target.URL(), "OLD_HOST": host, "OLD_PORT": port})
	g.run("follow")
	maps.Copy(before, r.claimEach(c.ID, 20, 30))
	r.stop()
	require.Regexp(t, `\n1\n$`, g.run("caught up"))
	g.run("promote")
	r.settings["DIBS_REDIS_URL"] = target.URL()
	r.startOthers()
	r.startAPI()
	r.requireMoved(&s, c, before)
}

// requireMoved requires that a move keeps earlier claims and the
// rest can be claimed.
func (r *roles) requireMoved(s *servers, c campaign, before map[string]models.Claim) {
	r.t.Helper()
	for id, claim := range before {
		require.Equal(r.t, http.StatusOK, lookedUp(r.t, r.api.url, id).status)
		again := claimOnce(r.t, r.api.url, c.ID, claim.UserID, 1, strings.Replace(claim.UserID, "user", "key", 1))
		require.Equal(r.t, id, again.claim(r.t).ID, again.body)
	}
	r.sellOut(s, c)
	got := runDibs(r.t, r.settings, "reconcile")
	require.Zero(r.t, got.code, got.stdout)
	var lost int64
	require.NoError(r.t, s.db.QueryRowContext(r.t.Context(), "SELECT COUNT(*) FROM repairs").Scan(&lost))
	require.Zero(r.t, lost, "nothing had to be repaired")
}

func TestGuide_OneRedisToACluster(t *testing.T) {
	t.Parallel()
	s := newServers(t, setup{partitions: 6})
	nodes := testenv.RedisCluster(t, 3)
	r := startRoles(t, &s)
	var campaigns []campaign
	before := map[string]map[string]models.Claim{}
	for i := range 4 {
		c := openCampaign(t, r.api.url, campaign{ID: fmt.Sprint("grow-", i), Total: 40, PerUser: 1})
		campaigns, before[c.ID] = append(campaigns, c), r.claimEach(c.ID, 0, 10)
	}
	r.stop()
	host, port := hostPort(t, s.redisURL)
	url := "redis://" + strings.Join(nodes, ",")
	g := openGuide(t, "cluster.md", &s, map[string]string{"CLUSTER_NODE": nodes[0], "CLUSTER_URL": url, "OLD_HOST": host, "OLD_PORT": port})
	g.run("import")
	g.run("compare")
	r.settings["DIBS_REDIS_URL"] = url
	r.startOthers()
	r.startAPI()
	for _, c := range campaigns {
		r.requireMoved(&s, c, before[c.ID])
	}
}

func TestGuide_AGroup(t *testing.T) {
	t.Parallel()
	s := newServers(t, setup{partitions: 2})
	r := startRoles(t, &s)
	c := openCampaign(t, r.api.url, campaign{Total: 100})
	g := openGuide(t, "group.md", &s, map[string]string{"DIBS_URL": r.api.url, "DIBS_TOKEN": "any"})
	stream := lua.StreamKey(lua.PartitionOf(c.ID, 2))
	g.run("add")
	syncer := r.others[1]
	r.claimEach(c.ID, 0, 30)
	backlog := func(group string) float64 {
		return metric(t, syncer.url, fmt.Sprintf("dibs_stream_group_backlog_entries{group=%q,partition=\"%d\"}", group, lua.PartitionOf(c.ID, 2)))
	}
	// a load, 30 claims, and perhaps the definition, after a trim
	// that only this group held back
	require.Eventually(t, func() bool {
		return backlog("audit") >= 31 && backlog("syncer") == 0 && backlog("finance") == 0
	}, upTimeout, 50*time.Millisecond)
	require.NoError(t, s.rdb.XGroupDestroy(t.Context(), stream, "audit").Err(), "Redis loses the group")
	syncer.stop()
	syncer.restart()
	r.claimEach(c.ID, 30, 40)
	(&system{servers: s, t: t}).awaitSynced(c.ID, 40)
	require.Contains(t, strings.Join(strings.Fields(g.run("lag")), " "), "audit")
	read, err := s.rdb.XReadGroup(t.Context(), &redis.XReadGroupArgs{
		Group: "audit", Consumer: "me", Streams: []string{stream, ">"}, Count: 1000, NoAck: true,
	}).Result()
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(read[0].Messages), 41, "none was trimmed before it was read")
	for p := range 2 { // the service is stopped, and its reader's recent activity is deleted from Redis
		require.NoError(t, s.rdb.XGroupDelConsumer(t.Context(), lua.StreamKey(p), "audit", "me").Err())
	}
	g.run("remove")
	require.Eventually(t, func() bool { return s.rdb.XLen(t.Context(), stream).Val() < 40 }, upTimeout, 50*time.Millisecond, "trimmed again")
}
