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

	"dibs/internal/testkit/testenv"
	"dibs/models"
	"dibs/models/event"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// shopper chooses the user of a sharded campaign's nth claim.
type shopper func(n, shards int) string

// evenly spreads users over shards.
func evenly(n, _ int) string { return fmt.Sprintf("u-%d", n) }

func onShard(n, shards, shard int) string {
	for i := 0; ; i++ {
		if user := fmt.Sprintf("s-%d-%d", n, i); models.ShardOfUser(user, shards) == shard {
			return user
		}
	}
}

// mostlyOne puts nine of ten users into one shard.
func mostlyOne(n, shards int) string {
	if n%10 == 0 {
		return evenly(n, shards)
	}
	return onShard(n, shards, 1)
}

// onlyOne puts all users into one shard.
func onlyOne(n, shards int) string { return onShard(n, shards, shards) }

var keepingAlive = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}

// sale is a sharded campaign on sale.
type sale struct {
	t        *testing.T
	s        *system
	id       string
	total    int64
	shards   int
	quantity int64 // the most units of a claim
	users    shopper

	next   atomic.Int64
	held   atomic.Int64 // number of 503 replies
	mu     sync.Mutex
	claims []models.Claim
	noes   []no

	answered func(shard int, code string) // called with each reply unless nil; "" is a grant
}

type no struct {
	quantity int64
	at       time.Time // of the reply
}

func (s *system) sell(t *testing.T, total int64, shards int, quantity int64, users shopper) *sale {
	t.Helper()
	sl := &sale{t: t, s: s, id: orID(t, ""), total: total, shards: shards, quantity: quantity, users: users}
	got := call(t, http.MethodPost, s.apis[0].url+"/v1/campaigns", "", map[string]any{"id": sl.id, "kind": "coupon", "total": total, "shards": shards})
	require.Equal(t, http.StatusCreated, got.status, got.body)
	return sl
}

// run has workers claim until not one unit is left.
func (sl *sale) run(workers int) {
	var g errgroup.Group
	for i := range workers {
		g.Go(func() error { return sl.shop(rand.New(rand.NewPCG(7, uint64(i)))) })
	}
	require.NoError(sl.t, g.Wait())
}

func (sl *sale) shop(dice *rand.Rand) error {
	most := sl.quantity
	var doubtful []wanted // outcome unknown, to be retried
	for until := time.Now().Add(time.Minute); time.Now().Before(until); {
		w := wanted{user: sl.users(int(sl.next.Add(1)), sl.shards), quantity: 1 + dice.Int64N(most)}
		switch code, err := sl.ask(dice, w); {
		case err != nil:
			return err
		case code == "outcome_unknown":
			doubtful = append(doubtful, w)
		case code == "sold_out" && w.quantity == 1:
			return sl.settle(dice, doubtful, until)
		case code == "sold_out":
			most = 1
		}
	}
	return fmt.Errorf("not sold out after a minute") //nolint:err113 // what came
}

// wanted is a claim; its user is also its key.
type wanted struct {
	user     string
	quantity int64
}

// ask makes a claim once, and records the reply. It returns "" for a grant.
func (sl *sale) ask(dice *rand.Rand, w wanted) (code string, err error) {
	url := sl.s.apis[dice.IntN(len(sl.s.apis))].url
	got := callOn(sl.t, keepingAlive, http.MethodPost, url+"/v1/campaigns/"+sl.id+"/claims", w.user, map[string]any{"user_id": w.user, "quantity": w.quantity})
	if got.err != nil {
		return "", got.err
	}
	if got.status != http.StatusCreated {
		code = got.code()
	}
	sl.mu.Lock()
	defer sl.mu.Unlock()
	switch code {
	case "":
		sl.claims = append(sl.claims, got.claim(sl.t))
	case "unavailable":
		sl.held.Add(1)
	case "sold_out":
		sl.noes = append(sl.noes, no{w.quantity, time.Now()})
	case "outcome_unknown":
	default:
		return "", fmt.Errorf("%d %s", got.status, got.body) //nolint:err113 // what came
	}
	if sl.answered != nil {
		sl.answered(models.ShardOfUser(w.user, sl.shards), code)
	}
	return code, nil
}

// settle retries until each claim has its reply.
func (sl *sale) settle(dice *rand.Rand, doubtful []wanted, until time.Time) error {
	for len(doubtful) > 0 && time.Now().Before(until) {
		code, err := sl.ask(dice, doubtful[0])
		if err != nil {
			return err
		}
		if code == "" || code == "sold_out" {
			doubtful = doubtful[1:]
		}
	}
	return nil
}

// requireExact requires that all units were sold, no user got
// sold_out before, and all data agree.
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

// requireBooks requires that rows, counters, shards and Redis
// agree on the units.
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
	books := sl.s.booksOf(sl.id)
	require.Equal(t, units, books.Live)
	var wrong report
	books.Counters(wrong.addf)
	books.Sequence(sl.shards, false, wrong.addf)
	require.Empty(t, wrong)
	if sl.shards > 1 {
		var granted int64
		require.NoError(t, sl.s.db.QueryRowContext(t.Context(), "SELECT SUM(granted) FROM campaign_shards WHERE campaign_id = ?", sl.id).Scan(&granted))
		require.Equal(t, sl.total, granted)
	}
}

func (sl *sale) moves() (n int) {
	require.NoError(sl.t, sl.s.db.QueryRowContext(sl.t.Context(), "SELECT COUNT(*) FROM stock_moves WHERE campaign_id = ?", sl.id).Scan(&n))
	return n
}

// scattered gives some shards a few more users than others.
func scattered(n, shards int) string { return evenly(n*7919%100_003, shards) }

