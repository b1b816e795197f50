package models_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"dibs/models"
	"dibs/models/event"
)

var update = flag.Bool("update", false, "write the golden files again")

func requireGolden(t *testing.T, name, text string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err, "go test ./models -update writes it")
	require.Equal(t, string(want), text, "what others read has changed; if that is meant: go test ./models -update")
}

var at = models.TimeFromMs(1_795_236_422_663)

// events has one of each type, with every field that it may have.
func events() []event.Event {
	claim := event.Event{
		V: 1, Type: event.ClaimAccepted, ID: "01a1fc6d-e406-7215-ad5f-bdaab8462f2c", CampaignID: "spring", UserID: "ada", Quantity: 2,
		Key: "glTDKakoUPbVOd03b0gW7g", Epoch: 3, Seq: 17, At: at,
	}
	packet := claim
	packet.CampaignID, packet.Quantity, packet.PacketID, packet.Amount, packet.Currency = "gala", 1, "_00000017", new(int64(8888)), "CNY"
	released := claim
	released.Type, released.ClaimID, released.ClaimedAt, released.Reason = event.ClaimReleased, claim.ID, &at, "payment failed"
	released.ID = "01a1fc6d-e406-7215-ad5f-bdaab8462f2d"
	redeemed := released
	redeemed.Type, redeemed.Reason, redeemed.OrderID = event.ClaimRedeemed, "", "4711"
	reopened := redeemed
	reopened.Type, reopened.Reason, reopened.ExpiresAt, reopened.Decision = event.ClaimReopened, "refunded", &at, 2
	extended := redeemed
	extended.Type, extended.OrderID, extended.ExpiresAt, extended.ExtendKey = event.ClaimExtended, "", &at, "glTDKakoUPbVOd03b0gW7g"
	all := []event.Event{claim, packet, released, redeemed, reopened, extended}
	for _, kind := range []event.Type{event.CampaignLowStock, event.CampaignSoldOut} {
		all = append(all, event.Event{V: 1, Type: kind, ID: "spring-3-17", CampaignID: "spring", Epoch: 3, Seq: 17, Remaining: new(int64(0)), At: at})
	}
	debited := event.Event{
		V: 1, Type: event.UnitsDebited, ID: "01a1fc6d-e406-7215-ad5f-bdaab8462f2e", CampaignID: "gala", Quantity: 2, Epoch: 3,
		Shard: 2, At: at, Peer: 3, Move: "01a1fc6d-e406-7215-ad5f-bdaab8462f2e",
	}
	credited := debited
	credited.Type = event.UnitsCredited
	credited.Shard = 3
	credited.Peer = 2
	credited.ID += ":credited"
	return append(all, event.Event{
		V: 1, Type: event.CampaignClosed, ID: "gala-closed", CampaignID: "gala", UserID: "host", Amount: new(int64(0)), Currency: "CNY", At: at,
	}, debited, credited,
		event.Event{
			V: 1, Type: event.LotLoaded, ID: "load-3", CampaignID: "gala", Shard: 2, Epoch: 3, Seq: 17, Sold: 30, Claims: 16, Quantity: 28,
			Version: 5, Generation: 1, At: at,
		},
		event.Event{
			V: 1, Type: event.LotResumed, ID: "load-4", CampaignID: "spring", Epoch: 4, Seq: 18, Sold: 31, Claims: 16, Quantity: 28,
			Generation: 1, At: at,
		},
		event.Event{
			V: 1, Type: event.CampaignPaused, ID: "01a1fc6d-e406-7215-ad5f-bdaab8462f30", CampaignID: "gala", Shard: 2, At: at,
			PauseID: "01a1fc6d-e406-7215-ad5f-bdaab8462f2f", Actor: "admin", RequestID: "412d9bf8ad9d5566-4",
		},
		event.Event{V: 1, Type: event.LotEvicted, ID: "evict-3", CampaignID: "gala", Shard: 2, Epoch: 3, At: at},
		event.Event{
			V: 1, Type: event.CampaignChanged, ID: "spring-6:changed", CampaignID: "spring", Epoch: 3, Version: 6, At: at,
			Definition: &models.Definition{
				Kind: models.KindCoupon, Name: "Spring", Status: models.StatusPaused, Shards: 1, PerUser: 2, TimeZone: "UTC", Version: 6, Changes: 2,
				CreatedDigest: "d1", CreatedAt: at.Time, Total: 30,
			},
		},
		event.Event{
			V: 1, Type: event.PacketsPushed, ID: "pushed-1", CampaignID: "gala", Shard: 2, At: at,
			Pushed: &event.PushedPackets{
				Batch: models.PacketBatchRow{FirstPosition: 1, Packets: 2, Amount: 30, RequestKey: "k1", Digest: "d2", CreatedAt: at.Time},
				Upto:  2, Packets: []event.PushedPacket{{Position: 1, ID: "a", Amount: 10}, {Position: 2, ID: "b", Amount: 20}},
			},
		},
		event.Event{V: 1, Type: event.PartitionGeneration, ID: "generation-2", Generation: 2, At: at})
}

// Consumers read these payloads: names and forms of the fields must not
// change.
func TestEventsAreWrittenAsOthersReadThem(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for _, e := range events() {
		line, err := json.Marshal(e)
		require.NoError(t, err)
		text.Write(append(line, '\n'))
		back, err := event.Decode(line)
		require.NoError(t, err, "%s", line)
		require.Equal(t, e, back)
	}
	requireGolden(t, "events.jsonl", text.String())
}

