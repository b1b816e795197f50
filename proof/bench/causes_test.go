package bench_test

import (
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"
	"github.com/stretchr/testify/require"
)

// cause is a use of CPU time: samples whose stack it matches,
// unless an earlier cause does. Stacks read from the leaf to the
// root, a function per line.
type cause struct {
	name  string
	stack *regexp.Regexp
}

const kernel = `(?s)^[a-z/]*syscall[a-z/]*\..*`

var causes = []cause{
	{"kernel, HTTP connections", regexp.MustCompile(kernel + `\nnet/http\.\(\*(?:conn|connReader|response|checkConnErrorWriter)`)},
	{"kernel, Redis connections", regexp.MustCompile(kernel + `\ngithub\.com/redis/go-redis`)},
	{"kernel, SQL connections", regexp.MustCompile(kernel + `\ngithub\.com/go-sql-driver`)},
	{"memory: to allocate and to collect", regexp.MustCompile(`(?m)^runtime\.(?:mallocgc|gcBgMarkWorker|gcAssistAlloc|bgsweep|bgscavenge|gcStart|newobject|growslice|makeslice)`)},
	{"scheduler: goroutines that sleep, wake and are found", regexp.MustCompile(`(?m)^runtime\.(?:schedule|mcall|park_m|findRunnable|goready|ready|wakep|chansend|chanrecv|selectgo|futex|notewakeup|notesleep|semrelease|semacquire|sysmon|mstart)`)},
	{"go-redis", regexp.MustCompile(`(?m)^github\.com/redis/go-redis`)},
	{"SQL driver and gorm", regexp.MustCompile(`(?m)^(?:github\.com/go-sql-driver|gorm\.io|database/sql)`)},
	{"Dibs: claims and their lane", regexp.MustCompile(`(?m)^dibs/api/(?:attempts|breaker|claiming|coalesce|rows)`)},
	{"Dibs: events and rows", regexp.MustCompile(`(?m)^dibs/(?:models|syncer|consumer|lua)`)},
	{"Dibs: requests and answers", regexp.MustCompile(`(?m)^dibs/`)},
	{"net/http", regexp.MustCompile(`(?m)^(?:net/http|net)\.`)},
	{"the rest", regexp.MustCompile(``)},
}

// The measured processes, by their load.
var spenders = []string{"API, a claim a request", "API, sold-out refusals", "API, batches", "consumer, batches"}

// spentTable has a row for each cause and a column for each spender.
func spentTable(s *sheet) string {
	heads := []any{"cause"}
	for _, name := range spenders {
		heads = append(heads, name)
	}
	t := newTable(heads...)
	sums := make([]float64, len(spenders))
	for _, c := range causes {
		row := []any{c.name}
		isSpent := false
		for i, name := range spenders {
			text := ""
			if x := s.figure(name + ": " + c.name); x != nil {
				text = digits(median(x.Values))
				sums[i] += median(x.Values)
				isSpent = true
			}
			row = append(row, text)
		}
		if isSpent {
			t.AppendRow(row)
		}
	}
	row := []any{"together"}
	for _, sum := range sums {
		row = append(row, digits(sum))
	}
	t.AppendRow(row)
	return t.RenderMarkdown()
}

// figure returns a series by name, or nil.
func (s *sheet) figure(name string) *series {
	if s == nil {
		return nil
	}
	for _, one := range s.Series {
		if one.Name == name {
			return one
		}
	}
	return nil
}

// benchCauses profiles the API and the consumer under three
// loads, each in a new process.
func benchCauses(b *testing.B, s *sheet) {
	r := newBroker(b)
	st := stores(b)[0]
	s.Facts = []string{r.version(b), st.version(b), wrkVersion(b)}
	loads := []struct {
		file     string
		api      string // the spender's name
		consumer string // likewise; "" is none
		run      func(w *whole, id string) (claims int64)
	}{
		{"claims", spenders[0], "", func(w *whole, id string) int64 { return wrk(b, w.api.addr, id, 50, true).Requests }},
		{"sold-out", spenders[1], "", func(w *whole, id string) int64 {
			w.call(b, "PATCH", "/v1/campaigns/"+id, `{"total":0}`, 200, &struct{}{})
			return wrk(b, w.api.addr, id, 50, true).Requests
		}},
		{"batches", spenders[2], spenders[3], func(w *whole, id string) int64 {
			sendBatches(b, w.api.addr, amount(pipelineClaims), []string{id})
			return w.untilDrained(b, id)
		}},
	}
	for range s.rounds {
		for _, load := range loads {
			folder := cmp.Or(*profilesFlag, b.TempDir())
			api, consumer := filepath.Join(folder, load.file+"-api.pprof"), filepath.Join(folder, load.file+"-consumer.pprof")
			settings := childSettings{Environ: []string{"DIBS_REDIS_URL=" + r.server.URL(), "DIBS_MYSQL_DSN=" + st.dsn, "DIBS_HTTP_ADDR=127.0.0.1:0"}}
			w := &whole{broker: r, store: st, span: wrkSpan()}
			settings.Profile, settings.Role = api, "api"
			w.api = startChild(b, childRole, settings)
			settings.Profile, settings.Role = consumer, "consumer"
			w.consumer = startChild(b, childRole, settings)
			claims := load.run(w, w.create(b))
			w.api.stop()
			w.consumer.stop()
			s.causes(b, load.api, api, claims)
			if load.consumer != "" {
				s.causes(b, load.consumer, consumer, claims)
			}
		}
	}
	s.note("Each sample of a CPU profile counts for the first cause that its stack matches, of those in proof/bench/causes_test.go, in their order.")
}

// causes adds a figure for each cause of a profile.
func (s *sheet) causes(b *testing.B, name, file string, claims int64) {
	b.Helper()
	text, err := os.Open(file)
	require.NoError(b, err)
	defer func() { _ = text.Close() }()
	p, err := profile.Parse(text)
	require.NoError(b, err)
	spent := make(map[string]time.Duration)
	for _, sample := range p.Sample {
		var stack strings.Builder
		for _, at := range sample.Location {
			for _, line := range at.Line {
				stack.WriteString(line.Function.Name + "\n")
			}
		}
		for _, c := range causes {
			if c.stack.MatchString(stack.String()) {
				spent[c.name] += time.Duration(sample.Value[1])
				break
			}
		}
	}
	for _, c := range causes {
		if spent[c.name] > 0 {
			s.add(name+": "+c.name, "µs/claim", perClaim(spent[c.name], claims))
		}
	}
}
