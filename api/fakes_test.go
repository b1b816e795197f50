package api_test

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/internal/testenv"
	"dibs/lua"
	"dibs/models"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// fakeRoom plays Redis and MySQL: campaigns, their claims by key, and what each call should answer.
type fakeRoom struct {
	mu        sync.Mutex
	campaigns map[string]*fakeCampaign
	calls     [][]lua.ClaimRequest
	hydrates  int
	states    int

	// claim, when set, answers instead of the fake's own sums.
	claim  func(ctx context.Context, m lua.Meta, reqs []lua.ClaimRequest) ([]lua.ClaimReply, int64, error)
	absent atomic.Int64 // so many resolutions don't find the row
	// fail is what MySQL's side answers.
	fail error
	// hydrateFails is what the Hydrator alone answers.
	hydrateFails error
	ready        error

	looked atomic.Int64 // claims looked for
}

type fakeCampaign struct {
	models.Campaign
	inRedis bool
	taken   int64
	seq     int64
	byKey   map[string]lua.ClaimRequest
	first   map[string]models.Claim
	users   map[string]int64
	rows    []models.Claim
	lag     int64 // claims that MySQL lacks
	shrunk  int64 // units that somebody took out of MySQL's remaining
	parked  int64 // of these
	batches []models.PacketBatch
}

var fakeNow = time.Date(2027, 3, 14, 15, 9, 26, 535e6, time.UTC)

func newRoom(campaigns ...models.Campaign) *fakeRoom {
	r := &fakeRoom{campaigns: map[string]*fakeCampaign{}}
	for _, c := range campaigns {
		r.put(c).inRedis = true
	}
	return r
}

func (r *fakeRoom) put(c models.Campaign) *fakeCampaign {
	if c.Kind == "" {
		c.Kind = models.KindCoupon
	}
	if c.Status == "" {
		c.Status = models.StatusOpen
	}
	if c.TimeZone == "" {
		c.TimeZone = "UTC"
	}
	c.CreatedAt, c.UpdatedAt = fakeNow, fakeNow
	f := &fakeCampaign{Campaign: c, byKey: map[string]lua.ClaimRequest{}, first: map[string]models.Claim{}, users: map[string]int64{}}
	r.campaigns[c.ID] = f
	return f
}

func (r *fakeRoom) ClaimAfter(ctx context.Context, m lua.Meta, _ lua.Position, reqs []lua.ClaimRequest) ([]lua.ClaimReply, lua.CampaignView, error) {
	replies, remaining, err := r.claimNow(ctx, m, reqs)
	return replies, lua.CampaignView{Remaining: remaining}, err
}

func (r *fakeRoom) Recover(ctx context.Context, id string, _ lua.Position) (lua.Meta, error) {
	return r.Hydrate(ctx, id)
}

func (r *fakeRoom) claimNow(ctx context.Context, m lua.Meta, reqs []lua.ClaimRequest) ([]lua.ClaimReply, int64, error) {
	r.mu.Lock()
	r.calls = append(r.calls, append([]lua.ClaimRequest(nil), reqs...))
	claim := r.claim
	r.mu.Unlock()
	if claim != nil {
		return claim(ctx, m, reqs)
	}
	return r.sums(m, reqs)
}

func (r *fakeRoom) sums(m lua.Meta, reqs []lua.ClaimRequest) ([]lua.ClaimReply, int64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	replies := make([]lua.ClaimReply, len(reqs))
	c := r.campaigns[m.ID]
	for i := range reqs {
		if c == nil || !c.inRedis {
			replies[i].Outcome = models.OutcomeAbsent
			continue
		}
		replies[i] = c.take(&reqs[i])
	}
	if c == nil {
		return replies, 0, nil
	}
	return replies, max(0, c.Total-c.taken), nil
}

func (c *fakeCampaign) take(req *lua.ClaimRequest) lua.ClaimReply {
	if was, ok := c.byKey[req.Key]; ok && req.Key != "" {
		if was.UserID != req.UserID || was.Quantity != req.Quantity {
			return lua.ClaimReply{Outcome: models.OutcomeIdempotencyMismatch}
		}
		return lua.ClaimReply{Outcome: models.OutcomeReplayed, Claim: c.first[req.Key]}
	}
	switch {
	case c.Status == models.StatusPaused:
		return lua.ClaimReply{Outcome: models.OutcomePaused}
	case c.Status == models.StatusClosed:
		return lua.ClaimReply{Outcome: models.OutcomeClosed}
	case c.taken+req.Quantity > c.Total:
		return lua.ClaimReply{Outcome: models.OutcomeSoldOut}
	case c.PerUser > 0 && c.users[req.UserID]+req.Quantity > c.PerUser:
		return lua.ClaimReply{Outcome: models.OutcomeUserLimit}
	}
	c.taken += req.Quantity
	c.users[req.UserID] += req.Quantity
	c.seq++
	claim := models.Claim{
		ID: req.ID.String(), CampaignID: c.ID, UserID: req.UserID, Quantity: req.Quantity, Seq: c.seq,
		Status: models.ClaimClaimed, ClaimedAt: models.NewTime(fakeNow),
	}
	c.byKey[req.Key], c.first[req.Key] = *req, claim
	c.rows = append(c.rows, claim)
	return lua.ClaimReply{Outcome: models.OutcomeClaimed, Claim: claim}
}

