package writer_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"dibs/internal/syncertest"
	"dibs/models"
	"dibs/syncer/writer"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"gorm.io/gorm"
	"pgregory.net/rapid"
)

// ledger is what the writer should do, in a few lines of Go: a claim counts if its campaign exists, and neither its id nor its
// seq is taken.
type ledger struct {
	ids  map[string]models.Event
	seqs map[string]string
}

func (l *ledger) take(e models.Event) {
	at := fmt.Sprint(e.CampaignID, " ", e.Seq)
	if _, taken := l.ids[e.ID]; taken || l.seqs[at] != "" || e.CampaignID == "unknown" || e.Quantity < 1 || len(e.UserID) > 128 {
		return
	}
	l.ids[e.ID], l.seqs[at] = e, e.ID
}

func (l *ledger) of(campaignID string) []models.Event {
	var events []models.Event
	for _, e := range l.ids {
		if e.CampaignID == campaignID {
			events = append(events, e)
		}
	}
	return events
}

// Rounds of claims, new ones, old ones and bad ones, each through one of two writers: after each round rows and books are
// those of the model. Claims that contradict each other are kept to different rounds: which one of a round wins is chance.
func TestProperty_TheBooksFollowTheModel(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		runs := 0
		rapid.Check(t, func(rt *rapid.T) {
			runs++
			names := []string{fmt.Sprintf("a%d", runs), fmt.Sprintf("b%d", runs)}
			for _, name := range names {
				syncertest.AddCampaign(t, db, name, rapid.Int64Range(0, 60).Draw(rt, "total"))
			}
			cfg := writer.Config{DB: db, FlushSize: rapid.IntRange(1, 16).Draw(rt, "flush size"), FlushInterval: time.Millisecond, Logger: syncertest.Quiet()}
			var writers []*writer.Writer
			for range 2 {
				w, err := writer.New(cfg)
				require.NoError(t, err)
				writers = append(writers, w)
			}
			model := ledger{ids: map[string]models.Event{}, seqs: map[string]string{}}
			var all []models.Event
			for range rapid.IntRange(1, 4).Draw(rt, "rounds") {
				round := drawRound(rt, names, all)
				all = append(all, round...)
				writer := writers[rapid.IntRange(0, 1).Draw(rt, "writer")]
				require.NoError(t, syncertest.SubmitAll(t.Context(), writer, round))
				for _, e := range round {
					model.take(e)
				}
				for _, name := range names {
					if wrong := syncertest.BooksOf(t, db, name).Wrong(model.of(name)); wrong != "" {
						rt.Fatalf("%s: %s", name, wrong)
					}
				}
			}
			for _, w := range writers {
				require.NoError(t, w.Close(t.Context()))
			}
		})
	})
}

// drawRound makes events of one round. A seq is used once in it.
func drawRound(rt *rapid.T, names []string, before []models.Event) []models.Event {
	var round []models.Event
	used := map[string]bool{}
	for range rapid.IntRange(1, 30).Draw(rt, "events") {
		e := syncertest.ClaimsOf(rapid.SampledFrom(names).Draw(rt, "campaign"), rapid.Int64Range(1, 40).Draw(rt, "seq"), 1)[0]
		switch rapid.IntRange(0, 9).Draw(rt, "what") {
		case 0, 1, 2:
			if len(before) > 0 {
				e = rapid.SampledFrom(before).Draw(rt, "old")
			}
		case 3:
			e.Quantity = 0
		case 4:
			e.UserID = strings.Repeat("x", 129)
		case 5:
			e.CampaignID = "unknown"
		}
		at := fmt.Sprint(e.CampaignID, " ", e.Seq)
		if !used[at] {
			used[at] = true
			round = append(round, e)
		}
		if rapid.Bool().Draw(rt, "twice") && len(round) > 0 {
			round = append(round, rapid.SampledFrom(round).Draw(rt, "again"))
		}
	}
	return round
}

