package wire_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"dibs/api/wire"
	"dibs/internal/testkit/testenv"
	"dibs/models"
)

func TestMain(m *testing.M) { testenv.Main(m) }

type everything struct {
	Text    *string `json:"text,omitempty"`
	Bonus   *int64  `json:"bonus,omitempty" minimum:"0" maximum:"9"`
	note    *string
	noNote  bool
	id      string
	count   int64
	list    []element
	refused []string // elements' refusals
}

type element struct {
	id string
	n  int64
}

func (e *everything) fields() []wire.Field {
	return wire.FieldsOf(e,
		wire.TextOrNull("note", &e.note, &e.noNote), wire.ID("id", &e.id, models.CheckCampaignID), wire.Integer("count", &e.count, -3, 3),
		wire.Each("list", 3, &e.list, func(x *element) []wire.Field {
			return []wire.Field{wire.ID("id", &x.id, models.CheckCampaignID), wire.Integer("n", &x.n, 1, 9)}
		}, func(_ *element, i int, p *wire.Problem) *wire.Problem {
			if p != nil {
				e.refused = append(e.refused, fmt.Sprint(i, " ", p.Detail))
			}
			return nil
		}),
	)
}

func read(body string) (everything, *wire.Problem) {
	var e everything
	p := wire.ReadObject([]byte(body), e.fields())
	return e, p
}

func TestReadObject_EveryKindOfField(t *testing.T) {
	t.Parallel()
	e, p := read(` {"text":"a\u00e9\ud83d\ude00\n","note":null,"id":"x","count":-3,"bonus":0,"list":[{"id":"a","n":1},{"n":2,"id":"b"}]} `)
	require.Nil(t, p)
	require.Equal(t, everything{
		Text: new("aé😀\n"), noNote: true, id: "x", count: -3, Bonus: new(int64(0)), list: []element{{"a", 1}, {"b", 2}},
	}, e)
	e, p = read(`{"note":"n","list":[]}`)
	require.Nil(t, p)
	require.Equal(t, everything{note: new("n"), list: []element{}}, e, "an empty list was sent, the others were not")
	e, p = read(`{}`)
	require.Nil(t, p)
	require.Equal(t, everything{}, e)
}

func TestReadObject_RefusalsSayWhatIsWrong(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"text":1}`:                     "invalid: text: must be a string",
		`{"text":null}`:                  "invalid: text: must be a string, not null; leave it out instead",
		`{"id":"a b"}`:                   "invalid: id: only A-Z a-z 0-9 . _ - are allowed",
		`{"count":"1"}`:                  "invalid: count: must be a whole number",
		`{"count":4}`:                    "invalid: count: must be -3 to 3",
		`{"count":99999999999999999999}`: "invalid: count: must be -3 to 3",
		`{"list":[{},{},{},{}]}`:         "invalid: list: must be 1 to 3",
		`{"text":"a","text":"a"}`:        "invalid: text: is there twice",
		`{"t\u0065xt":"a","text":"a"}`:   "invalid: text: is there twice",
		`{"Text":"a"}`:                   "invalid: Text: is not a known field",

		``:                          "malformed: The body is empty.",
		`[{}]`:                      "malformed: The body must be a JSON object.",
		`{"text":"a`:                "malformed: The body ends early.",
		`{"text":"a"}{}`:            "malformed: The body goes on after its JSON object.",
		"{\"text\":\"\xff\"}":       "malformed: The body is not JSON in UTF-8 at byte 10.",
		`{"count":9,"id":}`:         "malformed: The body is not JSON in UTF-8 at byte 17.",
		`{"list":[{"n":0},{"n":}]}`: "malformed: The body is not JSON in UTF-8 at byte 23.",
	} {
		_, p := read(body)
		require.NotNil(t, p, body)
		require.Equal(t, want, p.Error(), body)
	}
}

