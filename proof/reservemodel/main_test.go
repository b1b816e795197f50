package reservemodel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/internal/testenv"
)

func bounds(change func(*protocol)) *protocol {
	p := &protocol{MaxCrashes: 1, MaxRestores: 1, MaxEvictions: 1, MaxDebits: 2, Total: 2, Users: 3}
	change(p)
	return p
}

// Each rule that is left out leads to units that are sold twice or never, or to a campaign that is told sold out while units are free.
func TestEachRuleIsNeeded(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]*protocol{
		"a credit waits until the debit is safe": bounds(func(p *protocol) { p.NoWait, p.NoFloors, p.NoLoadFloors = true, true, true }),
		"a recall waits until the debit is safe": bounds(func(p *protocol) {
			p.NoWaitOfRecalls, p.Total, p.Users, p.MaxRestores, p.MaxEvictions = true, 1, 2, 0, 0
		}),
		"a credit comes from the giver's redis": bounds(func(p *protocol) { p.CreditFromSQL = true; p.MaxRestores, p.MaxEvictions = 0, 0 }),
		"a credit is cumulative":                bounds(func(p *protocol) { p.CreditAdds = true; p.MaxRestores, p.MaxEvictions = 0, 0 }),
		"a rebuild keeps redis' own debits":     bounds(func(p *protocol) { p.SQLWins = true; p.MaxRestores, p.MaxEvictions = 0, 0 }),
		"a load respects the tombstone":         bounds(func(p *protocol) { p.NoTombstone = true; p.MaxCrashes = 0 }),
		"a tombstone counts transfers":          bounds(func(p *protocol) { p.TombstoneOfClaims = true; p.MaxCrashes = 0 }),
		"in fast, a giver learns what it lost":  bounds(func(p *protocol) { p.Fast, p.NoFloors, p.NoLoadFloors = true, true, true }),
		"sold out takes two reads":              bounds(func(p *protocol) { p.OneRead = true }),
		"sold out counts units in flight":       bounds(func(p *protocol) { p.FlightIgnored = true; p.MaxCrashes, p.MaxRestores, p.MaxEvictions = 0, 0, 0 }),
		"sold out wants the same servers":       bounds(func(p *protocol) { p.AnyServer = true; p.MaxReleases, p.MaxRestores, p.MaxEvictions = 1, 0, 0 }),
		"sold out wants that none became free": bounds(func(p *protocol) {
			p.NoUps = true
			p.MaxReleases, p.MaxCrashes, p.MaxRestores, p.MaxEvictions = 1, 0, 0, 0
		}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := explore(p, 20_000)
			for _, seed := range []uint64{11, 1} { // with which rules are soon found to be missing
				if found.broken == "" {
					found = walk(p, 600_000, seed)
				}
			}
			require.NotEmpty(t, found.broken, "%d states or steps", found.states)
			t.Logf("%s\n%s", found.broken, found.path)
		})
	}
}

// With all rules no interleaving within the bounds sells a unit twice or loses one.
func TestNoUnitIsSoldTwiceOrLost(t *testing.T) {
	t.Parallel()
	states, steps := 20_000, 50_000
	if testenv.Soak() {
		states, steps = 300_000, 6_000_000
	}
	for name, p := range map[string]*protocol{
		"fsync":                 bounds(func(*protocol) {}),
		"fsync, more faults":    bounds(func(p *protocol) { p.MaxCrashes, p.MaxEvictions, p.MaxDebits = 2, 2, 3 }),
		"fsync, a release":      bounds(func(p *protocol) { p.MaxReleases, p.MaxRestores, p.MaxEvictions = 1, 0, 0 }),
		"fsync, shard to shard": bounds(func(p *protocol) { p.Pairs = true; p.MaxCrashes, p.MaxDebits = 2, 3 }),
		"fast":                  bounds(func(p *protocol) { p.Fast = true; p.MaxCrashes, p.MaxDebits = 2, 3 }),
		"fast, data gone":       bounds(func(p *protocol) { p.Fast, p.Loss, p.Pairs = true, true, true; p.MaxCrashes, p.MaxDebits = 2, 3 }),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := explore(p, states)
			require.Empty(t, found.broken, found.path)
			found = walk(p, steps, 1)
			require.Empty(t, found.broken, found.path)
		})
	}
}

