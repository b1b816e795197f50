package operator_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/internal/testkit/apitest"
	"dibs/lua"
	"dibs/models"
)

// flushing is a Fake whose MySQL gets closer to Redis with each read.
type flushing struct {
	*apitest.Fake

	behind  []int64 // claims that MySQL lacks, by read
	reads   int
	between func() // runs between the reads of MySQL and Redis
}

func (f *flushing) Books(ctx context.Context, id string) (models.Books, error) {
	if c := f.Campaigns[id]; c != nil && f.reads < len(f.behind) {
		c.Lag = f.behind[f.reads]
	}
	f.reads++
	books, err := f.Fake.Books(ctx, id)
	if f.between != nil {
		f.between()
	}
	return books, err
}

func stockServer(t *testing.T, f *flushing) http.Handler {
	t.Helper()
	deps := f.Deps()
	deps.Campaigns = f
	s, err := api.New(api.Config{}, deps)
	require.NoError(t, err)
	return apitest.AtHome(s.Handler())
}

func newFlushing(t *testing.T, behind ...int64) *flushing {
	t.Helper()
	f := &flushing{Fake: apitest.NewFake(apitest.Coupon("c1", 10)), behind: behind}
	for range 6 {
		f.Campaigns["c1"].Take(&lua.ClaimRequest{UserID: "u", Quantity: 1})
	}
	return f
}

func stockOf(t *testing.T, h http.Handler) (st models.Stock) {
	t.Helper()
	w := apitest.Answered(t, 200, h, "GET", "/v1/campaigns/c1/stock", "")
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &st))
	return st
}

func TestStock_IsReadAgainUntilBothSidesMeet(t *testing.T) {
	t.Parallel()
	f := newFlushing(t, 3, 1, 0)
	st := stockOf(t, stockServer(t, f))
	require.Equal(t, []int64{6, 6, 0, 0}, []int64{st.Claimed, st.Synced, st.Backlog, st.Drift})
	require.Equal(t, 3, f.reads)

	f = newFlushing(t, 3, 3, 2, 2, 1, 0)
	st = stockOf(t, stockServer(t, f))
	require.Equal(t, []int64{6, 4, 2, 0}, []int64{st.Claimed, st.Synced, st.Backlog, st.Drift}, "in a rush they may not meet: a lag is no drift")
	require.Equal(t, 4, f.reads, "not for ever")
}

// MySQL must be read first: a claim between the reads is backlog. In the
// other order it would be drift.
func TestStock_AClaimBetweenTheLooksIsNoDrift(t *testing.T) {
	t.Parallel()
	f := newFlushing(t)
	f.between = func() { f.Campaigns["c1"].Take(&lua.ClaimRequest{UserID: "u", Quantity: 1}) }
	st := stockOf(t, stockServer(t, f))
	require.Zero(t, st.Drift)
	require.EqualValues(t, 1, st.Backlog)
}

// After a failed change the client must learn whether it is stored.
func TestChange_SaysWhetherItIsStored(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fail   error
		status int
		code   string
		says   string
	}{
		"mysql away": {errors.New("away"), 503, "unavailable", "MySQL does not answer, or the settings of this process are not"},
		"redis away": {lua.ErrUnavailable, 503, "unavailable", "The change is stored"},
		"a field":    {&models.FieldError{Field: "total", Reason: "is odd"}, 422, "invalid", "total: is odd"},
		"missing":    {models.ErrNotFound, 404, "campaign_not_found", "No campaign"},
		"closed":     {models.ErrClosed, 409, "closed", "closed"},
	} {
		f := &failingChanges{Fake: apitest.NewFake(apitest.Coupon("c1", 10)), fail: c.fail}
		deps := f.Deps()
		deps.Campaigns = f
		s, err := api.New(api.Config{}, deps)
		require.NoError(t, err)
		p := apitest.Refused(t, c.status, c.code, apitest.AtHome(s.Handler()), "PATCH", "/v1/campaigns/c1", `{"total":11}`)
		require.Contains(t, p.Detail, c.says, name)
	}
}

type failingChanges struct {
	*apitest.Fake

	fail error
}

func (f *failingChanges) Change(context.Context, string, models.Change) (models.Campaign, error) {
	return models.Campaign{}, f.fail
}
