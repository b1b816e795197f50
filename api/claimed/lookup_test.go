package claimed_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/internal/testkit/apitest"
	"dibs/internal/testkit/testenv"
	"dibs/models"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func claimOf(t *testing.T, h http.Handler, user string) (claim models.Claim, body string) {
	t.Helper()
	encoded, err := json.Marshal(map[string]string{"user_id": user})
	require.NoError(t, err)
	w := apitest.Answered(t, 201, h, "POST", "/v1/campaigns/spring/claims", string(encoded))
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &claim))
	return claim, w.Body.String()
}

func statusOf(h http.Handler, id string) int { return apitest.Ask(h, "GET", "/v1/claims/"+id, "").Code }

// behind is a MySQL that gets rows once someone waits for them.
type behind struct {
	*apitest.Fake

	arrived bool
}

func (b *behind) Claim(ctx context.Context, id string) (models.Claim, error) {
	if !b.arrived {
		return models.Claim{}, models.ErrNotFound
	}
	return b.Fake.Claim(ctx, id)
}

func TestLookup_AClaimIsFoundAtOnceAndReadsAsItWasAnswered(t *testing.T) {
	t.Parallel()
	b := &behind{Fake: apitest.NewFake(apitest.Coupon("spring", 100))}
	b.OnAwait = func(context.Context) error { b.arrived = true; return nil }
	deps := b.Deps()
	deps.Claims = b
	server, err := api.New(api.Config{}, deps)
	require.NoError(t, err)
	h := apitest.AtHome(server.Handler())
	c, body := claimOf(t, h, "Zoë & <co>")
	w := apitest.Answered(t, 200, h, "GET", "/v1/claims/"+c.ID, "")
	require.Equal(t, body, w.Body.String())
	unknown := apitest.Ask(h, "GET", "/v1/claims/"+uuid.NewString(), "")
	apitest.RequireProblem(t, 404, unknown.Header(), unknown.Body.Bytes(), "claim_not_found")
}

// While MySQL is behind or unreachable, no claim may be reported as missing.
func TestLookup_UnknownIsNotNotFound(t *testing.T) {
	t.Parallel()
	fake := apitest.NewFake(apitest.Coupon("spring", 100))
	h := apitest.NewServer(t, fake, api.Config{})
	c, _ := claimOf(t, h, "u")
	fake.OnAwait = func(context.Context) error { return errors.New("behind") }
	require.Equal(t, 200, statusOf(h, c.ID), "its row is there")
	w := apitest.Ask(h, "GET", "/v1/claims/"+uuid.NewString(), "")
	apitest.RequireProblem(t, 503, w.Header(), w.Body.Bytes(), "unavailable")
	require.Equal(t, "1", w.Header().Get("Retry-After"))
	fake.OnAwait = nil
	require.Equal(t, 404, statusOf(h, uuid.NewString()))
	fake.Fail = errors.New("away")
	require.Equal(t, 503, statusOf(h, c.ID))
}

func TestLookup_IdsThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	h := apitest.NewServer(t, apitest.NewFake(apitest.Coupon("c", 1)), api.Config{})
	for path, field := range map[string]string{
		"/v1/claims/a%20b": "id", "/v1/users/%2E%2E/claims": "user_id", "/v1/users/u/claims?campaign_id=a%20b": "campaign_id",
		"/v1/users/u/claims?limit=1001": "limit", "/v1/users/u/claims?cursor=x": "cursor", "/v1/users/u/claims?cursor=5.a%20b": "cursor",
	} {
		w := apitest.Ask(h, "GET", path, "")
		apitest.RequireProblem(t, 422, w.Header(), w.Body.Bytes(), "invalid")
		require.Contains(t, w.Body.String(), `"field":"`+field+`"`, path)
	}
	require.JSONEq(t, `{"claims":[]}`, apitest.Ask(h, "GET", "/v1/users/nobody/claims", "").Body.String())
}

func TestLookup_UsersAreWhateverTheyAre(t *testing.T) {
	t.Parallel()
	h := apitest.NewServer(t, apitest.NewFake(apitest.Coupon("spring", 100)), api.Config{})
	for _, user := range []string{"a/b", "/a", "/", "//", "...", "a b", "100%", "%2F", "?", "#x", "a+b", "Zoë", "😀", `"\`, "a;b", "claims", "a:b@c"} {
		c, _ := claimOf(t, h, user)
		var got struct{ Claims []models.Claim }
		path := "/v1/users/" + url.PathEscape(user) + "/claims"
		w := apitest.Answered(t, 200, h, "GET", path, "")
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got))
		require.Len(t, got.Claims, 1, user)
		require.Equal(t, c, got.Claims[0])
	}
	require.Equal(t, 200, apitest.Ask(h, "GET", "/v1/users/%2f/claims?campaign_id=none", "").Code)
	require.Equal(t, 404, apitest.Ask(h, "GET", "/v1/users/%2F", "").Code)
	require.Equal(t, 404, apitest.Ask(h, "GET", "/v1/users///claims", "").Code)
}
