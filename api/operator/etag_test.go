package operator_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/internal/apitest"
)

func TestCampaign_IfMatchKeepsOneChangeFromUndoingAnother(t *testing.T) {
	t.Parallel()
	h := apitest.NewServer(t, apitest.NewFake(), api.Config{})
	const path = "/v1/campaigns/spring"
	tag := func(method, path, body string, wantVersion int, headers ...string) string {
		t.Helper()
		w := apitest.Ask(h, method, path, body, headers...)
		require.Equal(t, 2, w.Code/100, w.Body)
		var c struct{ Version int }
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &c))
		require.Equal(t, wantVersion, c.Version)
		require.Regexp(t, `^"[0-9]+"$`, w.Header().Get("ETag"))
		return w.Header().Get("ETag")
	}
	const create = `{"id":"spring","kind":"coupon","total":100}`
	first := tag("POST", "/v1/campaigns", create, 1)
	require.Equal(t, first, tag("POST", "/v1/campaigns", create, 1), "the same again")
	require.Equal(t, first, tag("GET", path, "", 1, "If-Match: "+first))
	second := tag("PATCH", path, `{"total":110}`, 2, "If-Match: "+first)
	require.NotEqual(t, first, second)
	require.Equal(t, second, tag("GET", path, "", 2))
	require.Equal(t, second, tag("PATCH", path, `{"total":110}`, 2, "If-Match: "+second), "nothing changed")

	for _, stale := range []string{first, `W/` + first, second[1 : len(second)-1], `"2"`, `""`, `"x", ` + first, `,`} {
		for _, q := range [][3]string{{"PATCH", path, `{"total":110}`}, {"PATCH", path, `{}`}, {"POST", path + "/close", ""}, {"GET", path, ""}} {
			w := apitest.Ask(h, q[0], q[1], q[2], "If-Match: "+stale)
			require.Equal(t, 412, w.Code, "%s %v", stale, q)
			apitest.RequireProblem(t, 412, w.Header(), w.Body.Bytes(), "precondition_failed")
		}
	}
	require.Equal(t, second, tag("GET", path, "", 2), "a change that was refused changed nothing")
	require.Equal(t, second, tag("PATCH", path, `{"total":110}`, 2, "If-Match: W/"+second), "a proxy that compresses makes it weak")
	third := tag("PATCH", path, `{"total":120}`, 3, "If-Match: "+first+`, "x", `+second)
	fourth := tag("PATCH", path, `{"total":130}`, 4, "If-Match: *")
	require.NotEqual(t, third, fourth)
	tag("POST", path+"/close", "", 5, "If-Match: "+fourth)
	tag("POST", path+"/close", "", 5)
	w := apitest.Ask(h, "PATCH", "/v1/campaigns/none", `{"total":1}`, `If-Match: "1"`)
	apitest.RequireProblem(t, 404, w.Header(), w.Body.Bytes(), "campaign_not_found")
}
