package console

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/lua"
)

// An installation without red packets needs no group finance: the page says what to do about it, and not in red.
func TestAGroupThatNobodyReadsIsNoDisaster(t *testing.T) {
	t.Parallel()
	healthOf := func(groups ...Group) *Health {
		return &Health{Streams: []Stream{{Groups: Asked[[]Group]{Known: true, Value: groups}}}}
	}
	consumers := func(h *Health) Check {
		checks := h.Checks()
		return checks[slices.IndexFunc(checks, func(c Check) bool { return c.Name == "Consumers" })]
	}
	running := []lua.Consumer{{Name: "one", Holds: true}}
	syncer := Group{Group: lua.Group{Name: "syncer"}, Consumers: running}
	finance := func(backlog int64, consumers ...lua.Consumer) Group {
		return Group{Group: lua.Group{Name: "finance", Backlog: backlog}, Consumers: consumers}
	}
	require.Equal(t, good, consumers(healthOf(syncer, finance(0))).State, "nothing waits for it")
	waits := consumers(healthOf(syncer, finance(5)))
	require.Equal(t, warn, waits.State)
	require.Contains(t, waits.Text, "leave finance out of DIBS_GROUPS if you hand out no red packets")
	require.Equal(t, good, consumers(healthOf(syncer, finance(5, lua.Consumer{Name: "a program of others"}))).State)
	require.Equal(t, bad, consumers(healthOf(Group{Group: lua.Group{Name: "syncer"}}, finance(0))).State, "control: no row reaches MySQL")
	require.Equal(t, unknown, consumers(&Health{Streams: []Stream{{}}}).State)
}
