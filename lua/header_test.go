package lua_test

import (
	"context"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"dibs/lua"
	"dibs/models"
)

// header is the comment that a script opens with; body is the rest.
func header(source string) (head, body string) {
	end := strings.Index(source, "\nlocal ")
	return source[:end], source[end:]
}

func numbers(t *testing.T, pattern, text string) []int {
	t.Helper()
	var found []int
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		n, err := strconv.Atoi(m[1])
		require.NoError(t, err)
		if !slices.Contains(found, n) {
			found = append(found, n)
		}
	}
	slices.Sort(found)
	return found
}

func upTo(from, to int) []int {
	var all []int
	for n := from; n <= to; n++ {
		all = append(all, n)
	}
	return all
}

// calls records what the Go callers send.
type calls struct{ heard func(cmd redis.Cmder) }

func (c *calls) DialHook(next redis.DialHook) redis.DialHook { return next }
func (c *calls) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
func (c *calls) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.heard(cmd)
		return next(ctx, cmd)
	}
}

// callsOf sends each script once, claim with two claims. It returns the
// numbers of KEYS and ARGV by script.
func callsOf(t *testing.T) (keys, argv map[string]int) {
	t.Helper()
	// fresh: each script is sent by EVAL, in full
	rdb := connect(t, "redis://"+miniredis.RunT(t).Addr())
	var sent [][]any
	rdb.AddHook(&calls{func(cmd redis.Cmder) {
		if cmd.Name() == "eval" {
			sent = append(sent, cmd.Args())
		}
	}})
	b := newBundle(t, rdb, nil)
	b.claim(want("u", 1, ""), want("v", 1, "k"))
	packets := newPackets(t, rdb)
	packets.push(0, "a", 1, "b", 1)
	require.NoError(t, rdb.ScriptFlush(t.Context()).Err())
	packets.claim(want("u", 1, ""), want("v", 1, "k"))
	_, err := b.s.Adjust(t.Context(), b.c, nil)
	require.NoError(t, err)
	_, err = b.s.Release(t.Context(), b.c, []lua.Release{b.released(want("u", 1, ""), 1, noon), b.released(want("v", 1, "k"), 2, noon)})
	require.NoError(t, err)
	shards := newShards(t, rdb, 10)
	_, err = shards.debit("m", 1, 2, 1)
	require.NoError(t, err)
	_, err = shards.credit("m", 2, 1, 1)
	require.NoError(t, err)
	_, err = b.fence("one", lua.FenceAny)
	require.NoError(t, err)
	require.NoError(t, b.s.Resume(t.Context(), &lua.Load{Campaign: b.c, Token: "one", Sold: 2}))
	require.NoError(t, b.s.Pause(t.Context(), []string{b.c.ID}, &lua.Pause{ID: "p"})[0])
	_, _, err = b.s.NextGeneration(t.Context(), 0, 1)
	require.NoError(t, err)
	_, errs := b.s.Evict(t.Context(), []models.Campaign{*b.c}, time.Second)
	require.NoError(t, errs[0])
	keys, argv = map[string]int{}, map[string]int{}
	for name, source := range lua.Sources() {
		for _, args := range sent {
			if args[1] == source {
				keys[name] = args[2].(int)
				argv[name] = len(args) - 3 - keys[name]
			}
		}
	}
	require.Len(t, keys, len(lua.Sources()))
	return keys, argv
}

