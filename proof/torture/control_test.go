package torture

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/internal/testkit/testenv"
	"dibs/lua"
)

// mutant is a deliberately broken Dibs. If the kit can't find the error
// within a few seeds, it proves nothing about the real one.
type mutant struct {
	name  string
	edits []edit
	only  []string // faults that reveal it; nil: all
	seeds int      // the budget: seeds of 10 faults each
	lossy bool     // it shows in rounds that may lose claims
	short bool     // everyday runs try it, too
}

var allMutants = []mutant{
	{name: "the offset is moved before the rows are written", seeds: 3, only: []string{"kill consumer"}, edits: []edit{
		{"syncer/apply/apply.go", "\ts.steps.At(\"begin\")\n",
			"\ts.steps.At(\"begin\")\n\t_ = offset.Store(ctx, s.db, stepsOf(b.Streams...), a.started)\n"},
		{"syncer/apply/apply.go", "return offset.Lock(a.tx, stepsOf(a.b.Streams...))", "return nil"},
	}},
	{name: "a claim that is sent again claims again", seeds: 1, only: []string{"spoil a wire"}, edits: []edit{
		{"internal/redisconn/connect.go", "MaxRetries: -1, ", "MaxRetries: 3, "},
		{"lua/claim.lua", "local claim = known[i] or key_here[key]", "local claim = key_here[key]"},
	}},
	{name: "sold out is remembered over a restock", seeds: 2, only: []string{"kill finance"}, edits: []edit{
		{"api/claiming/sold_out.go", "const soldOutFor = 50 * time.Millisecond", "const soldOutFor = 5 * time.Second"},
		{"api/claiming/sold_out.go", "	default:\n		s.known.Store(nil)\n	}", "	}"},
	}},
	{name: "a key of the stock expires, and an unproven load follows", seeds: 3, only: []string{"kill consumer", "cut all wires to sql"}, edits: []edit{
		{"lua/claim.lua", "redis.call('HSET', keys_key, unpack(new_keys))",
			"redis.call('HSET', keys_key, unpack(new_keys))\nredis.call('PEXPIRE', state_key, 800, 'NX')"},
		{"syncer/lots/loader.go", "l.applied.AwaitPartitions(ctx, partitions)", "l.applied.AwaitPartitions(ctx, partitions[:0])"},
		{"syncer/lots/rows.go", "sold := max(c.SeenUnits, known.units+c.GivenUpUnits)", "sold := known.units + c.GivenUpUnits"},
		{"syncer/lots/rows.go", "seq := max(c.SeenSeq, known.highest,", "seq := max(known.highest,"},
		{"lua/claim.lua", "if epoch_here < tonumber(ARGV[9]) or seq < tonumber(ARGV[10]) or sold < tonumber(ARGV[11]) then", "if false then"},
	}},
	{name: "the trimmer goes by the fastest group", seeds: 1, only: []string{"kill finance"}, edits: []edit{
		{"syncer/retention/trimmer.go", "needed.Less(first)", "first.Less(needed)"},
		{"syncer/retention/trimmer.go", "uint64(t.Keep.Milliseconds())", "0"},
	}},
	{name: "entries are trimmed that MySQL has not applied", seeds: 2, only: []string{"kill consumer", "cut all wires to sql"}, edits: []edit{
		{"syncer/retention/trimmer.go", "\tfirst := applied\n", "\tfirst := stream.Tip\n"},
		{"syncer/retention/trimmer.go", "uint64(t.Keep.Milliseconds())", "0"},
		{"syncer/retention/trimmer.go", "if young.Less(first) {", "if false {"},
	}},
	{name: "a rollback is not compared", seeds: 5, lossy: true, only: []string{"roll back redis", "kill consumer"}, edits: []edit{{
		"lua/claim.lua",
		"if epoch_here < tonumber(ARGV[9]) or seq < tonumber(ARGV[10]) or sold < tonumber(ARGV[11]) then", "if false then",
	}}},
	{name: "a release gives nothing back", seeds: 1, only: []string{"kill finance"}, edits: []edit{{
		"lua/release.lua", "  taken = taken - quantity\n", "",
	}}},
	{name: "the last unit is sold to who wants two", seeds: 1, only: []string{"kill finance"}, edits: []edit{{
		"lua/claim.lua", "if quantity > remaining then answer = dry break end",
		"if remaining < 1 then answer = dry break end",
	}}},
	{name: "a load waits until nothing changes", seeds: 3, only: []string{"delete a key"}, edits: []edit{{
		"syncer/offset/streams.go", "\t\tleft, err = a.behind(ctx, tips, left)\n",
		"\t\ttips, _ = a.scripts.Tips(ctx, partitions)\n\t\tleft, err = a.behind(ctx, tips, left)\n",
	}}},
	{name: "a MySQL that was restored is not noticed", seeds: 1, lossy: true, only: []string{"roll back sql"}, edits: []edit{
		{"syncer/offset/offset.go", "moved.Lost = append(moved.Lost, s.Partition)", "_ = moved.Lost"},
		{"syncer/writer/writer.go", "offsets[e.Partition] != e.Upto", "false"},
	}},
	{name: "a process ends when Redis is away as it starts", seeds: 3, only: []string{"kill api", "kill redis"}, edits: []edit{{
		"internal/process/redis.go", "return redisconn.MayPass(err) && ", "return false && ",
	}}},
	{name: "an API is not ready while MySQL is away", seeds: 3, short: true, only: []string{"pause sql", "cut all wires to sql"}, edits: []edit{{
		"api/health.go", "readyAndAway(ctx)\n\tif err != nil {", "readyAndAway(ctx)\n\tif err != nil || len(away) > 0 {",
	}}},
	{name: "a flush of many claims counts one unit too many", seeds: 1, only: []string{"kill consumer"}, edits: []edit{{
		"syncer/sums/flushes.go", "lots.claimed = lots.claimed + f.units", "lots.claimed = lots.claimed + f.units + (f.claims > 5)",
	}}},
}

// Each mutant must be caught within its budget. Everyday runs
// try one, and check all texts to be changed.
func TestMutantsAreCaught(t *testing.T) {
	t.Parallel()
	for _, m := range allMutants {
		t.Run(m.name, func(t *testing.T) {
			if !m.short && !testenv.Soak() {
				root, err := filepath.Abs("../..")
				require.NoError(t, err)
				overlay(t, root, m.edits)
				return
			}
			m.requireCaught(t)
		})
	}
}

func (m *mutant) requireCaught(t *testing.T) {
	t.Helper()
	binary := build(t, m.edits...)
	for seed := range m.seeds {
		report := torture(t, Options{
			Binary: binary, Seed: uint64(seed), Faults: 10, Only: m.only, Lossless: !m.lossy, Durability: lua.Fsync,
		})
		if len(report.Broken) > 0 {
			t.Logf("caught with seed %d after %d faults: %s", seed, len(report.Faults), report.Broken[0])
			return
		}
	}
	require.Fail(t, "no one noticed", "%d seeds", m.seeds)
}
