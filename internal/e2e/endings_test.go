package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"dibs/internal/sqlstore"
	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/resolve"

	"github.com/stretchr/testify/require"
)

// contest is claims that many want to end at once: callers of two API processes, and the expirer.
type contest struct {
	*system
	campaign campaign
	callers  *http.Client
	clock    atomic.Int64 // of Redis, for the expirer alone
	expirer  *resolve.Expirer
	relay    *resolve.Relay
	head     time.Duration // that the expirer has, or the callers when below 0
}

const (
	contestCallers = 50
	contestHold    = time.Hour
	contestStep    = 200 * time.Microsecond // that head moves by after each claim, towards an even race
)

func newContest(t *testing.T, claims int) *contest {
	t.Helper()
	s := newSystem(t, wishes{apis: 2, syncers: -1})
	c := &contest{system: s, callers: &http.Client{Timeout: upTimeout, Transport: &http.Transport{MaxIdleConnsPerHost: contestCallers}}}
	t.Cleanup(c.callers.CloseIdleConnections)
	c.campaign = openCampaign(t, s.apis[0].url, campaign{Total: int64(claims), PerUser: 1, HoldFor: contestHold.String()})
	db, err := sqlstore.Open(t.Context(), sqlstore.Config{DSN: s.dsn, Logger: quiet})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sqlstore.Close(db)) })
	scripts, err := lua.New(s.rdb, lua.Options{ServerClock: c.clock.Load})
	require.NoError(t, err)
	c.relay = resolve.NewRelay(db, scripts, nil)
	c.expirer = resolve.NewExpirer(c.relay, nil, nil)
	return c
}

// claimAll makes claims one after the other, so that each is due at a time of its own.
func (c *contest) claimAll(claims int) (made []models.Claim) {
	c.t.Helper()
	for i := range claims {
		got := claimOnce(c.t, c.apis[i%2].url, c.campaign.ID, fmt.Sprint("user-", i), 1, "")
		require.Equal(c.t, http.StatusCreated, got.status, got.body)
		made = append(made, got.claim(c.t))
	}
	c.awaitSynced(c.campaign.ID, claims)
	return made
}

// orderOf is the order that a caller redeems for; "" releases.
func orderOf(caller int) string {
	if caller%3 == 0 {
		return ""
	}
	return fmt.Sprint("order-", caller%5)
}

// race has all callers and the expirer end one claim at once and returns what each caller was told.
func (c *contest) race(claim *models.Claim) (told []reply) {
	c.t.Helper()
	c.clock.Store(claim.ClaimedAt.Add(contestHold).UnixMilli())
	told = make([]reply, contestCallers)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range told {
		wg.Go(func() {
			<-start
			<-time.After(c.head)
			verb, body := "release", map[string]any{}
			if order := orderOf(i); order != "" {
				verb, body = "redeem", map[string]any{"order_id": order}
			}
			told[i] = callOn(c.t, c.callers, http.MethodPost, c.apis[i%2].url+"/v1/claims/"+claim.ID+"/"+verb, "", body)
		})
	}
	var err error
	wg.Go(func() {
		<-start
		<-time.After(-c.head)
		_, err = c.expirer.Expire(context.WithoutCancel(c.t.Context()))
	})
	close(start)
	wg.Wait()
	require.NoError(c.t, err)
	return told
}

// judge holds what callers were told against the row, which says the one outcome, and returns its status.
func (c *contest) judge(claim *models.Claim, told []reply) (status string) {
	c.t.Helper()
	var order string
	err := c.db.QueryRowContext(c.t.Context(), "SELECT status, COALESCE(order_id, '') FROM claims WHERE id = ?", claim.ID).Scan(&status, &order)
	require.NoError(c.t, err)
	for i, got := range told {
		require.NoError(c.t, got.err)
		mine := orderOf(i)
		switch {
		case mine == order && (order == "") == (status != "redeemed"): // what this caller wants is so
			require.Equal(c.t, http.StatusOK, got.status, got.body)
			is := got.claim(c.t)
			require.Equal(c.t, []string{claim.ID, status, order}, []string{is.ID, string(is.Status), is.OrderID})
		case status == "redeemed":
			require.Equal(c.t, []any{http.StatusConflict, "already_redeemed"}, []any{got.status, got.code()}, got.body)
			require.Contains(c.t, got.body, order)
		default:
			require.Equal(c.t, []any{http.StatusConflict, "already_released"}, []any{got.status, got.code()}, got.body)
			require.Equal(c.t, status == "expired", regexp.MustCompile("expired").MatchString(got.body), got.body)
		}
	}
	return status
}

