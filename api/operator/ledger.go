package operator

import (
	"bufio"
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"io"
	"iter"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"dibs/api/wire"
	"dibs/models"
	"dibs/models/calendar"
	"dibs/models/event"
)

const (
	ledgerPageMax  = 1000             // events
	reportsMax     = 4                // concurrent CSV ledgers and settlements
	reportTimeout  = 5 * time.Minute  // of a settlement
	csvTimeout     = 30 * time.Second // in which a client must read csvBuffer bytes
	csvBuffer      = 256 << 10
	csvContentType = "text/csv"
	spreadsheet    = "spreadsheet" // a form of CSV, see wire.Cell
	byteOrderMark  = "\ufeff"
)

const streamed = 0

// Ledger reads what happened to claims. Errors: models.ErrNotFound,
// *models.ArchivedError; any other means that MySQL doesn't answer.
type Ledger interface {
	Page(ctx context.Context, campaignID string, after event.Place, limit int) (events []event.Event, upto time.Time, err error)
	All(ctx context.Context, campaignID string, after event.Place) (iter.Seq2[*event.Event, error], error)
	Settle(ctx context.Context, day calendar.Day) (event.Settlement, error)
}

// LedgerEvent is an event in the document.
type LedgerEvent event.Event

// LedgerPage is the answer of GetLedger.
type LedgerPage struct {
	Events []LedgerEvent `json:"events" nullable:"false" doc:"as in the claim stream, in order of at, then id"`
	Next   string        `json:"next,omitempty" doc:"where to continue, now or later; absent while there is no event"`
	Upto   models.Time   `json:"upto" doc:"no event before this time will ever follow"`
}