func TestEventsEndAtTheirBounds(t *testing.T) {
	t.Parallel()
	moment := func(year int) models.Time { return models.NewTime(time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)) }
	for name, one := range map[string]struct {
		change func(*event.Event)
		words  string // of the refusal; "" if accepted
	}{
		"v 2":                     {func(e *event.Event) { e.V = 2 }, "v is 2"},
		"a longer id":             {func(e *event.Event) { e.ID = strings.Repeat("i", 65) }, "id"},
		"a campaign with a slash": {func(e *event.Event) { e.CampaignID = "a/b" }, `campaign_id "a/b"`},
		"1969":                    {func(e *event.Event) { e.At = moment(1969) }, "at 1969"},
		"no time":                 {func(e *event.Event) { e.At = models.Time{} }, "at 0001"},
		"nobody":                  {func(e *event.Event) { e.UserID = "" }, "user_id"},
		"no units":                {func(e *event.Event) { e.Quantity = 0 }, "quantity 0"},
		"more units":              {func(e *event.Event) { e.Quantity = models.QuantityMax + 1 }, "quantity 1000001"},
		"no seq":                  {func(e *event.Event) { e.Seq = 0 }, "seq 0"},
		"a packet without amount": {func(e *event.Event) { e.PacketID = "p" }, `packet_id "p"`},
		"a larger amount":         {func(e *event.Event) { e.Amount = new(models.AmountMax + 1) }, "amount 1000000000000000"},
		"a longer key":            {func(e *event.Event) { e.Key = strings.Repeat("k", 65) }, "key of 65"},
		"no claim":                {func(e *event.Event) { e.ClaimID = "" }, `claim_id ""`},
		"no time of a claim":      {func(e *event.Event) { e.ClaimedAt = nil }, "claimed_at"},
		"a claim of 1969":         {func(e *event.Event) { e.ClaimedAt = new(moment(1969)) }, "claimed_at"},
	} {
		for _, kind := range []int{0, 2, 3} { // decisions obey the same rules as claims
			e := events()[kind]
			if kind == 0 && strings.HasPrefix(one.words, "claim") {
				continue
			}
			one.change(&e)
			requireDecoded(t, &e, one.words, "%s of %s", name, e.Type)
		}
	}
}

// requireDecoded expects an event to be read as written, or to be refused
// with these words.
func requireDecoded(t *testing.T, e *event.Event, refused, what string, args ...any) {
	t.Helper()
	payload, err := json.Marshal(e)
	require.NoError(t, err)
	got, err := event.Decode(payload)
	if refused == "" {
		require.NoError(t, err, append([]any{what}, args...)...)
		require.Equal(t, *e, got)
		return
	}
	require.ErrorIs(t, err, event.ErrInvalid, append([]any{what}, args...)...)
	require.ErrorContains(t, err, refused, append([]any{what}, args...)...)
	require.Zero(t, got)
}

// Readers of this version must ignore what later writers add.
func TestWhatNobodyKnowsYetIsPassedOver(t *testing.T) {
	t.Parallel()
	for _, e := range events() {
		payload, err := json.Marshal(e)
		require.NoError(t, err)
		more := strings.TrimSuffix(string(payload), "}") + `,"new":{"a":[1,null,"x"]}}`
		got, err := event.Decode([]byte(more))
		require.NoError(t, err, more)
		require.Equal(t, e, got)
	}
	for _, kind := range []string{"campaign.reopened", "", "claim.accepted.v2"} {
		e := event.Event{V: 1, Type: event.Type(kind), ID: "x", CampaignID: "c", At: at}
		requireDecoded(t, &e, "", "type %q", kind)
	}
}

func drawEvent(t *rapid.T) event.Event {
	user := rapid.StringOfN(rapid.RuneFrom([]rune("aZ0 ~\"\\<é日💥")), 1, 128, -1)
	id := rapid.StringMatching(`[A-Za-z0-9._-]{1,64}`)
	e := rapid.SampledFrom(events()).Draw(t, "kind")
	e.ID, e.CampaignID, e.UserID = id.Draw(t, "id"), id.Draw(t, "campaign"), user.Draw(t, "user")
	e.Quantity = rapid.Int64Range(1, models.QuantityMax).Draw(t, "quantity")
	e.Seq = rapid.Int64Min(1).Draw(t, "seq")
	e.Epoch = rapid.Int64Min(0).Draw(t, "epoch")
	e.At = models.TimeFromMs(rapid.Int64Range(0, 253_402_300_799_999).Draw(t, "at"))
	if e.ClaimID != "" {
		e.ClaimID, e.Reason = id.Draw(t, "claim"), user.Draw(t, "reason")
	}
	if rapid.Bool().Draw(t, "packet") {
		e.PacketID, e.Amount = id.Draw(t, "packet"), new(rapid.Int64Range(0, models.AmountMax).Draw(t, "amount"))
	}
	return e
}

func TestEveryEventIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		e := drawEvent(rt)
		payload, err := json.Marshal(e)
		require.NoError(rt, err)
		got, err := event.Decode(payload)
		require.NoError(rt, err, "%s", payload)
		require.Equal(rt, e, got, "%s", payload)
	})
}

// Whatever a stream holds is read or refused. What is read stays the same
// when written again.
func FuzzDecodeEvent(f *testing.F) {
	for _, e := range events() {
		payload, err := json.Marshal(e)
		require.NoError(f, err)
		f.Add(payload)
	}
	f.Add([]byte(`{"v":1,"v":2}`))
	f.Add([]byte(`null`))
	f.Add([]byte(`{"v":1,"type":"claim.accepted","id":"x","campaign_id":"c","at":null}`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		e, err := event.Decode(payload)
		if err != nil {
			require.ErrorIs(t, err, event.ErrInvalid)
			require.Zero(t, e)
			return
		}
		again, err := json.Marshal(e)
		require.NoError(t, err)
		back, err := event.Decode(again)
		require.NoError(t, err, "%s", again)
		require.Equal(t, e, back)
	})
}
