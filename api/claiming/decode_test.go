package claiming_test

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"dibs/api"
	"dibs/api/claiming"
	"dibs/api/wire"
	"dibs/internal/apitest"
	"dibs/models"
)

// members reads an object by encoding/json's tokens: names as they come, values raw. ok is false unless it is one object,
// whole, with each name once.
func members(body []byte) (map[string]json.RawMessage, bool) {
	d := json.NewDecoder(bytes.NewReader(body))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, false
	}
	all := map[string]json.RawMessage{}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, false
		}
		var value json.RawMessage
		if d.Decode(&value) != nil {
			return nil, false
		}
		if _, twice := all[name.(string)]; twice {
			return nil, false
		}
		all[name.(string)] = value
	}
	return all, true
}

var (
	halfPair = regexp.MustCompile(`\\u[dD][89a-fA-F]`)
	wholeInt = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)
)

// readable is what encoding/json takes less what it takes too easily: bytes that are no UTF-8.
func readable(body []byte) bool { return json.Valid(body) && utf8.Valid(body) }

// oracleClaim accepts what encoding/json accepts, and checks the meaning by hand.
func oracleClaim(all map[string]json.RawMessage) (user string, quantity int64, ok bool) {
	quantity = 1
	for name, raw := range all {
		switch name {
		case "user_id":
			if raw[0] != '"' || json.Unmarshal(raw, &user) != nil {
				return "", 0, false
			}
			id, err := models.UserID(user)
			if user = id; err != nil {
				return "", 0, false
			}
		case "quantity":
			n, err := strconv.ParseInt(string(raw), 10, 64)
			if !wholeInt.Match(raw) || err != nil || n < 1 || n > models.QuantityMax {
				return "", 0, false
			}
			quantity = n
		default:
			return "", 0, false
		}
	}
	return user, quantity, user != ""
}

func checkClaim(t require.TestingT, body []byte) {
	user, quantity, code := claiming.DecodeClaim(body)
	if halfPair.Match(body) && code != "" {
		return // encoding/json makes U+FFFD of half a pair
	}
	deep := bytes.Count(body, []byte("["))+bytes.Count(body, []byte("{")) > 32
	trimmed := bytes.TrimLeft(body, " \t\r\n")
	switch isObject := len(trimmed) > 0 && trimmed[0] == '{'; {
	case deep:
	case readable(body) && isObject:
		require.NotEqual(t, wire.CodeMalformed, code, "%q", body)
	default:
		require.Equal(t, wire.CodeMalformed, code, "%q", body)
	}
	if !readable(body) {
		require.NotEmpty(t, code, "%q", body)
		return
	}
	all, whole := members(body)
	wantUser, wantQuantity, ok := oracleClaim(all)
	if whole && ok {
		require.Empty(t, code, "%q", body)
		require.Equal(t, wantUser, user)
		require.Equal(t, wantQuantity, quantity)
	} else {
		require.NotEmpty(t, code, "%q", body)
	}
}

func FuzzDecodeClaim(f *testing.F) {
	for _, c := range badClaims() {
		f.Add([]byte(c.body))
	}
	f.Add([]byte(`{"user_id":"u","quantity":3}`))
	for _, id := range []string{"", "u", `u\\`, `a","quantity":1,"user_id":"b`, "u\x7f", "é", strings.Repeat("u", 128), strings.Repeat("u", 129)} {
		f.Add([]byte(`{"user_id":"` + id + `"}`))
		f.Add([]byte(`{"user_id":"` + id + `","quantity":1}`))
	}
	f.Add([]byte(" {\t\"quantity\" : 10 ,\r\n\"user_id\":\"\\ud83d\\ude00 \\\"\\\\\\/\"}\n"))
	f.Fuzz(func(t *testing.T, body []byte) { checkClaim(t, body) })
}

