package operator_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/internal/apitest"
	"dibs/models"
)

func TestAudit_IsListedPageByPage(t *testing.T) {
	t.Parallel()
	fake := apitest.NewFake()
	for _, id := range []string{"c", "b", "a"} {
		fake.Audit.Entries = append(fake.Audit.Entries, models.AuditEntry{
			ID: id, At: models.NewTime(apitest.Now), Actor: "ann", RequestID: "r", Action: "campaign.changed", CampaignID: "spring",
			Before: json.RawMessage(`{"total":1}`), After: json.RawMessage(`{"total":2}`),
		})
	}
	h := apitest.NewServer(t, fake, api.Config{})
	w := apitest.Ask(h, "GET", "/v1/audit?limit=2&campaign_id=spring&since=2027-01-01T00:00:00Z", "")
	require.Equal(t, 200, w.Code, w.Body)
	entry := func(id string) string {
		return `{"id":"` + id + `","at":"2027-03-14T15:09:26.535Z","actor":"ann","request_id":"r","action":"campaign.changed","campaign_id":"spring",` +
			`"before":{"total":1},"after":{"total":2}}`
	}
	require.Equal(t, `{"entries":[`+entry("c")+`,`+entry("b")+`],"next_cursor":"b"}`, w.Body.String())
	require.Equal(t, `{"entries":[`+entry("a")+`]}`, apitest.Ask(h, "GET", "/v1/audit?cursor=b", "").Body.String())
	require.JSONEq(t, `{"entries":[]}`, apitest.Ask(h, "GET", "/v1/audit?cursor=a", "").Body.String())
	require.Equal(t, []models.AuditQuery{
		{CampaignID: "spring", Since: time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC), Limit: 3}, {Before: "b", Limit: 101}, {Before: "a", Limit: 101},
	}, fake.Audit.Asked)

	for query, field := range map[string]string{"limit=0": "limit", "since=soon": "since", "campaign_id=a/b": "campaign_id", "cursor=a%20b": "cursor"} {
		w := apitest.Ask(h, "GET", "/v1/audit?"+query, "")
		require.Equal(t, field, apitest.RequireProblem(t, 422, w.Header(), w.Body.Bytes(), "invalid").Field)
	}
	fake.Audit.Fail = errors.New("away")
	w = apitest.Ask(h, "GET", "/v1/audit", "")
	apitest.RequireProblem(t, 503, w.Header(), w.Body.Bytes(), "unavailable")
}
