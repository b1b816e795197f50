package bench_test

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"dibs/cmd"
	"dibs/internal/testkit/testenv"
)

var (
	roundsFlag = flag.Int("rounds", 3, "rounds of each comparison")
	writeFlag  = flag.Bool("write", false, "put the figures into proof/bench/results.json and docs/bench.md")
	jsonFlag   = flag.String("json", "", "a file to write the figures to")

	profilesFlag = flag.String("profiles", "", "a folder that keeps the CPU profiles of part causes")
)

// TestMain also runs the benchmark's child processes, see child_test.go.
func TestMain(m *testing.M) {
	cmd.Tune() // as main does, also for the no-op handler
	if name := os.Getenv(childVariable); name != "" {
		if err := runChild(name); err != nil {
			fmt.Fprintln(os.Stderr, "bench: child:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	testenv.Main(m)
}

// parts are the benchmark's parts, in the order of docs/bench.md.
var parts = []struct {
	name  string
	about string
	run   func(b *testing.B, s *sheet)
}{
	{"script", "The claim script against the article's script", benchScript},
	{"http", "The HTTP API against a handler that does nothing", benchHTTP},
	{"tokens", "What a user's own token costs over HTTP", benchTokens},
	{"durability", "What a durable answer costs over HTTP", benchDurability},
	{"books", "From the stream into MySQL", benchBooks},
	{"whole", "The whole: claims over HTTP while they are brought into MySQL", benchWhole},
	{"pipeline", "Claims in batches over HTTP into MySQL, against the article's script", benchPipeline},
	{"causes", "Where the processor time of the API and the consumer goes", benchCauses},
	{"many", "Ten thousand campaigns of which nothing is asked, and their first claims", benchMany},
	{"growth", "Larger campaigns, and more of them at once", benchGrowth},
	{"client", "Claims that share requests in the Go client", benchClient},
	{"holds", "Claims over HTTP while a year of holds ends", benchHolds},
	{"overview", "The console's first page over ten thousand campaigns, and claims beside it", benchOverview},
	{"shards", "A campaign of four shards, sold out over four Redis primaries", benchShards},
	{"residency", "Stock in and out of Redis", benchResidency},
	{"packets", "Red packets against the article's script", benchPackets},
	{"finance", "From the stream into accounts", benchFinance},
	{"webhooks", "From an event to an HTTP endpoint", benchWebhooks},
	{"ledger", "A ledger out of MySQL over HTTP", benchLedger},
	{"beside", "Claims over HTTP while others follow them", benchBeside},
	{"memory", "Redis memory", benchMemory},
}

// BenchmarkDibs runs each part once, regardless of -benchtime,
// and ends with all tables.
func BenchmarkDibs(b *testing.B) {
	var sheets []*sheet
	load := loadBefore()
	for _, part := range parts {
		s := newSheet(part.name, part.about, max(1, *roundsFlag))
		b.Run(part.name, func(b *testing.B) {
			b.ReportMetric(0, "ns/op") // says nothing here
			if len(s.series) == 0 {
				part.run(b, s)
				s.noteLoad(load)
			}
		})
		if len(s.series) > 0 && !b.Failed() {
			sheets = append(sheets, s)
		}
	}
	if len(sheets) > 0 {
		publish(b, sheets)
	}
}

func span(long time.Duration) time.Duration {
	if testing.Short() {
		return max(long/10, 200*time.Millisecond)
	}
	return long
}

// amount is how much a side does in one round.
func amount(long int) int {
	if testing.Short() {
		return long / 10
	}
	return long
}