func checkBatch(t require.TestingT, body []byte) {
	got, code := claiming.DecodeBatch(body)
	if halfPair.Match(body) {
		return
	}
	if !readable(body) {
		require.NotEmpty(t, code, "%q", body)
		return
	}
	if code != "" {
		return
	}
	var want struct{ Claims []json.RawMessage }
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(&want), "%q", body)
	require.Len(t, got, len(want.Claims))
	for i, raw := range want.Claims {
		all, whole := members(raw)
		campaign, key := "", ""
		keyOK := true
		if v, there := all["idempotency_key"]; there {
			keyOK = v[0] == '"' && json.Unmarshal(v, &key) == nil
			kept, err := models.IdempotencyKey(key)
			keyOK = keyOK && err == nil
			key = kept
		}
		if v := all["campaign_id"]; len(v) > 0 && v[0] == '"' {
			require.NoError(t, json.Unmarshal(v, &campaign))
		}
		delete(all, "idempotency_key")
		delete(all, "campaign_id")
		user, quantity, ok := oracleClaim(all)
		if whole && ok && keyOK && models.CheckCampaignID(campaign) == nil {
			require.Equal(t, claiming.Decoded{CampaignID: campaign, UserID: user, Key: key, Quantity: quantity}, got[i], "%q", raw)
		} else {
			require.Equal(t, wire.CodeInvalid, got[i].Code, "%q", raw)
		}
	}
}

func FuzzDecodeBatch(f *testing.F) {
	for _, c := range badClaims() {
		f.Add([]byte(`{"claims":[` + c.body + `]}`))
	}
	f.Add([]byte(`{"claims":[{"campaign_id":"c","user_id":"u"},{"campaign_id":"c","user_id":"u","quantity":2,"idempotency_key":"k é"}]}`))
	f.Fuzz(func(t *testing.T, body []byte) { checkBatch(t, body) })
}

// TestDecodeClaim_AgreesWithEncodingJSON mutates good bodies, which plain fuzzing needs long for.
func TestDecodeClaim_AgreesWithEncodingJSON(t *testing.T) {
	t.Parallel()
	pieces := strings.Split(`{|}|"user_id"|"quantity"|:|,|"u"|"\u0041"|"\ud83d\ude00"|1|0|-1|1.5|1e3|null|true|[|]| |\|"|é|"a\nb"|x|999999999999999999999`, "|")
	accepted := 0
	rng := rand.New(rand.NewPCG(1, 2))
	for range 30_000 {
		body := []byte(`{"user_id":"u","quantity":7}`)
		for range rng.IntN(4) {
			at := rng.IntN(len(body) + 1)
			upTo := min(len(body), at+rng.IntN(4))
			piece := pieces[rng.IntN(len(pieces))]
			body = append(append(append([]byte{}, body[:at]...), piece...), body[upTo:]...)
		}
		checkClaim(t, body)
		checkBatch(t, []byte(`{"claims":[`+string(body)+`,{"campaign_id":"c","user_id":"u"}]}`))
		if _, _, code := claiming.DecodeClaim(body); code == "" {
			accepted++
		}
	}
	require.Greater(t, accepted, 3_000, "control: good bodies are among them")
}

func TestAppendClaim_IsEncodingJSON(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := models.Claim{
			ID: rapid.String().Draw(t, "id"), CampaignID: rapid.StringMatching(`[a-z<>&"\\]{0,9}`).Draw(t, "campaign"),
			UserID: rapid.String().Draw(t, "user"), Quantity: rapid.Int64().Draw(t, "quantity"), Seq: rapid.Int64().Draw(t, "seq"),
			Status: "claimed", ClaimedAt: models.TimeFromMs(rapid.Int64Range(0, 253402300799999).Draw(t, "at")),
			PacketID: rapid.StringMatching(`[a-z]{0,3}`).Draw(t, "packet"), Currency: rapid.SampledFrom([]string{"", "EUR"}).Draw(t, "currency"),
		}
		if rapid.Bool().Draw(t, "amount") {
			amount := rapid.Int64().Draw(t, "minor")
			c.Amount = &amount
		}
		if rapid.Bool().Draw(t, "held") {
			at := models.NewTime(c.ClaimedAt.Add(15 * time.Minute))
			c.ExpiresAt = &at
		}
		want, err := json.Marshal(c)
		require.NoError(t, err)
		require.Equal(t, string(want), string(claiming.AppendClaim(nil, &c)))
	})
}

func TestOpenAPI_RequestsOfClaimsNameEveryFieldThatIsDecoded(t *testing.T) {
	t.Parallel()
	apitest.RequireFields(t, apitest.NewServer(t, apitest.NewFake(), api.Config{}), claiming.RequestFields())
}
