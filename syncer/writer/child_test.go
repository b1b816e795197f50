package writer_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"dibs/internal/syncertest"
	"dibs/internal/testenv"
	"dibs/models"
	"dibs/syncer/writer"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
)

// consumerPlan is what a helper process does: it is a consumer that writes events and dies.
type consumerPlan struct {
	DSN, Path string // one of them
	Events    []models.Event
	Step      string // after which it kills itself,
	Visit     int    // the how manieth time it comes there
}

// flushSteps are the steps of a flush in order, as the writer names them.
var flushSteps = []string{"begin", "begun", "claims in", "flushes in", "books moved", "committed", "written", "released"}

func runChild(ctx context.Context, p consumerPlan, db *gorm.DB, _ redis.UniversalClient) error {
	w, err := writer.NewTuned(writer.Config{
		DB: db, FlushSize: 20, FlushInterval: 2 * time.Millisecond, Logger: syncertest.Quiet(),
	}, writer.Tuning{Step: func(step string) {
		if step == p.Step {
			if p.Visit--; p.Visit == 0 {
				syncertest.DieHere()
			}
		}
	}})
	if err != nil {
		return err
	}
	acked := make(chan string)
	go func() {
		for id := range acked {
			fmt.Println(id)
		}
	}()
	window := make(chan struct{}, 30)
	for _, e := range p.Events {
		window <- struct{}{}
		go func() {
			if syncertest.Submit(ctx, w, e, []byte("{}")) == nil {
				acked <- e.ID
			}
			<-window
		}()
	}
	for range cap(window) {
		window <- struct{}{}
	}
	return w.Close(ctx)
}

// child is how the test process sees its helpers.
type child struct {
	t     *testing.T
	plan  consumerPlan
	acked map[string]bool
}

func newChild(t *testing.T, db *gorm.DB, store string, events []models.Event) *child {
	t.Helper()
	c := &child{t: t, plan: consumerPlan{DSN: store, Events: events}, acked: map[string]bool{}}
	if db.Name() == "sqlite" {
		c.plan.DSN, c.plan.Path = "", store
	}
	return c
}

// run starts a helper on all events and returns whether it was killed.
func (c *child) run(step string, visit int) (killed bool) {
	c.t.Helper()
	c.plan.Step, c.plan.Visit = step, visit
	printed, killed := syncertest.RunHelper(c.t, c.plan)
	for id := range strings.FieldsSeq(printed) {
		c.acked[id] = true
	}
	return killed
}

// killedAndRunAgain kills consumers at the given points, one after the other over the same events, then lets one finish.
// After each death the books must agree with the rows, and whatever was acknowledged must be in them.
func killedAndRunAgain(t *testing.T, db *gorm.DB, store string, points func(yield func(step string, visit int) bool)) {
	t.Helper()
	syncertest.AddCampaign(t, db, "a", 100)
	syncertest.AddCampaign(t, db, "b", 100_000)
	var events []models.Event
	a, b := syncertest.ClaimsOf("a", 1, 100), syncertest.ClaimsOf("b", 1, 100)
	for i := range a {
		events = append(events, a[i], b[i])
	}
	c := newChild(t, db, store, events)
	kills := 0
	for step, visit := range points {
		killed := c.run(step, visit)
		kills += map[bool]int{true: 1}[killed]
		have := requireAgree(t, db, "after a kill at %q %d", step, visit)
		for id := range c.acked {
			require.True(t, have[id], "%s was acknowledged and is not there", id)
		}
		if !killed && len(have) == len(events) { // all were there: begin again
			wipe(t, db)
			clear(c.acked)
		}
	}
	t.Logf("%d consumers were killed", kills)
	require.GreaterOrEqual(t, kills, len(flushSteps))
	require.False(t, c.run("none", 1))
	syncertest.RequireBooks(t, db, "a", a)
	syncertest.RequireBooks(t, db, "b", b)
	require.Empty(t, syncertest.ParkedIDs(t, db))
}

// requireAgree checks the books of all campaigns against the rows, and returns the ids of the rows.
func requireAgree(t *testing.T, db *gorm.DB, format string, args ...any) map[string]bool {
	t.Helper()
	var rows []models.ClaimRow
	require.NoError(t, db.Find(&rows).Error)
	ids, byCampaign := map[string]bool{}, map[string][]models.Event{"a": nil, "b": nil}
	for _, r := range rows {
		ids[r.ID] = true
		byCampaign[r.CampaignID] = append(byCampaign[r.CampaignID], models.Event{Quantity: r.Quantity})
	}
	for id, events := range byCampaign {
		require.Emptyf(t, syncertest.BooksOf(t, db, id).Wrong(events), format, args...)
	}
	return ids
}

func wipe(t *testing.T, db *gorm.DB) {
	t.Helper()
	for _, statement := range []string{
		"DELETE FROM claims", "DELETE FROM stock_flushes", "UPDATE lots SET claimed = 0, synced_seq = 0",
	} {
		require.NoError(t, db.Exec(statement).Error)
	}
}

func TestWriter_KilledBetweenAnyTwoStepsCountsEachClaimOnce(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStoreNamed(t, func(t *testing.T, db *gorm.DB, store string) {
		killedAndRunAgain(t, db, store, func(yield func(string, int) bool) {
			for _, step := range flushSteps {
				if !yield(step, 2) {
					return
				}
			}
		})
	})
}

// The long form, in make soak.
func TestSoak_WriterKilledAtRandomPoints(t *testing.T) {
	t.Parallel()
	const kills = 200
	if !testenv.Soak() {
		t.Skip("the short form is TestWriter_KilledBetweenAnyTwoStepsCountsEachClaimOnce; make soak runs this one")
	}
	syncertest.OnEachStoreNamed(t, func(t *testing.T, db *gorm.DB, store string) {
		killedAndRunAgain(t, db, store, func(yield func(string, int) bool) {
			for range kills {
				if !yield(flushSteps[rand.IntN(len(flushSteps))], 1+rand.IntN(8)) {
					return
				}
			}
		})
	})
}
