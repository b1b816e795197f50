package claimed_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"dibs/api"
	"dibs/internal/apitest"
	"dibs/lua"
	"dibs/models"
)

// twoSides is a user's claims, some in MySQL, some in the stream, some in both.
type twoSides struct {
	*apitest.Fake

	rows    []models.Claim
	entries []lua.Entry
}

func (s *twoSides) ClaimsOf(_ context.Context, q models.ClaimsQuery) (page []models.Claim, err error) {
	for _, c := range s.rows {
		after := q.After == (models.ClaimPlace{}) || models.PlaceOf(&c).Compare(q.After) > 0
		if c.UserID == q.UserID && after && (q.CampaignID == "" || q.CampaignID == c.CampaignID) {
			page = append(page, c)
		}
	}
	slices.SortFunc(page, func(a, b models.Claim) int { return models.PlaceOf(&a).Compare(models.PlaceOf(&b)) })
	return page[:min(q.Limit, len(page))], s.Fail
}

func (s *twoSides) Entries(_ context.Context, _ int, from lua.EntryID, _ int) (page []lua.Entry, err error) {
	for _, e := range s.entries {
		if !e.ID.Less(from) {
			page = append(page, e)
		}
	}
	return page, nil
}

// add makes a claim; ms may be that of another one.
func (s *twoSides) add(id, user, campaign string, ms int64, inMySQL, inStream bool) models.Claim {
	c := models.Claim{
		ID: id, CampaignID: campaign, UserID: user, Quantity: 1, Seq: int64(len(s.rows) + len(s.entries) + 1), Status: models.ClaimClaimed,
		ClaimedAt: models.TimeFromMs(ms),
	}
	if inStream {
		s.entries = append(s.entries, lua.Entry{ID: lua.EntryID{Ms: 1, Seq: uint64(len(s.entries) + 1)}, Payload: fmt.Sprintf(
			`{"v":1,"type":"claim.accepted","id":%q,"campaign_id":%q,"user_id":%q,"quantity":1,"seq":%d,"epoch":1,"at":%q}`,
			id, campaign, user, c.Seq, c.ClaimedAt.Format(models.TimeLayout))})
	}
	if inMySQL {
		c.Status = models.ClaimReleased // only MySQL knows
		s.rows = append(s.rows, c)
	}
	return c
}

func (s *twoSides) handler(t require.TestingT) http.Handler {
	deps := s.Deps()
	deps.Claims, deps.Streams = s, s
	server, err := api.New(api.Config{}, deps)
	require.NoError(t, err)
	return apitest.AtHome(server.Handler())
}

type claimsPage struct {
	Claims     []models.Claim
	NextCursor string `json:"next_cursor"`
}

func readPage(t require.TestingT, h http.Handler, query url.Values) (page claimsPage) {
	w := apitest.Ask(h, "GET", "/v1/users/u/claims?"+query.Encode(), "")
	require.Equal(t, 200, w.Code, w.Body)
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &page))
	return page
}

// Page by page a user finds each claim once, newest first, wherever it is and however many were made at one time.
func TestUserClaims_PagesHoldEachClaimOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := &twoSides{Fake: apitest.NewFake(apitest.Coupon("c0", 9), apitest.Coupon("c1", 9))}
		of := rapid.SampledFrom([]string{"", "c1"}).Draw(t, "campaign")
		var want []models.Claim
		for i := range rapid.IntRange(0, 12).Draw(t, "claims") {
			user := rapid.SampledFrom([]string{"u", "u", "u", "v"}).Draw(t, "user")
			campaign := rapid.SampledFrom([]string{"c0", "c1"}).Draw(t, "of")
			where := rapid.SampledFrom([]string{"mysql", "stream", "both"}).Draw(t, "where")
			ms := 1_700_000_000_000 + rapid.Int64Range(0, 3).Draw(t, "ms")
			c := s.add(fmt.Sprint("claim", i), user, campaign, ms, where != "stream", where != "mysql")
			if user == "u" && (of == "" || of == campaign) {
				want = append(want, c)
			}
		}
		slices.SortFunc(want, func(a, b models.Claim) int { return models.PlaceOf(&a).Compare(models.PlaceOf(&b)) })
		h, limit := s.handler(t), rapid.IntRange(1, 5).Draw(t, "limit")
		query := url.Values{"limit": {fmt.Sprint(limit)}}
		if of != "" {
			query.Set("campaign_id", of)
		}
		var got []models.Claim
		for pages := 1; ; pages++ {
			page := readPage(t, h, query)
			got = append(got, page.Claims...)
			if page.NextCursor == "" {
				require.Equal(t, max(1, (len(want)+limit-1)/limit), pages, "a full last page knows that it is the last")
				break
			}
			require.Len(t, page.Claims, limit)
			query.Set("cursor", page.NextCursor)
		}
		require.Len(t, got, len(want))
		for i := range want {
			require.Equal(t, want[i], got[i])
		}
	})
}

func TestUserClaims_AnUnsyncedClaimHasTheHoldOfItsCampaign(t *testing.T) {
	t.Parallel()
	held := apitest.Coupon("c0", 9)
	held.HoldForMs = 60_000
	s := &twoSides{Fake: apitest.NewFake(held, apitest.Coupon("c1", 9))}
	made := s.add("a", "u", "c0", 1_700_000_000_000, false, true)
	s.add("b", "u", "c0", 1_700_000_000_000, true, false)
	s.add("c", "u", "c1", 1_700_000_000_000, false, true)
	page := readPage(t, s.handler(t), nil)
	require.Len(t, page.Claims, 3)
	for _, c := range page.Claims {
		switch c.ID {
		case "a":
			require.Equal(t, made.ClaimedAt.Add(60e9), c.ExpiresAt.Time)
		default:
			require.Nil(t, c.ExpiresAt, "as MySQL has it, or without a hold")
		}
	}
	require.Equal(t, 2, s.StateReads, "each campaign is asked for once")
}