// Small bounds are searched in full.
func TestSmallBoundsAreComplete(t *testing.T) {
	t.Parallel()
	small := func(fast bool, crashes, restores, evictions uint8) *protocol {
		return &protocol{Fast: fast, MaxCrashes: crashes, MaxRestores: restores, MaxEvictions: evictions, MaxDebits: 1, Total: 1, Users: 2}
	}
	all := map[string]*protocol{"fsync, a crash": small(false, 1, 0, 0)}
	if testenv.Soak() {
		all["fsync, a restore and an eviction"] = small(false, 0, 1, 1)
		all["fast, a crash"] = small(true, 1, 0, 0)
	}
	for name, p := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := explore(p, 30_000_000)
			require.Empty(t, found.broken, found.path)
			require.True(t, found.complete)
			t.Logf("%d states", found.states)
		})
	}
}

func packetBounds(change func(*packetProtocol)) *packetProtocol {
	p := &packetProtocol{MaxCrashes: 1, MaxDebits: 3}
	change(p)
	return p
}

// Each rule for packets that is left out leads to a packet that two users have, or that no one can ever have.
func TestEachRuleForPacketsIsNeeded(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]*packetProtocol{
		"a credit waits until the debit is safe":    packetBounds(func(p *packetProtocol) { p.NoWait = true }),
		"a load removes what peers were credited":   packetBounds(func(p *packetProtocol) { p.Loss, p.NoFloors = true, true }),
		"a load waits for the credits of its peers": packetBounds(func(p *packetProtocol) { p.Loss, p.UnbookedFloors = true, true }),
		"a credit is of the giver's last load":      packetBounds(func(p *packetProtocol) { p.Loss, p.AnyLoad = true, true }),
		"a rebuild keeps redis' own debits":         packetBounds(func(p *packetProtocol) { p.SQLWins = true }),
		"a load respects the tombstone": packetBounds(func(p *packetProtocol) {
			p.NoTombstone, p.MaxCrashes, p.MaxRestores, p.MaxEvictions = true, 0, 1, 1
		}),
		"rows that are missing between others come back": packetBounds(func(p *packetProtocol) {
			p.TailOnly, p.OneMover = true, true
			p.MaxCrashes, p.MaxRestores, p.MaxEvictions, p.MaxDebits = 0, 1, 1, 2
		}),
		"a load begins again with what its copy counts": packetBounds(func(p *packetProtocol) {
			p.ForgetsFirstRound, p.OneMover = true, true
			p.MaxCrashes, p.MaxRestores, p.MaxFences, p.MaxDebits = 0, 1, 2, 1
		}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := explore(p, 100_000)
			if found.broken == "" {
				found = walk(p, 2_000_000, 1)
			}
			require.NotEmpty(t, found.broken, "%d states or steps", found.states)
			t.Logf("%s\n%s", found.broken, found.path)
		})
	}
}

// With all rules each packet has one owner, and the amounts add up.
func TestEachPacketHasOneOwner(t *testing.T) {
	t.Parallel()
	states, steps := 20_000, 50_000
	if testenv.Soak() {
		states, steps = 1_000_000, 3_000_000
	}
	for name, p := range map[string]*packetProtocol{
		"crashes":                   packetBounds(func(p *packetProtocol) { p.MaxCrashes = 2 }),
		"data gone":                 packetBounds(func(p *packetProtocol) { p.Loss, p.GrantsOnly = true, true }),
		"a restore and an eviction": packetBounds(func(p *packetProtocol) { p.MaxRestores, p.MaxEvictions = 1, 1 }),
		"a restore and loads":       packetBounds(func(p *packetProtocol) { p.MaxCrashes, p.MaxRestores, p.MaxEvictions, p.MaxFences = 0, 1, 1, 2 }),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := explore(p, states)
			require.Empty(t, found.broken, found.path)
			t.Logf("%d states, complete: %v", found.states, found.complete)
			found = walk(p, steps, 1)
			require.Empty(t, found.broken, found.path)
		})
	}
}

// Small bounds for packets are searched in full.
func TestSmallBoundsForPacketsAreComplete(t *testing.T) {
	t.Parallel()
	all := map[string]*packetProtocol{
		"a crash, 2 debits":             {MaxCrashes: 1, MaxDebits: 2},
		"a restore and a load, 1 mover": {MaxRestores: 1, MaxFences: 1, MaxDebits: 1, OneMover: true},
	}
	if testenv.Soak() {
		all["a crash, 3 debits"] = &packetProtocol{MaxCrashes: 1, MaxDebits: 3}
		all["a restore and an eviction, 1 mover"] = &packetProtocol{MaxRestores: 1, MaxEvictions: 1, MaxDebits: 1, OneMover: true}
		all["data gone, 2 debits"] = &packetProtocol{MaxCrashes: 1, Loss: true, GrantsOnly: true, MaxDebits: 2}
	}
	for name, p := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := explore(p, 30_000_000)
			require.Empty(t, found.broken, found.path)
			require.True(t, found.complete)
			t.Logf("%d states", found.states)
		})
	}
}
