package steps_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/internal/steps"
)

func TestSteps_TellTheObserverFromThenOn(t *testing.T) {
	t.Parallel()
	var s steps.Steps
	s.At("before")
	var seen []string
	s.Observe(func(name string) { seen = append(seen, name) })
	s.At("begun")
	s.At("committed")
	s.Observe(nil)
	s.At("after")
	require.Equal(t, []string{"begun", "committed"}, seen)
}