// The control: a writer that leaves rows alone that are there, but moves the books by what was submitted. The same checker
// must see it.
func TestControl_AWriterThatSumsWhatWasSubmittedIsCaught(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		syncertest.AddCampaign(t, db, "c", 1000)
		events := syncertest.ClaimsOf("c", 1, 20)
		naiveFlush(t, db, events)
		require.Empty(t, syncertest.BooksOf(t, db, "c").Wrong(events), "without redelivery it is right")
		naiveFlush(t, db, events[10:])
		require.NotEmpty(t, syncertest.BooksOf(t, db, "c").Wrong(events))
	})
}

func naiveFlush(t *testing.T, db *gorm.DB, events []models.Event) {
	t.Helper()
	var units int64
	skip := " ON DUPLICATE KEY UPDATE id = id"
	if db.Name() == "sqlite" {
		skip = " ON CONFLICT DO NOTHING"
	}
	now := time.Now().UTC()
	for _, e := range events {
		units += e.Quantity
		require.NoError(t, db.Exec("INSERT INTO claims (id, campaign_id, seq, user_id, quantity, status, claimed_at, synced_at)"+
			" VALUES (?, ?, ?, ?, ?, 'claimed', ?, ?)"+skip, e.ID, e.CampaignID, e.Seq, e.UserID, e.Quantity, e.At.Time, now).Error)
	}
	require.NoError(t, db.Exec("UPDATE lots SET claimed = claimed + ?, synced_seq = synced_seq + ? WHERE id = 'c'",
		units, len(events)).Error)
	require.NoError(t, db.Exec("INSERT INTO stock_flushes (id, campaign_id, units, claims, first_seq, last_seq, took_ms, flushed_at)"+
		" VALUES (?, 'c', ?, ?, 1, 1, 0, ?)", fmt.Sprint(rand.Int64()), units, len(events), now).Error)
}

// A poll of remaining sees it fall to what is right, never below 0, and never rise but by a restock.
func TestWriter_RemainingOnlyFalls(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		syncertest.AddCampaign(t, db, "c", 2000) // more units will be claimed than that
		events := syncertest.ClaimsOf("c", 1, 1200)
		ctx, cancel := context.WithCancel(t.Context())
		var polls atomic.Int64
		var watch errgroup.Group
		watch.Go(func() error {
			for last := int64(2000); ctx.Err() == nil; polls.Add(1) {
				var now int64
				if err := db.Raw("SELECT remaining FROM campaigns WHERE id = 'c'").Scan(&now).Error; err != nil {
					return err
				}
				if now < 0 || now > last {
					return fmt.Errorf("remaining went from %d to %d", last, now)
				}
				last = now
			}
			return nil
		})
		var g errgroup.Group
		for range 2 {
			w := syncertest.StartWriter(t, writer.Config{DB: db, FlushSize: 40, FlushInterval: 5 * time.Millisecond})
			g.Go(func() error { return syncertest.SubmitAll(t.Context(), w, events) })
		}
		require.NoError(t, errors.Join(g.Wait()))
		cancel()
		require.NoError(t, watch.Wait())
		require.Greater(t, polls.Load(), int64(20))
		syncertest.RequireBooks(t, db, "c", events)
	})
}

func TestWriter_OneFlushOfAThousandCampaigns(t *testing.T) {
	t.Parallel()
	syncertest.OnEachStore(t, func(t *testing.T, db *gorm.DB) {
		var events []models.Event
		require.NoError(t, db.Transaction(func(tx *gorm.DB) error {
			for i := range 1000 {
				id := fmt.Sprintf("c%d", i)
				syncertest.AddCampaign(t, tx, id, 10)
				events = append(events, syncertest.ClaimsOf(id, 1, 2)...)
			}
			return nil
		}))
		w := syncertest.StartWriter(t, writer.Config{DB: db, FlushSize: 4000, FlushInterval: 100 * time.Millisecond})
		require.NoError(t, syncertest.SubmitAll(t.Context(), w, slices.Concat(events, events[:500])))
		for i := 0; i < len(events); i += 2 {
			syncertest.RequireBooks(t, db, events[i].CampaignID, events[i:i+2])
		}
	})
}