// All units must be sold, and no user may get sold_out while a unit is free.
// This holds for any number of shards, any distribution of users, any
// quantity, and for replies before or after Redis' sync to disk. Few claims
// may be answered 503 because units had to move.
func TestShardsSellOutExactly(t *testing.T) {
	t.Parallel()
	for name, w := range map[string]setup{
		"in memory": {},
		"on disk": {
			settings:  map[string]string{"DIBS_DURABILITY": "fsync"},
			redisConf: []string{"appendonly yes", "appendfsync always", "aof-load-truncated no"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w.apis, w.partitions = 2, 4
			s := newSystem(t, w)
			for _, row := range []struct {
				users    shopper
				shards   int
				quantity int64
			}{{evenly, 1, 10}, {evenly, 16, 1}, {mostlyOne, 2, 10}, {mostlyOne, 16, 10}, {onlyOne, 4, 3}, {onlyOne, 16, 1}} {
				sl := s.sell(t, int64(testenv.Pick(200, 2000)), row.shards, row.quantity, row.users)
				sl.run(16)
				sl.requireExact()
			}
			sl := s.sell(t, 600, 4, 1, scattered)
			sl.run(8)
			sl.requireExact()
			require.Less(t, int(sl.held.Load()), len(sl.claims)/2, "a busy machine may hold some for too long")
		})
	}
}

func (sl *sale) change(status int, fields map[string]any) reply {
	sl.t.Helper()
	got := call(sl.t, http.MethodPatch, sl.s.apis[0].url+"/v1/campaigns/"+sl.id, "", fields)
	require.Equal(sl.t, status, got.status, got.body)
	return got
}

// claim makes a claim and retries on 503.
func (sl *sale) claim(user string, quantity int64, key string) reply {
	sl.t.Helper()
	for until := time.Now().Add(20 * time.Second); ; {
		got := call(sl.t, http.MethodPost, sl.s.apis[0].url+"/v1/campaigns/"+sl.id+"/claims", key, map[string]any{"user_id": user, "quantity": quantity})
		if got.status != http.StatusServiceUnavailable || time.Now().After(until) {
			return got
		}
	}
}

func (sl *sale) took(user string, quantity int64) models.Claim {
	sl.t.Helper()
	got := sl.claim(user, quantity, "")
	require.Equal(sl.t, http.StatusCreated, got.status, got.body)
	return got.claim(sl.t)
}

func (sl *sale) refused(code, user string, quantity int64) {
	sl.t.Helper()
	require.Eventually(sl.t, func() bool { return sl.claim(user, quantity, "").code() == code }, time.Minute, time.Millisecond,
		"%s for %d", code, quantity)
}

// told counts a type's events of the campaign that finance has read.
func (sl *sale) told(kind event.Type) (n int) {
	r := sl.s.finance
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, line := range r.lines {
		if line == sl.id+" "+string(kind) {
			n++
		}
	}
	return n
}

// A sharded campaign must do all that an unsharded one can.
func TestShardsAreOneCampaign(t *testing.T) {
	t.Parallel()
	s := newSystem(t, setup{partitions: 4})
	const shards = 4
	one := func(n int) string { return onShard(n, shards, 1) }

	t.Run("total goes up and down", func(t *testing.T) {
		sl := s.sell(t, 40, shards, 1, evenly)
		sl.took(one(1), 30)
		sl.change(http.StatusOK, map[string]any{"total": 32})
		sl.total = 32
		sl.refused("sold_out", one(2), 3)
		sl.change(http.StatusOK, map[string]any{"total": 20}) // users keep what they have
		sl.refused("sold_out", onShard(3, shards, 2), 1)
		sl.change(http.StatusOK, map[string]any{"total": 50})
		sl.total = 50
		sl.took(one(4), 20)
		sl.requireBooks(50)
	})
	t.Run("what is released goes to any shard, and what became of a claim is found", func(t *testing.T) {
		sl := s.sell(t, 20, shards, 1, evenly)
		claim := sl.took(one(1), 20)
		sl.refused("sold_out", onShard(2, shards, 4), 1)
		found := call(t, http.MethodGet, s.apis[0].url+"/v1/claims/"+claim.ID, "", nil)
		require.Equal(t, http.StatusOK, found.status, found.body)
		released := call(t, http.MethodPost, s.apis[0].url+"/v1/claims/"+claim.ID+"/release", "", map[string]any{})
		require.Equal(t, http.StatusOK, released.status, released.body)
		redeemed := sl.took(onShard(3, shards, 4), 20)
		got := call(t, http.MethodPost, s.apis[0].url+"/v1/claims/"+redeemed.ID+"/redeem", "", map[string]any{"order_id": "o-1"})
		require.Equal(t, http.StatusOK, got.status, got.body)
		sl.requireBooks(20)
	})
	t.Run("lines are told once a crossing", func(t *testing.T) {
		sl := s.sell(t, 30, shards, 1, evenly)
		sl.change(http.StatusOK, map[string]any{"low_stock_at": 10})
		told := func(low, soldOut int) {
			t.Helper()
			require.Eventually(t, func() bool {
				return sl.told(event.CampaignLowStock) == low && sl.told(event.CampaignSoldOut) == soldOut
			}, time.Minute, 20*time.Millisecond, "%d low, %d sold out", low, soldOut)
		}
		for n := range 25 {
			sl.took(evenly(n, shards), 1)
		}
		told(1, 0)
		sl.took(one(26), 5)
		told(1, 1)
		sl.change(http.StatusOK, map[string]any{"total": 60})
		sl.took(one(27), 30)
		told(2, 2)
	})
}