func (r *fakeRoom) State(_ context.Context, id string) (lua.State, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.states++
	c := r.campaigns[id]
	if c == nil || !c.inRedis {
		return lua.State{}, lua.ErrAbsent
	}
	return lua.State{
		Meta: c.meta(), Status: c.Status, Version: c.Version, Total: c.Total, Taken: c.taken, Seq: c.seq, LowStockAt: c.LowStockAt,
		AsOf: fakeNow,
	}, nil
}

func (c *fakeCampaign) meta() lua.Meta {
	zone, _ := c.Location()
	return lua.Meta{ID: c.ID, Kind: c.Kind, Location: zone, HoldForMs: c.HoldForMs}
}

func (r *fakeRoom) Hydrate(_ context.Context, id string) (lua.Meta, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hydrates++
	if r.fail != nil || r.hydrateFails != nil {
		return lua.Meta{}, errors.Join(r.fail, r.hydrateFails)
	}
	c := r.campaigns[id]
	if c == nil {
		return lua.Meta{}, models.ErrNotFound
	}
	c.inRedis = true
	return c.meta(), nil
}

func (r *fakeRoom) Create(_ context.Context, c models.Campaign) (models.Campaign, bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		return models.Campaign{}, false, r.fail
	}
	if there := r.campaigns[c.ID]; there != nil {
		if there.Total != c.Total || there.Name != c.Name || there.PerUser != c.PerUser {
			return models.Campaign{}, false, models.ErrExists
		}
		return there.Campaign, false, nil
	}
	c.Version = 1
	return r.put(c).Campaign, true, nil
}

func (r *fakeRoom) Get(_ context.Context, id string) (models.Campaign, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		return models.Campaign{}, r.fail
	}
	c := r.campaigns[id]
	if c == nil {
		return models.Campaign{}, models.ErrNotFound
	}
	return c.Campaign, nil
}

func (r *fakeRoom) List(_ context.Context, after string, limit int) ([]models.Campaign, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		return nil, r.fail
	}
	var page []models.Campaign
	for id, c := range r.campaigns {
		if id > after {
			page = append(page, c.Campaign)
		}
	}
	sort.Slice(page, func(i, j int) bool { return page[i].ID < page[j].ID })
	return page[:min(limit, len(page))], nil
}

func (r *fakeRoom) Change(_ context.Context, id string, change models.Change) (models.Campaign, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		return models.Campaign{}, r.fail
	}
	c := r.campaigns[id]
	if c == nil {
		return models.Campaign{}, models.ErrNotFound
	}
	after := c.Campaign
	change.Apply(&after)
	if reflect.DeepEqual(after, c.Campaign) {
		return after, nil
	}
	if err := after.Validate(); err != nil {
		return models.Campaign{}, err
	}
	after.Version++
	c.Campaign = after
	return after, nil
}

func (r *fakeRoom) AddPackets(_ context.Context, id string, batch models.PacketBatch) (models.AddedPackets, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.campaigns[id]
	switch {
	case r.fail != nil:
		return models.AddedPackets{}, r.fail
	case c == nil:
		return models.AddedPackets{}, models.ErrNotFound
	case c.Status == models.StatusClosed:
		return models.AddedPackets{}, models.ErrClosed
	}
	if batch.Split == nil {
		if err := batch.CheckList(); err != nil {
			return models.AddedPackets{}, err
		}
	}
	for i := range c.batches {
		if batch.Key != "" && c.batches[i].Key == batch.Key {
			if !reflect.DeepEqual(batch, c.batches[i]) {
				return models.AddedPackets{}, models.ErrKeyMismatch
			}
			return models.AddedPackets{Count: 7, Amount: 77, Replayed: true}, nil
		}
	}
	c.batches = append(c.batches, batch)
	return models.AddedPackets{Count: 7, Amount: 77}, nil
}

