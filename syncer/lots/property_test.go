package lots_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/syncertest"
	"dibs/internal/testkit/testenv"
	"dibs/lua"
	"dibs/models"
	"dibs/syncer/resolve"
)

// Redis loses any suffix of its history or any keys, MySQL is restored to any
// commit, and any API processes survive. No unit of a success that a process
// still knows of is sold again, and each lot takes claims again.
func TestProperty_NoKnownYesIsSoldAgain(t *testing.T) {
	t.Parallel()
	for seed := range uint64(testenv.Pick(8, 120)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newWorld(t, seed)
			for range 60 {
				w.step()
			}
			w.rest()
			w.requireKept()
			w.sellOut()
		})
	}
}

const total = 40

type process struct {
	seen lua.Position
	yes  map[string]int64 // units by claim
}

type world struct {
	*syncertest.Stack
	id    string
	meta  lua.Meta
	dice  *rand.Rand
	dumps []syncertest.Dump
	older []syncertest.RedisDump
	apis  []*process
	gone  map[string]bool // claims that were released
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{Stack: syncertest.NewStack(t), dice: rand.New(rand.NewPCG(seed, 7)), gone: make(map[string]bool)}
	w.id = w.Create(total, nil)
	c := w.Campaign(w.id)
	var err error
	w.meta, err = w.Scripts.MetaOf(&c)
	require.NoError(t, err)
	for range 3 {
		w.apis = append(w.apis, &process{yes: make(map[string]int64)})
	}
	return w
}

func (w *world) api() *process { return w.apis[w.dice.IntN(len(w.apis))] }

func (w *world) step() {
	switch w.dice.IntN(14) {
	case 0:
		w.Sync()
		w.Evict(0)
	case 1:
		w.Lose(w.id, func(k lua.CampaignKeys) []string {
			keys := []string{k.State, k.Users, k.Keys}
			return keys[w.dice.IntN(3):]
		})
	case 2:
		w.Lose(w.id, syncertest.StateOnly)
		require.NoError(w.T, w.Redis.Set(w.T.Context(), w.Keys(w.id).State, "x", 0).Err())
	case 3:
		w.dumps = append(w.dumps, syncertest.DumpOf(w.T, w.DB))
	case 4:
		w.older = append(w.older, syncertest.DumpRedis(w.T, w.Redis))
	case 5:
		w.restoreMySQL()
	case 6:
		w.rollBackRedis()
	case 7:
		at := w.dice.IntN(len(w.apis)) // one dies, another starts
		w.apis[at] = &process{seen: w.known(), yes: make(map[string]int64)}
	case 8:
		w.release()
	case 9:
		w.Sync()
	default:
		w.claim(w.api())
	}
}

func (w *world) known() lua.Position {
	c := w.Campaign(w.id)
	return lua.Position{Epoch: c.Epoch, Seq: c.SeenSeq, Units: max(c.SeenUnits, c.SoldEver())}
}

func (w *world) claim(p *process) models.Outcome {
	w.T.Helper()
	for try := 0; ; try++ {
		req := lua.ClaimRequest{ID: uuid.Must(uuid.NewV7()), UserID: uuid.NewString(), Quantity: 1 + w.dice.Int64N(2)}
		replies, view, err := w.Scripts.ClaimAfter(w.T.Context(), w.meta, p.seen, []lua.ClaimRequest{req})
		require.NoError(w.T, err)
		outcome := replies[0].Outcome
		switch outcome {
		case models.OutcomeAbsent, models.OutcomeDamaged, models.OutcomeRolledBack:
			require.Less(w.T, try, 3, "it takes no claims")
			w.report()
			w.Sync()
			_, err := w.Loader().Recover(w.T.Context(), w.id, p.seen)
			require.NoError(w.T, err)
			continue
		case models.OutcomeClaimed:
			p.yes[req.ID.String()] = req.Quantity
		}
		p.seen = p.seen.Later(view.Position)
		return outcome
	}
}

func (w *world) report() {
	for _, p := range w.apis {
		require.NoError(w.T, w.Loader().Report(w.T.Context(), map[string]lua.Position{w.id: p.seen}))
	}
}

func (w *world) release() {
	w.Sync()
	for _, p := range w.apis {
		for id := range p.yes {
			var n int64
			require.NoError(w.T, w.DB.Raw("SELECT COUNT(*) FROM claims WHERE id = ?", id).Scan(&n).Error)
			if w.gone[id] || n == 0 {
				continue
			}
			relay := resolve.NewRelay(w.DB, w.Scripts, nil)
			// sends it to Redis, if that takes it
			_, err := resolve.NewResolver(w.DB, relay, syncertest.Quiet()).Release(w.T.Context(), id, "")
			require.NoError(w.T, err)
			w.gone[id] = true
			return
		}
	}
}

// restoreMySQL restores an earlier MySQL. Sometimes Redis was rolled
// back, too, before detection.
func (w *world) restoreMySQL() {
	if len(w.dumps) == 0 {
		return
	}
	w.Sync() // a flush in progress would be of another time
	require.NoError(w.T, w.dumps[w.dice.IntN(len(w.dumps))].Restore(w.DB))
	w.dumps = nil
	w.notice()
}

func (w *world) rollBackRedis() {
	if len(w.older) == 0 {
		return
	}
	if w.dice.IntN(2) == 0 {
		w.Sync()
	}
	at := w.dice.IntN(len(w.older))
	w.older[at].Restore(w.T, w.Redis)
	w.older = w.older[:at]
	w.notice()
}

// notice lets the process that saw most claim first. Others' claims
// before a loss is detected are an exposure, see docs/reliability.md.
func (w *world) notice() {
	most := slices.MaxFunc(w.apis, func(a, b *process) int { return int(a.seen.Units - b.seen.Units) })
	w.report()
	w.Sync()
	w.claim(most)
}

func (w *world) rest() {
	w.T.Helper()
	for range 3 {
		w.Sync()
		_, keeper := w.Leader()
		require.NoError(w.T, keeper.Attend(w.T.Context()))
	}
	w.report()
	for range 2 {
		w.Sync()
		_, err := w.Loader().Load(w.T.Context(), w.id)
		require.NoError(w.T, err)
		syncertest.ApplyOutbox(w.T, w.DB, resolve.NewRelay(w.DB, w.Scripts, nil))
	}
	w.Sync()
	require.Empty(w.T, w.Compare(w.id).Differences)
}

// requireKept requires that each success that
// a process knows of has its row, or is lost.
func (w *world) requireKept() {
	w.T.Helper()
	c := w.Campaign(w.id)
	require.LessOrEqual(w.T, c.Claimed+c.LostUnits, int64(total))
	missing := int64(0)
	for _, p := range w.apis {
		for id, units := range p.yes {
			var n int64
			require.NoError(w.T, w.DB.Raw("SELECT COUNT(*) FROM claims WHERE id = ?", id).Scan(&n).Error)
			if n == 0 {
				missing += units
			}
		}
	}
	require.LessOrEqual(w.T, missing, c.LostUnits, "a yes that somebody knows of was forgotten")
}

func (w *world) sellOut() {
	w.T.Helper()
	for range 2 * total {
		if w.claim(w.api()) == models.OutcomeSoldOut {
			break
		}
	}
	w.Sync()
	c := w.Campaign(w.id)
	require.GreaterOrEqual(w.T, c.Claimed+c.LostUnits, int64(total-1), "units are left over")
	require.LessOrEqual(w.T, c.Claimed+c.LostUnits, int64(total))
	require.Empty(w.T, w.Compare(w.id).Differences)
}