// GetLedger is GET /v1/campaigns/{id}/ledger: a page of JSON, or everything
// as CSV.
func (s *Routes) GetLedger(w http.ResponseWriter, r *http.Request) int {
	id := r.PathValue("id")
	query := r.URL.Query()
	if p := wire.InvalidID("id", models.CheckCampaignID(id)); p != nil {
		return p.Write(w)
	}
	after, err := event.ParsePlace(query.Get("after"))
	if err != nil {
		return wire.Invalid("after", "must be the next of a page").Write(w)
	}
	form := query.Get("form")
	if form != "" && form != spreadsheet {
		return wire.Invalid("form", "must be "+spreadsheet).Write(w)
	}
	if form == spreadsheet || wantsCSV(r.Header) {
		return s.ledgerCSV(w, r, id, after, form == spreadsheet)
	}
	limit := ledgerPageMax
	if text := query.Get("limit"); text != "" {
		limit, err = strconv.Atoi(text)
		if err != nil || limit < 1 || limit > ledgerPageMax {
			return wire.Invalid("limit", "must be 1 to "+strconv.Itoa(ledgerPageMax)).Write(w)
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
	defer cancel()
	events, upto, err := s.cfg.Ledger.Page(ctx, id, after, limit)
	if err != nil {
		return s.refuseLedger(ctx, id, err).Write(w)
	}
	page := LedgerPage{Events: make([]LedgerEvent, len(events)), Next: query.Get("after"), Upto: models.NewTime(upto)}
	for i := range events {
		page.Events[i] = LedgerEvent(events[i])
		page.Next = event.PlaceOf(&events[i]).String()
	}
	return writeJSON(w, page)
}

// wantsCSV reports whether a request accepts CSV and doesn't prefer JSON.
// Case and q are as in RFC 9110.
func wantsCSV(h http.Header) bool {
	var csv, other float64
	for _, accepted := range h.Values("Accept") {
		for part := range strings.SplitSeq(accepted, ",") {
			name, params, err := mime.ParseMediaType(part)
			if err != nil {
				continue
			}
			q := 1.0
			if text, has := params["q"]; has {
				q, _ = strconv.ParseFloat(text, 64) // an invalid number counts as 0
			}
			switch name {
			case csvContentType:
				csv = max(csv, q)
			case "application/json":
				other = max(other, q)
			}
		}
	}
	return csv > 0 && csv >= other
}

func writeJSON(w http.ResponseWriter, answer any) int {
	body, err := json.Marshal(answer)
	if err != nil { // strings, numbers and times always marshal
		panic(err)
	}
	w.Header()["Content-Type"] = wire.JSONContentType
	_, _ = w.Write(body) // a disconnected client needs no answer
	return http.StatusOK
}

func (s *Routes) refuseLedger(ctx context.Context, id string, err error) *wire.Problem {
	return s.refuse(ctx, "ledger", id, err, "MySQL does not answer. Send the request again.")
}

// ledgerCSV streams a ledger. A failure after the first byte cuts the
// connection, so that no client takes a part for the whole.
func (s *Routes) ledgerCSV(w http.ResponseWriter, r *http.Request, id string, after event.Place, forSheet bool) int {
	if !s.reports.TryAcquire(1) {
		return wire.Refuse(wire.CodeUnavailable).Write(w)
	}
	defer s.reports.Release(1)
	events, err := s.cfg.Ledger.All(r.Context(), id, after)
	if err != nil {
		return s.refuseLedger(r.Context(), id, err).Write(w)
	}
	control := http.NewResponseController(w)
	w.Header().Set("Content-Type", csvContentType+"; charset=utf-8")
	if forSheet {
		w.Header().Set("Content-Disposition", `attachment; filename="`+id+`.csv"`)
	}
	if r.Method == http.MethodHead {
		return http.StatusOK
	}
	out := bufio.NewWriterSize(writerFunc(func(b []byte) (int, error) {
		_ = control.SetWriteDeadline(time.Now().Add(csvTimeout))
		return w.Write(b)
	}), csvBuffer)
	err = writeLedger(out, events, forSheet)
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		_ = s.refuseLedger(r.Context(), id, err) // logs it
		panic(http.ErrAbortHandler)
	}
	return streamed
}

type writerFunc func(b []byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// ledgerColumns are the CSV's columns, named like fields of events. It has
// those that books need.
var ledgerColumns = []string{
	"at", "type", "id", "claim_id", "user_id", "quantity", "shard", "seq", "claimed_at", "packet_id", "amount", "currency", "order_id",
	"reason", "ids", "seqs", "expires_at",
}

// writeLedger writes events as CSV. A spreadsheet would run formulas in it.
// So for one, texts go through wire.Cell, and the file starts with a byte order
// mark.
func writeLedger(w io.Writer, events iter.Seq2[*event.Event, error], forSheet bool) error {
	text := func(of string) string { return of }
	to := "-"
	if forSheet {
		text = wire.Cell
		to = ".."                               // or it is read as a date
		_, _ = io.WriteString(w, byteOrderMark) // the next write reports an error
	}
	out := csv.NewWriter(w)
	_ = out.Write(ledgerColumns) // out.Error reports it
	line := make([]string, len(ledgerColumns))
	for e, err := range events {
		if err != nil {
			return err
		}
		claimID := e.ClaimID
		amount := ""
		if e.Type == event.ClaimAccepted {
			claimID = e.ID
		}
		if e.Amount != nil {
			amount = strconv.FormatInt(*e.Amount, 10)
		}
		runs := make([]string, len(e.Seqs))
		for i, run := range e.Seqs {
			runs[i] = strconv.FormatInt(run[0], 10) + to + strconv.FormatInt(run[1], 10)
		}
		line = append(line[:0], e.At.Format(models.TimeLayout), string(e.Type), text(e.ID), text(claimID), text(e.UserID),
			strconv.FormatInt(e.Quantity, 10),
			strconv.Itoa(e.Shard), strconv.FormatInt(e.Seq, 10), timeText(e.ClaimedAt), text(e.PacketID), amount, e.Currency, text(e.OrderID),
			text(e.Reason), strings.Join(e.IDs, " "), strings.Join(runs, " "), timeText(e.ExpiresAt))
		if err := out.Write(line); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// DocumentLedger describes GetLedger.
func DocumentLedger(oapi *huma.OpenAPI, op *huma.Operation) {
	op.Parameters = []*huma.Param{
		wire.IDParam(),
		{Name: "after", In: "query", Schema: &huma.Schema{Type: "string"}, Description: "next of the page before; absent: from the beginning"},
		{Name: "limit", In: "query", Schema: &huma.Schema{Type: "integer", Minimum: new(1.0), Maximum: new(float64(ledgerPageMax))},
			Description: "most events of a page; CSV has all"},
		{Name: "form", In: "query", Schema: &huma.Schema{Type: "string", Enum: []any{spreadsheet}},
			Description: "all events as CSV for a spreadsheet: with a byte order mark, and an apostrophe before a text that it could take " +
				"for a formula"},
	}
	schema := wire.SchemaOf[LedgerPage](oapi)
	r := wire.DocumentAnswer(op, "200", "A page of events as JSON, or with Accept: text/csv all of them", wire.JSONContentType[0], schema)
	r.Content[csvContentType] = &huma.MediaType{Schema: &huma.Schema{Type: "string"}}
}

// GetSettlement is GET /v1/settlements/{date}.
func (s *Routes) GetSettlement(w http.ResponseWriter, r *http.Request) int {
	zone, err := calendar.LoadZone(cmp.Or(r.URL.Query().Get("time_zone"), "UTC"))
	if err != nil {
		return wire.Invalid("time_zone", "must be an IANA name such as Europe/Berlin").Write(w)
	}
	day, err := calendar.ParseDay(r.PathValue("date"), zone)
	if err != nil {
		return wire.Invalid("date", err.Error()).Write(w)
	}
	if !s.reports.TryAcquire(1) {
		return wire.Refuse(wire.CodeUnavailable).Write(w)
	}
	defer s.reports.Release(1)
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(reportTimeout + answerTimeout))
	ctx, cancel := context.WithTimeout(r.Context(), reportTimeout)
	defer cancel()
	settlement, err := s.cfg.Ledger.Settle(ctx, day)
	if err != nil {
		return s.refuse(ctx, "settlement", "", err, "MySQL does not answer. Send the request again.").Write(w)
	}
	return writeJSON(w, settlement)
}

// DocumentSettlement describes GetSettlement.
func DocumentSettlement(oapi *huma.OpenAPI, op *huma.Operation) {
	op.Parameters = []*huma.Param{
		{Name: "date", In: "path", Required: true, Schema: &huma.Schema{Type: "string", Format: "date"}, Description: "the day"},
		{Name: "time_zone", In: "query", Schema: &huma.Schema{Type: "string"}, Description: "IANA name of the zone of the day; UTC unless given"},
	}
	wire.DocumentAnswer(op, "200", "The sums of the day", wire.JSONContentType[0], wire.SchemaOf[event.Settlement](oapi))
}

func timeText(t *models.Time) string {
	if t == nil {
		return ""
	}
	return t.Format(models.TimeLayout)
}