func (r *fakeRoom) Books(_ context.Context, id string) (models.Books, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		return models.Books{}, r.fail
	}
	c := r.campaigns[id]
	if c == nil {
		return models.Books{}, models.ErrNotFound
	}
	return models.Books{Claimed: c.taken - c.lag, SyncedSeq: c.seq - c.lag, Remaining: c.Total - c.taken + c.lag - c.shrunk, ParkedClaims: c.parked, ParkedUnits: c.parked}, nil
}

func (r *fakeRoom) Claim(ctx context.Context, id string) (models.Claim, error) {
	r.looked.Add(1)
	all, err := r.ClaimsOf(ctx, models.ClaimsQuery{})
	for _, c := range all {
		if err == nil && c.ID == id {
			return c, nil
		}
	}
	return models.Claim{}, cmp.Or(err, models.ErrNotFound)
}

// ClaimsOf knows of no pages.
func (r *fakeRoom) ClaimsOf(_ context.Context, q models.ClaimsQuery) (found []models.Claim, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.campaigns {
		for _, row := range c.rows {
			if q.UserID == "" || q.UserID == row.UserID {
				found = append(found, row)
			}
		}
	}
	return found, r.fail
}

// Redeem and Release play MySQL: claims that were answered have their rows.
func (r *fakeRoom) Redeem(ctx context.Context, id, orderID string) (models.Resolution, error) {
	return r.resolve(ctx, id, func(c *models.Claim) models.Resolved {
		switch {
		case c.Status == models.ClaimRedeemed && c.OrderID == orderID:
			return models.ResolvedBefore
		case c.Status == models.ClaimRedeemed:
			return models.ResolvedAlreadyRedeemed
		case c.Status != models.ClaimClaimed:
			return models.ResolvedAlreadyReleased
		}
		c.Status, c.OrderID, c.RedeemedAt = models.ClaimRedeemed, orderID, &c.ClaimedAt
		return models.ResolvedNow
	})
}

func (r *fakeRoom) Release(ctx context.Context, id, reason string) (models.Resolution, error) {
	return r.resolve(ctx, id, func(c *models.Claim) models.Resolved {
		switch c.Status {
		case models.ClaimRedeemed:
			return models.ResolvedAlreadyRedeemed
		case models.ClaimReleased, models.ClaimExpired:
			return models.ResolvedBefore
		}
		c.Status, c.ReleaseReason, c.ReleasedAt = models.ClaimReleased, reason, &c.ClaimedAt
		return models.ResolvedNow
	})
}

func (r *fakeRoom) resolve(ctx context.Context, id string, decide func(c *models.Claim) models.Resolved) (models.Resolution, error) {
	if r.absent.Add(-1) >= 0 {
		return models.Resolution{}, models.ErrNotFound
	}
	was, err := r.Claim(ctx, id)
	if err != nil {
		return models.Resolution{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.campaigns[was.CampaignID]
	if c.Kind == models.KindPacket {
		return models.Resolution{Resolved: models.ResolvedPacket, Claim: was}, nil
	}
	resolved := decide(&was)
	for i := range c.rows {
		if c.rows[i].ID == id {
			c.rows[i] = was
		}
	}
	return models.Resolution{Resolved: resolved, Claim: was}, nil
}

// The fake's claims have their rows at once, so its streams are empty.

func (r *fakeRoom) Partitions() int { return 1 }

func (r *fakeRoom) Unread(context.Context, int, string) (lua.Unread, error) {
	return lua.Unread{NoGroup: true}, nil
}

func (r *fakeRoom) Entries(context.Context, int, lua.EntryID, int) ([]lua.Entry, error) {
	return nil, nil
}

func (r *fakeRoom) deps() api.Deps {
	return api.Deps{
		Claimer: r, States: r, Hydrator: r, Campaigns: r, Claims: r, Resolver: r, Streams: r, Ready: func(context.Context) error { return r.ready },
	}
}

// sent is the claims that reached the claimer.
func (r *fakeRoom) sent() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, call := range r.calls {
		n += len(call)
	}
	return n
}

func newServer(t testing.TB, room *fakeRoom, cfg api.Config) http.Handler {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewTextHandler(testWriter{t}, nil))
	}
	s, err := api.New(cfg, room.deps())
	require.NoError(t, err)
	return athome(s.Handler())
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Helper()
	w.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

// ask sends one request; headers are "Name: value".
func ask(h http.Handler, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req := httptest.NewRequest(method, path, r)
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		req.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	return w
}

func coupon(id string, total int64) models.Campaign { return models.Campaign{ID: id, Total: total} }

// athome lets httptest's requests come to 127.0.0.1 instead of example.com.
func athome(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host == "example.com" {
			r.Host = "127.0.0.1:8080"
		}
		h.ServeHTTP(w, r)
	})
}