func TestReadObject_DepthIsBounded(t *testing.T) {
	t.Parallel()
	nested := func(depth int) string { // depth of the whole body
		return `{"zz":` + strings.Repeat(`[`, depth-1) + strings.Repeat(`]`, depth-1) + `}`
	}
	_, p := read(nested(32))
	require.Equal(t, wire.CodeInvalid, p.Code)
	_, p = read(nested(33))
	require.Equal(t, "malformed: The body is nested more than 32 deep.", p.Error())
	_, p = read(nested(5000))
	require.Equal(t, wire.CodeMalformed, p.Code)
}

// A bad element must not affect others: the next begins where it ends,
// however deep it was refused.
func TestReadObject_AnElementThatIsRefusedSpoilsNoOther(t *testing.T) {
	t.Parallel()
	e, p := read(`{"list":[{"n":1,"zz":{"a":[{"id":"deep"}]},"id":"not read"},[[7]],{"id":"b","n":2}],"count":1}`)
	require.Nil(t, p)
	require.Equal(t, []string{"0 zz: is not a known field", "1 : must be an object"}, e.refused)
	require.Equal(t, []element{{"", 1}, {}, {"b", 2}}, e.list, "none has anything of the one before it")
	require.EqualValues(t, 1, e.count)
}

// The body's buffer and the reader are reused.
func TestReadObject_KeepsNothingOfTheBody(t *testing.T) {
	t.Parallel()
	var g sync.WaitGroup
	for worker := range 8 {
		g.Go(func() {
			buf := make([]byte, 0, 100)
			for i := range 500 {
				buf = fmt.Appendf(buf[:0], `{"text":"worker %d, %d","id":"w%d-%d","count":%d}`, worker, i, worker, i, i%4)
				var e everything
				if p := wire.ReadObject(buf, e.fields()); p != nil {
					t.Errorf("%s: %v", buf, p)
				}
				clear(buf)
				if *e.Text != fmt.Sprintf("worker %d, %d", worker, i) || e.id != fmt.Sprintf("w%d-%d", worker, i) || e.count != int64(i%4) {
					t.Errorf("read %q %q %d", *e.Text, e.id, e.count)
				}
				if _, p := read(`{"text":"broken`); p == nil {
					t.Error("a broken text is read")
				}
			}
		})
	}
	g.Wait()
}

func TestReadObject_AgreesWithEncodingJSON(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text, id := rapid.String().Draw(t, "text"), rapid.StringMatching(`[A-Za-z0-9_-]{1,64}`).Draw(t, "id")
		count, list := rapid.Int64Range(-3, 3).Draw(t, "count"), rapid.SliceOfN(rapid.Int64Range(1, 9), 0, 3).Draw(t, "list")
		elements, want := []map[string]any{}, []element{}
		for i, n := range list {
			elements = append(elements, map[string]any{"n": n, "id": fmt.Sprint("e", i)})
			want = append(want, element{fmt.Sprint("e", i), n})
		}
		body, err := json.MarshalIndent(map[string]any{"text": text, "id": id, "count": count, "list": elements}, " ", "\t")
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(body, new(any)))
		e, p := read(string(body))
		require.Nil(t, p, "%s", body)
		var theirs struct{ Text string }
		require.NoError(t, json.Unmarshal(body, &theirs))
		require.Equal(t, everything{Text: &theirs.Text, id: id, count: count, list: want}, e)
	})
}

// Malformed is exactly what encoding/json can't read or isn't UTF-8.
func FuzzReadObject(f *testing.F) {
	for _, body := range []string{`{}`, `{"text":"a","list":[{"id":"a","n":1}]}`, `{"zz":[{}]}`, `{"text":"\ud800"}`, `{"note":null}`, `{"a":1}{}`, `[]`} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var e everything
		p := wire.ReadObject(body, e.fields())
		var object map[string]json.RawMessage
		err := json.Unmarshal(body, &object)
		switch malformed := p != nil && p.Code == wire.CodeMalformed; {
		case p != nil && strings.Contains(p.Detail, "deep"), strings.Contains(string(body), `\u`) && malformed: // an unpaired surrogate
		case err != nil || object == nil:
			require.True(t, malformed, "%q", body)
		case malformed:
			require.False(t, json.Valid(body) && strings.ToValidUTF8(string(body), "?") == string(body), "%q: %v", body, p)
		}
	})
}
