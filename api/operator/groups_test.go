package operator_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/internal/apitest"
	"dibs/models"
)

func TestGroups_AreListedAddedAndRemoved(t *testing.T) {
	t.Parallel()
	fake := apitest.NewFake()
	fake.Groups.Lags = []models.GroupLag{{Name: "finance", Partitions: []models.PartitionLag{{Partition: 1, Lag: 17, Pending: 2}}}}
	h := apitest.NewServer(t, fake, api.Config{})
	w := apitest.Ask(h, "GET", "/v1/groups", "")
	require.Equal(t, 200, w.Code)
	require.JSONEq(t, `{"groups":[{"name":"finance","partitions":[{"partition":1,"lag":17,"pending":2}]}]}`, w.Body.String())
	w = apitest.Ask(h, "PUT", "/v1/groups/audit", "")
	require.Equal(t, 201, w.Code, w.Body)
	require.JSONEq(t, `{"name":"audit"}`, w.Body.String())
	require.Equal(t, 200, apitest.Ask(h, "PUT", "/v1/groups/again", "").Code)
	w = apitest.Ask(h, "DELETE", "/v1/groups/audit", "")
	require.Equal(t, 204, w.Code, w.Body)
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