// settle moves head by how the last race ended.
func (c *contest) settle(status string) {
	if status == "expired" {
		c.head -= contestStep
	} else {
		c.head += contestStep
	}
}

// wonByCallers is how many resolutions the API processes decided, each the first of its claim.
func (c *contest) wonByCallers(verb string) (won int64) {
	c.t.Helper()
	for _, url := range c.urls() {
		res, err := client.Get(url + "/metrics")
		require.NoError(c.t, err)
		text, err := io.ReadAll(res.Body)
		require.NoError(c.t, err)
		_ = res.Body.Close()
		found := regexp.MustCompile(`(?m)^dibs_resolutions_total\{outcome="resolved",verb="` + verb + `"\} (\d+)$`).FindSubmatch(text)
		require.NotNil(c.t, found)
		n, err := strconv.ParseInt(string(found[1]), 10, 64)
		require.NoError(c.t, err)
		won += n
	}
	return won
}

// TestOneOutcomeAClaim: redeem by several orders, release and expiry of each claim at once, from 50 connections to two API processes.
// One wins; all the others are told who; the books are exact.
func TestOneOutcomeAClaim(t *testing.T) {
	t.Parallel()
	claims := testenv.Pick(40, 1_000)
	c := newContest(t, claims)
	statuses := map[string]int64{}
	for _, claim := range c.claimAll(claims) {
		status := c.judge(&claim, c.race(&claim))
		statuses[status]++
		c.settle(status)
	}
	t.Logf("%v, the expirer had a head start of %s in the end", statuses, c.head)
	require.Positive(t, statuses["expired"])
	require.Positive(t, statuses["redeemed"]+statuses["released"])
	require.EqualValues(t, claims, statuses["expired"]+statuses["redeemed"]+statuses["released"])
	require.Equal(t, statuses["redeemed"], c.wonByCallers("redeem"))
	require.Equal(t, statuses["released"], c.wonByCallers("release"))
	c.requireBack(c.campaign, statuses["redeemed"], int64(claims)-statuses["redeemed"], c.relay)
	ends, _ := c.finance.endsOf(c.campaign.ID)
	require.Len(t, ends, claims, "each outcome is told")
	for id, events := range ends {
		require.Len(t, events, 1, "claim %s is told to have ended twice", id)
	}
}

// requireBack waits until Redis heard of everything, if need be through relay, and holds its sums, the rows and the events of a
// campaign of single units against how many are live and how many came back.
func (s *system) requireBack(c campaign, live, back int64, relay *resolve.Relay) {
	t := s.t
	t.Helper()
	eventually(t, drainWithin, "redis does not hear of all", func() bool {
		if relay != nil {
			_, err := relay.Relay(t.Context())
			require.NoError(t, err)
		}
		var untold, synced int64
		require.NoError(t, s.db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM outbox").Scan(&untold))
		require.NoError(t, s.db.QueryRowContext(t.Context(), "SELECT synced_seq FROM campaigns WHERE id = ?", c.ID).Scan(&synced))
		ends, _ := s.finance.endsOf(c.ID)
		return untold == 0 && synced == live+back && int64(len(ends)) >= back
	})
	state, err := s.scripts.State(t.Context(), c.ID)
	require.NoError(t, err)
	require.Equal(t, []int64{live, back, live + back}, []int64{state.Taken, state.Released, state.Seq}, "redis")
	var claimed, remaining, rows int64
	require.NoError(t, s.db.QueryRowContext(t.Context(), "SELECT claimed, remaining FROM campaigns WHERE id = ?", c.ID).Scan(&claimed, &remaining))
	require.NoError(t, s.db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM claims WHERE campaign_id = ? AND status IN ('claimed', 'redeemed')", c.ID).Scan(&rows))
	require.Equal(t, []int64{live, c.Total - live, live}, []int64{claimed, remaining, rows}, "mysql")
	events, faults := s.finance.of(c.ID)
	require.Empty(t, faults)
	require.Len(t, events, int(live+back))
	got := runDibs(t, s.settings, "reconcile", "--campaign", c.ID)
	require.Equal(t, exitOK, got.code, got.stdout+got.stderr)
}