func TestHeadersAgreeWithTheGoCallers(t *testing.T) {
	t.Parallel()
	keys, argv := callsOf(t)
	for name, source := range lua.Sources() {
		head, body := header(source)
		require.True(t, strings.HasPrefix(head, "-- "+name+".lua "), "%s: says its name and purpose", name)
		require.Equal(t, upTo(1, keys[name]), numbers(t, `(?m)^-- KEYS\[(\d+)\] \w+ +(?:hash|stream|string|zset|list|set) `, head), "%s: KEYS", name)
		require.Equal(t, upTo(1, keys[name]), numbers(t, `KEYS\[(\d+)\]`, body), "%s: KEYS in the body", name)
		require.Equal(t, keys[name], strings.Count(body, "KEYS["), "%s: each key is named once, at once", name)
		_, replies, found := strings.Cut(head, "-- Reply")
		require.True(t, found, "%s: replies", name)
		require.ElementsMatch(t, lua.Statuses()[name], numbers(t, `\{(\d+)`, replies), "%s: replies", name)
		for _, status := range numbers(t, `return \{(\d+)`, body) {
			require.Contains(t, lua.Statuses()[name], status, "%s: a reply that the header and Go know", name)
		}
	}
	for name, n := range map[string]int{
		"claim": 13 + 2*6, "release": 2 * 8, "push": 5 + 2, "pause": 4, "fence": 2, "evict": 5, "resume": 7, "generation": 3, "state": 0,
		"debit": 6, "credit": 5,
	} {
		require.Equal(t, n, argv[name], name)
	}
	require.Equal(t, []int{1, 1}, []int{argv["adjust"] % 2, argv["load"] % 2}, "thirteen and nine, then pairs")
	for name, documented := range map[string][]int{"adjust": {1, 2, 3, 4, 5, 13, 14}, "load": upTo(1, 10), "push": upTo(1, 6)} {
		head, _ := header(lua.Sources()[name])
		require.Equal(t, documented, numbers(t, `ARGV\[(\d+)`, head), name)
	}
	for text, name := range map[string]string{
		"FIRST_CLAIM, PER_CLAIM, DAYS = 14, 6, 5\n": "claim", "-- ARGV[14..]  six a claim, in columns,": "claim",
		"FIRST_CLAIM, PER_CLAIM = 1, 8\n": "release", "-- ARGV[1..]  eight a claim:": "release",
		"FIXED, DEFINITION, FIRST_PAIR = tonumber(ARGV[1]), 5, 13, 14\n": "adjust",
	} {
		require.Contains(t, lua.Sources()[name], text)
	}
}

func TestClaimCodesAgreeWithTheGoCaller(t *testing.T) {
	t.Parallel()
	head, _ := header(lua.Sources()["claim"])
	var said []string
	for i, m := range regexp.MustCompile(`(?:--   |· )(\d+) (\w+)`).FindAllStringSubmatch(head, -1) {
		require.Equal(t, strconv.Itoa(i), m[1])
		said = append(said, m[2])
	}
	var known []string
	for _, outcome := range lua.ClaimOutcomes() {
		known = append(known, string(outcome))
	}
	require.Equal(t, known, said)
}

// The first argument of every command is a local
// that names KEYS, or the command has no key.
func TestScriptsTouchOnlyTheirKeys(t *testing.T) {
	t.Parallel()
	call := regexp.MustCompile(`redis\.p?call\('([A-Z]+)'(?:, ('[A-Z]+'|[a-z_]+))?(?:, ([a-z_]+))?`)
	for name, source := range lua.Sources() {
		_, body := header(source)
		var names []string
		for _, named := range regexp.MustCompile(`(?m)^local ([a-z_, ]+) = ((?:KEYS\[\d+\](?:, )?)+)`).FindAllStringSubmatch(body, -1) {
			names = append(names, strings.Split(named[1], ", ")[:strings.Count(named[2], "KEYS[")]...)
		}
		require.NotEmpty(t, names, name)
		if slices.Contains(names, "waves_key") {
			// named by waves: with the partition's tag, as Go made it
			names = append(names, "list")
		}
		found := call.FindAllStringSubmatch(body, -1)
		require.Len(t, found, strings.Count(body, "redis."), "%s: no other way to Redis", name)
		for _, m := range found {
			key := m[2]
			if m[1] == "TIME" || m[1] == "TYPE" && key == "key" {
				continue // type_of is only ever called on the locals, see below
			}
			require.Contains(t, names, key, "%s: %s", name, m[0])
		}
		for _, m := range regexp.MustCompile(`[^n] type_of\((\w+)\)`).FindAllStringSubmatch(body, -1) {
			require.Contains(t, names, m[1], name)
		}
	}
}
