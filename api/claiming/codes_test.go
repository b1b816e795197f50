package claiming_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/api/claiming"
	"dibs/api/wire"
	"dibs/models"
)

// Storefronts' programs compare these codes.
func TestCodes_AreThoseOfTheContract(t *testing.T) {
	t.Parallel()
	contract := map[int]string{
		409: "sold_out user_limit user_day_limit not_started not_released ended paused closed campaign_exists already_redeemed already_released not_redeemed" +
			" claim_parked group_in_use limit claimed",
		404: "campaign_not_found claim_not_found group_not_found not_found", 422: "invalid idempotency_mismatch", 400: "malformed", 401: "unauthorized",
		403: "forbidden", 413: "too_large", 429: "rate_limited", 503: "unavailable outcome_unknown too_many_watchers", 405: "method_not_allowed", 500: "internal",
		412: "precondition_failed", 415: "unsupported_media_type",
	}
	want := map[wire.Code]int{}
	for status, codes := range contract {
		for code := range strings.FieldsSeq(codes) {
			want[wire.Code(code)] = status
		}
	}
	got := map[wire.Code]int{}
	for _, code := range wire.Codes() {
		got[code] = (&wire.Problem{Code: code}).GetStatus()
	}
	require.Equal(t, want, got)
	for _, o := range []models.Outcome{models.OutcomeClaimed, models.OutcomeReplayed} {
		require.Empty(t, claiming.CodeOf(o))
	}
}
