package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"dibs/models"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// shopper says who claims from a campaign of several shards.
type shopper func(n, shards int) string

// evenly are users as they come.
func evenly(n, _ int) string { return fmt.Sprintf("u-%d", n) }

// onShard are users of one shard.
func onShard(n, shards, shard int) string {
	for i := 0; ; i++ {
		if user := fmt.Sprintf("s-%d-%d", n, i); models.ShardOfUser(user, shards) == shard {
			return user
		}
	}
}

// mostlyOne are users of whom nine in ten have the same shard.
func mostlyOne(n, shards int) string {
	if n%10 == 0 {
		return evenly(n, shards)
	}
	return onShard(n, shards, 1)
}

// onlyOne are users that all have the same shard.
func onlyOne(n, shards int) string { return onShard(n, shards, shards) }

var keepingAlive = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}

// sale is a campaign of several shards on sale.
type sale struct {
	t        *testing.T
	s        *system
	id       string
	total    int64
	shards   int
	quantity int64 // the most units of a claim
	users    shopper

	next   atomic.Int64
	held   atomic.Int64 // answers 503
	mu     sync.Mutex
	claims []models.Claim
	noes   []no
}

// no is a sold_out.
type no struct {
	quantity int64
	at       time.Time // when it was answered
}

func (s *system) sell(t *testing.T, total int64, shards int, quantity int64, users shopper) *sale {
	t.Helper()
	sl := &sale{t: t, s: s, id: orID(t, ""), total: total, shards: shards, quantity: quantity, users: users}
	got := call(t, http.MethodPost, s.apis[0].url+"/v1/campaigns", "", map[string]any{"id": sl.id, "kind": "coupon", "total": total, "shards": shards})
	require.Equal(t, http.StatusCreated, got.status, got.body)
	return sl
}

// run has workers claim until they are told that not one unit is left.
func (sl *sale) run(workers int) {
	var g errgroup.Group
	for i := range workers {
		g.Go(func() error { return sl.shop(rand.New(rand.NewPCG(7, uint64(i)))) })
	}
	require.NoError(sl.t, g.Wait())
}

func (sl *sale) shop(dice *rand.Rand) error {
	most := sl.quantity
	for until := time.Now().Add(time.Minute); time.Now().Before(until); {
		quantity := 1 + dice.Int64N(most)
		user := sl.users(int(sl.next.Add(1)), sl.shards)
		url := sl.s.apis[dice.IntN(len(sl.s.apis))].url
		got := callOn(sl.t, keepingAlive, http.MethodPost, url+"/v1/campaigns/"+sl.id+"/claims", "", map[string]any{"user_id": user, "quantity": quantity})
		switch code := got.code(); {
		case got.err != nil:
			return got.err
		case got.status == http.StatusCreated:
			sl.mu.Lock()
			sl.claims = append(sl.claims, got.claim(sl.t))
			sl.mu.Unlock()
		case code == "unavailable":
			sl.held.Add(1)
		case code == "sold_out":
			sl.mu.Lock()
			sl.noes = append(sl.noes, no{quantity, time.Now()})
			sl.mu.Unlock()
			if quantity == 1 {
				return nil
			}
			most = 1
		default:
			return fmt.Errorf("%d %s", got.status, got.body) //nolint:err113 // what came
		}
	}
	return fmt.Errorf("not sold out after a minute") //nolint:err113 // what came
}

// requireExact expects that all units went, that nobody was told sold out before that was so, and that all books agree.
func (sl *sale) requireExact() {
	t := sl.t
	t.Helper()
	var units int64
	seqs := map[string]int64{}
	for i := range sl.claims {
		units += sl.claims[i].Quantity
		seqs[sl.claims[i].UserID]++
	}
	require.Equal(t, sl.total, units, "units that were claimed")
	for _, n := range sl.noes {
		var later int64
		for i := range sl.claims {
			if sl.claims[i].ClaimedAt.After(n.at) {
				later += sl.claims[i].Quantity
			}
		}
		require.Less(t, later, n.quantity, "a claim of %d was told sold out at %s, and so many units went later", n.quantity, n.at)
	}
	sl.requireBooks(units)
	t.Logf("%s: %d shards, %d claims, %d held for too long, %d moves", sl.id, sl.shards, len(sl.claims), sl.held.Load(), sl.moves())
}

// requireBooks expects that the rows, the counters, the shards and Redis agree on so many units.
func (sl *sale) requireBooks(units int64) {
	t := sl.t
	t.Helper()
	var stock models.Stock
	require.Eventually(t, func() bool {
		got := call(t, http.MethodGet, sl.s.apis[0].url+"/v1/campaigns/"+sl.id+"/stock", "", nil)
		require.NoError(t, json.Unmarshal([]byte(got.body), &stock), got.body)
		return stock.Synced == units && stock.Backlog == 0
	}, time.Minute, 20*time.Millisecond, "stock %+v", &stock)
	require.Equal(t, []int64{sl.total, sl.total - units, units, 0}, []int64{stock.Total, stock.Remaining, stock.Claimed, stock.Drift})
	var claimed, remaining, synced, rows, quantity, reserve, granted, flushed int64
	require.NoError(t, sl.s.db.QueryRowContext(t.Context(), `SELECT c.claimed, c.remaining, c.synced_seq, c.reserve,
		(SELECT COUNT(*) FROM claims WHERE campaign_id = c.id), (SELECT COALESCE(SUM(quantity), 0) FROM claims WHERE campaign_id = c.id),
		(SELECT COALESCE(SUM(granted), 0) FROM campaign_shards WHERE campaign_id = c.id),
		(SELECT COALESCE(SUM(units), 0) FROM stock_flushes WHERE campaign_id = c.id) FROM campaigns c WHERE c.id = ?`, sl.id).
		Scan(&claimed, &remaining, &synced, &reserve, &rows, &quantity, &granted, &flushed))
	require.Equal(t, []int64{units, sl.total - units, rows, units, units}, []int64{claimed, remaining, synced, quantity, flushed})
	if sl.shards > 1 {
		require.Equal(t, sl.total, reserve+granted)
	}
}

func (sl *sale) moves() (n int) {
	require.NoError(sl.t, sl.s.db.QueryRowContext(sl.t.Context(), "SELECT COUNT(*) FROM stock_moves WHERE campaign_id = ?", sl.id).Scan(&n))
	return n
}

// TestShardsSellOutExactly: however many shards, wherever the users are, and however many units they ask for, all units go, and nobody is
// told sold out while a unit is free.
func TestShardsSellOutExactly(t *testing.T) {
	t.Parallel()
	s := newSystem(t, wishes{apis: 2, partitions: 4})
	for _, shards := range []int{1, 2, 4, 16} {
		for name, users := range map[string]shopper{"even": evenly, "nine in ten on one": mostlyOne, "all on one": onlyOne} {
			for _, quantity := range []int64{1, 10} {
				sl := s.sell(t, 600, shards, quantity, users)
				sl.run(16)
				t.Log(name)
				sl.requireExact()
			}
		}
	}
}
