package console_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAnEmptyInstallationIsWell: nobody has claimed, so there are no streams and groups yet.
func TestAnEmptyInstallationIsWell(t *testing.T) {
	t.Parallel()
	s := serve(t)
	p := s.person()
	p.signIn(viewer)
	require.Eventually(t, func() bool { return strings.Contains(p.get("/console/health").text, "All well.") }, within, 50*time.Millisecond)
}

func TestTheOverviewFindsCampaignsBySearchStatusAndPage(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for i := range 120 {
		s.coupon(fmt.Sprintf("c-%03d", i), 10, fmt.Sprintf(`,"name":"Sale %d"`, i))
	}
	s.api("PATCH", "/v1/campaigns/c-007", `{"status":"paused"}`)
	s.api("POST", "/v1/campaigns/c-008/close", "")
	p := s.person()
	p.signIn(admin)
	for query, want := range map[string]string{
		"": "1 to 50 of 120 campaigns", "sort=id&page=2": "101 to 120 of 120 campaigns", "q=c-11": "1 to 10 of 10 campaigns",
		"status=paused": "1 to 1 of 1 campaign", "status=closed": "1 to 1 of 1 campaign",
	} {
		require.Contains(t, p.get("/console?"+query).text, want, query)
	}
	require.Contains(t, p.get("/console?status=paused").text, "c-007")
	require.Contains(t, p.get("/console?status=closed").text, "c-008")
}
