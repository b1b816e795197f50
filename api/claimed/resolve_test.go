package claimed_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/api/claimed"
	"dibs/api/workers"
	"dibs/internal/apitest"
	"dibs/lua"
	"dibs/models"
)

// aClaim makes a claim and returns it.
func aClaim(t *testing.T, h http.Handler, campaignID string) models.Claim {
	t.Helper()
	w := apitest.Ask(h, "POST", "/v1/campaigns/"+campaignID+"/claims", apitest.OneClaim)
	require.Equal(t, 201, w.Code, w.Body)
	var c models.Claim
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &c))
	return c
}

func TestResolve_AnswersAreThoseOfTheContract(t *testing.T) {
	t.Parallel()
	room := apitest.NewFake(apitest.Coupon("c1", 9))
	h := apitest.NewServer(t, room, api.Config{})
	post := func(id, verb, body string) (int, string) {
		w := apitest.Ask(h, "POST", "/v1/claims/"+id+"/"+verb, body)
		var p struct{ Code, Status, Detail string }
		_ = json.Unmarshal(w.Body.Bytes(), &p)
		return w.Code, p.Code + p.Status
	}
	redeemed, released := aClaim(t, h, "c1"), aClaim(t, h, "c1")
	for _, q := range []struct {
		id, verb, body string
		status         int
		says           string
	}{
		{redeemed.ID, "redeem", `{"order_id":"o1"}`, 200, "redeemed"}, {redeemed.ID, "redeem", `{"order_id":"o1"}`, 200, "redeemed"},
		{redeemed.ID, "redeem", `{"order_id":"o2"}`, 409, "already_redeemed"}, {redeemed.ID, "release", `{}`, 409, "already_redeemed"},
		{released.ID, "release", ``, 200, "released"}, {released.ID, "release", `{"reason":"changed my mind"}`, 200, "released"},
		{released.ID, "redeem", `{"order_id":"o1"}`, 409, "already_released"},
		{"none", "redeem", `{"order_id":"o1"}`, 404, "claim_not_found"}, {"none", "release", ``, 404, "claim_not_found"},
		{redeemed.ID, "redeem", `{}`, 422, "invalid"}, {redeemed.ID, "redeem", ``, 422, "invalid"}, {redeemed.ID, "redeem", `{"order_id":""}`, 422, "invalid"},
		{redeemed.ID, "redeem", `{"order_id":"` + strings.Repeat("x", 129) + `"}`, 422, "invalid"},
		{redeemed.ID, "redeem", `{"order_id":7}`, 422, "invalid"}, {redeemed.ID, "redeem", `{"order_id":"o","x":1}`, 422, "invalid"},
		{redeemed.ID, "redeem", `{`, 400, "malformed"}, {redeemed.ID, "release", `{"reason":"` + strings.Repeat("x", 201) + `"}`, 422, "invalid"},
		{"a b", "release", ``, 422, "invalid"}, {redeemed.ID, "release", strings.Repeat(" ", claimed.BodyMax+1), 413, "too_large"},
	} {
		status, says := post(strings.ReplaceAll(q.id, " ", "%20"), q.verb, q.body)
		require.Equal(t, q.status, status, "%s %s: %s", q.verb, q.body, says)
		require.Equal(t, q.says, says, "%s %s", q.verb, q.body)
	}
	room.Fail = errors.New("away")
	status, says := post(redeemed.ID, "redeem", `{"order_id":"o1"}`)
	require.Equal(t, []any{503, "unavailable"}, []any{status, says})
}

func TestResolve_APacketIsNeither(t *testing.T) {
	t.Parallel()
	c := apitest.Coupon("p1", 9)
	c.Kind = models.KindPacket
	room := apitest.NewFake(c)
	h := apitest.NewServer(t, room, api.Config{})
	made := aClaim(t, h, "p1")
	for _, verb := range []string{"redeem", "release"} {
		w := apitest.Ask(h, "POST", "/v1/claims/"+made.ID+"/"+verb, `{`+map[string]string{"redeem": `"order_id":"o"`}[verb]+`}`)
		require.Equal(t, 422, w.Code, w.Body)
		require.Contains(t, w.Body.String(), "credited")
	}
}

// late is a claim stream that holds one claim that MySQL lacks.
type late struct {
	*apitest.Fake
	event string
	err   error
}

func (l late) Unread(context.Context, int, string) (lua.Unread, error) {
	return lua.Unread{NoGroup: true}, l.err
}

func (l late) Entries(context.Context, int, lua.EntryID, int) ([]lua.Entry, error) {
	return []lua.Entry{{ID: lua.EntryID{Ms: 1}, Payload: l.event}}, nil
}

func TestResolve_WaitsForTheRowOfAClaimThatWasJustMade(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		misses int64
		inTail bool
		err    error
		status int
		code   string
	}{
		"it comes":             {3, true, nil, 200, ""},
		"it came in between":   {1, false, nil, 200, ""},
		"it does not come":     {1 << 40, true, nil, 503, "unavailable"},
		"there is no such":     {1 << 40, false, nil, 404, "claim_not_found"},
		"whether is not known": {1 << 40, false, errors.New("away"), 503, "unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			room := apitest.NewFake(apitest.Coupon("c1", 9))
			made := aClaim(t, apitest.NewServer(t, room, api.Config{}), "c1")
			tail := late{Fake: room, err: row.err}
			if row.inTail {
				tail.event = fmt.Sprintf(`{"v":1,"type":"claim.accepted","id":%q,"campaign_id":"c1","user_id":"u1","quantity":1,"seq":1,"at":"2027-03-14T15:09:26.535Z"}`, made.ID)
			}
			routes := claimed.New(claimed.Config{
				Claims: room, Resolver: room, Streams: tail, Workers: &workers.Group{}, Changed: func(string) {}, CallTimeout: time.Minute,
				Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
			})
			routes.WaitForRows(100 * time.Millisecond)
			mux := http.NewServeMux()
			mux.HandleFunc("POST /v1/claims/{id}/redeem", func(w http.ResponseWriter, r *http.Request) { routes.PostRedeem(w, r) })
			room.Absent.Store(row.misses)
			id := made.ID
			if row.status == 404 {
				id = "another"
			}
			w := apitest.Ask(mux, "POST", "/v1/claims/"+id+"/redeem", `{"order_id":"o1"}`)
			require.Equal(t, row.status, w.Code, w.Body)
			require.Contains(t, w.Body.String(), row.code)
			if row.status == 503 {
				require.NotEmpty(t, w.Header().Get("Retry-After"))
			}
		})
	}
}

func TestResolve_WhoMayDoIt(t *testing.T) {
	t.Parallel()
	h := apitest.NewServer(t, apitest.NewFake(apitest.Coupon("c1", 9)), api.Config{Tokens: api.Tokens{Admin: "a", Storefront: "s", Viewer: "v"}})
	for token, status := range map[string]int{"a": 404, "s": 404, "v": 403, "x": 401} {
		for _, verb := range []string{"redeem", "release"} {
			w := apitest.Ask(h, "POST", "/v1/claims/none/"+verb, `{`+map[string]string{"redeem": `"order_id":"o"`}[verb]+`}`, "Authorization: Bearer "+token)
			require.Equal(t, status, w.Code, "%s by %s", verb, token)
		}
	}
}
