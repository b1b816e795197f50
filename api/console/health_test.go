package console

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/softstate"
	"dibs/lua"
)

func checkOf(h *Health, name string) Check {
	checks := h.Checks()
	return checks[slices.IndexFunc(checks, func(c Check) bool { return c.Name == name })]
}

// A group must be judged by the age of its unhandled entries, whatever
// readers are registered.
func TestABacklogIsJudgedByItsAge(t *testing.T) {
	t.Parallel()
	backlog := func(groups ...Group) Check {
		return checkOf(&Health{Streams: []Stream{{Groups: Asked[[]Group]{Known: true, Value: groups}}}}, "Backlog")
	}
	dead := []lua.Consumer{{Name: "a process that ended", Pending: 1}}
	group := func(name string, waits time.Duration) Group {
		return Group{Group: lua.Group{Name: name, Backlog: 5}, Waits: waits, Consumers: dead}
	}
	require.Equal(t, good, backlog().State, "an empty installation")
	require.Equal(t, good, backlog(group("webhooks", 30*time.Second)).State)
	late := backlog(group("syncer", time.Second), group("webhooks", 11*time.Minute))
	require.Equal(t, warn, late.State)
	require.Contains(t, late.Text, "group webhooks has waited 11m")
	require.Contains(t, backlog(group("finance", 2*time.Minute)).Text, "remove the group if you hand out no red packets")
	require.Equal(t, bad, backlog(group("finance", 2*time.Hour), group("webhooks", 2*time.Minute)).State)
	require.Equal(t, warn, backlog(group("syncer", 11*time.Second)).State)
	require.Equal(t, bad, backlog(group("aaa", 2*time.Minute), group("syncer", 2*time.Minute)).State, "the worst is said")
	require.Equal(t, unknown, checkOf(&Health{Streams: []Stream{{}}}, "Backlog").State)
}

// A gap must be shown with both times and both remedies.
func TestAGapIsSaidOfMySQL(t *testing.T) {
	t.Parallel()
	h := Health{MySQL: Asked[Pool]{Known: true, Value: Pool{Gaps: []string{"partition 0: up to 12:00, and it begins at 13:00", "partition 3: later"}}}}
	check := checkOf(&h, "MySQL")
	require.Equal(t, bad, check.State)
	require.Contains(t, check.Text, "up to 12:00, and it begins at 13:00 and 1 other. Roll MySQL's binary log forward")
	require.Contains(t, check.Text, "--accept-gap")
	h.MySQL.Value.Gaps = nil
	require.Equal(t, good, checkOf(&h, "MySQL").State)
}

func TestConsumersAreProcessesThatAnnounceThemselves(t *testing.T) {
	t.Parallel()
	consumers := func(processes ...softstate.Process) Check {
		return checkOf(&Health{Processes: Asked[[]softstate.Process]{Known: true, Value: processes}}, "Consumers")
	}
	require.Equal(t, good, consumers(softstate.Process{Role: "serve"}).State, "an empty installation has no streams yet")
	require.Equal(t, "2 processes of group syncer", consumers(softstate.Process{Role: "consumer"}, softstate.Process{Role: "consumer"}).Text)
	require.Equal(t, bad, consumers(softstate.Process{Role: "consumer", Silent: time.Minute}, softstate.Process{Role: "api"}).State)
	require.Equal(t, unknown, checkOf(&Health{}, "Consumers").State)
}

func TestMoneyIsWrittenAndReadInItsCurrency(t *testing.T) {
	t.Parallel()
	for amount, want := range map[int64]string{0: "0.00 EUR", 5: "0.05 EUR", 125: "1.25 EUR", 8_888_800: "88,888.00 EUR", -125: "−1.25 EUR"} {
		require.Equal(t, want, money(amount, "EUR"))
	}
	for code, want := range map[string]string{
		"JPY": "1,234,567 JPY", "IDR": "12,345.67 IDR", "BHD": "1,234.567 BHD", "CLF": "123.4567 CLF",
		"": "1,234,567 minor units", "XAU": "1,234,567 minor units of XAU",
	} {
		require.Equal(t, want, money(1_234_567, code))
	}
	for text, want := range map[string]int64{"1.25": 125, "1.2": 120, "1": 100, "0.05": 5, "88888": 8_888_800} {
		minor, ok := parseMoney(text, "EUR")
		require.True(t, ok, text)
		require.Equal(t, want, minor, text)
	}
	for _, text := range []string{"", ".5", "1,25", "1.255", "-1", "+1", "1e3", "99999999999999999999"} {
		_, ok := parseMoney(text, "EUR")
		require.False(t, ok, text)
	}
	for code, want := range map[string]int64{"JPY": 100_000, "IDR": 10_000_000, "KWD": 100_000_000, "UYW": 1_000_000_000, "": 100_000} {
		minor, ok := parseMoney("100000", code)
		require.True(t, ok, code)
		require.Equal(t, want, minor, code)
	}
	_, ok := parseMoney("1.5", "JPY")
	require.False(t, ok)
}
