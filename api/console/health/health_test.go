package health

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dibs/internal/softstate"
	"dibs/lua"
)

func checkOf(h *Report, name string) Check {
	checks := h.Checks()
	return checks[slices.IndexFunc(checks, func(c Check) bool { return c.Name == name })]
}

// A group must be judged by the age of its unhandled entries, whatever
// readers are registered.
func TestABacklogIsJudgedByItsAge(t *testing.T) {
	t.Parallel()
	backlog := func(groups ...Group) Check {
		return checkOf(&Report{Streams: []Stream{{Groups: Asked[[]Group]{Known: true, Value: groups}}}}, "Backlog")
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
	require.Equal(t, unknown, checkOf(&Report{Streams: []Stream{{}}}, "Backlog").State)
}

// A gap must be shown with both times and both remedies.
func TestAGapIsSaidOfMySQL(t *testing.T) {
	t.Parallel()
	h := Report{MySQL: Asked[Pool]{Known: true, Value: Pool{Gaps: []string{"partition 0: up to 12:00, and it begins at 13:00", "partition 3: later"}}}}
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
		return checkOf(&Report{Processes: Asked[[]softstate.Process]{Known: true, Value: processes}}, "Consumers")
	}
	require.Equal(t, good, consumers(softstate.Process{Role: "serve"}).State, "an empty installation has no streams yet")
	require.Equal(t, "2 processes of group syncer", consumers(softstate.Process{Role: "consumer"}, softstate.Process{Role: "consumer"}).Text)
	require.Equal(t, bad, consumers(softstate.Process{Role: "consumer", Silent: time.Minute}, softstate.Process{Role: "api"}).State)
	require.Equal(t, unknown, checkOf(&Report{}, "Consumers").State)
}
