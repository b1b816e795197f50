package operator_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/internal/testkit/apitest"
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
	w := apitest.Answered(t, 200, h, "GET", "/v1/audit?limit=2&campaign_id=spring&since=2027-01-01T00:00:00Z", "")
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

	for query, field := range map[string]string{"limit=0": "limit", "since=soon": "since", "since=9999-12-31T23:59:59-01:00": "since", "campaign_id=a/b": "campaign_id", "cursor=a%20b": "cursor"} {
		require.Equal(t, field, apitest.Refused(t, 422, "invalid", h, "GET", "/v1/audit?"+query, "").Field)
	}
	fake.Audit.Fail = fmt.Errorf("audit: %w", models.ErrID)
	require.Equal(t, "cursor", apitest.Refused(t, 422, "invalid", h, "GET", "/v1/audit?cursor=gone", "").Field)
	fake.Audit.Fail = errors.New("away")
	apitest.Refused(t, 503, "unavailable", h, "GET", "/v1/audit", "")
}

func TestGroups_AreListedAddedAndRemoved(t *testing.T) {
	t.Parallel()
	fake := apitest.NewFake()
	fake.Groups.Lags = []models.GroupLag{{Name: "finance", Partitions: []models.PartitionLag{{Partition: 1, Lag: 17, Pending: 2}}}}
	h := apitest.NewServer(t, fake, api.Config{})
	w := apitest.Answered(t, 200, h, "GET", "/v1/groups", "")
	require.JSONEq(t, `{"groups":[{"name":"finance","partitions":[{"partition":1,"lag":17,"pending":2}]}]}`, w.Body.String())
	w = apitest.Answered(t, 201, h, "PUT", "/v1/groups/audit", "")
	require.JSONEq(t, `{"name":"audit"}`, w.Body.String())
	require.Equal(t, 200, apitest.Ask(h, "PUT", "/v1/groups/again", "").Code)
	apitest.Answered(t, 204, h, "DELETE", "/v1/groups/audit", "")
	require.Equal(t, []string{"add audit", "add again", "remove audit"}, fake.Groups.Called)
}

func TestGroups_Refusals(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		method, name string
		fail         error
		status       int
		code         string
	}{
		{"PUT", "a%20b", nil, 422, "invalid"},
		{"PUT", "%2E%2E", nil, 422, "invalid"},
		{"DELETE", "syncer", nil, 422, "invalid"},
		{"DELETE", "audit", fmt.Errorf("registry: %w", models.ErrNotFound), 404, "group_not_found"},
		{"DELETE", "audit", fmt.Errorf("registry: %w", models.ErrInUse), 409, "group_in_use"},
		{"DELETE", "audit", errors.New("mysql is away"), 503, "unavailable"},
		{"PUT", "audit", errors.New("mysql is away"), 503, "unavailable"},
	} {
		fake := apitest.NewFake()
		fake.Groups.Fail = c.fail
		w := apitest.Ask(apitest.NewServer(t, fake, api.Config{}), c.method, "/v1/groups/"+c.name, "")
		require.Equal(t, c.status, w.Code, c)
		require.Contains(t, w.Body.String(), `"code":"`+c.code+`"`)
		if c.code == "invalid" {
			require.Empty(t, fake.Groups.Called)
		}
	}
}
