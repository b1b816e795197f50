package bench_test

import (
	"slices"
	"testing"
)

// sheet collects one part's figures: a series with a value per
// round for each figure, and the ratios.
type sheet struct {
	Part    string    `json:"part"`
	About   string    `json:"about"`
	Machine []string  `json:"machine"` // of the measurement
	Facts   []string  `json:"facts"`   // about its servers
	Notes   []string  `json:"notes,omitempty"`
	Series  []*series `json:"figures"`
	Ratios  []*ratio  `json:"ratios,omitempty"`

	rounds int
	series map[string]*series
}

type series struct {
	Name   string    `json:"name"`
	Unit   string    `json:"unit"`
	Values []float64 `json:"values"`
}

// ratio compares two series per round. It is met if its median is on the
// right side of its target. Unit is set for a plain figure with a target.
type ratio struct {
	Name   string    `json:"name"`
	Values []float64 `json:"values"`
	Side   side      `json:"side,omitempty"` // "": no target
	Target float64   `json:"target,omitempty"`
	Unit   string    `json:"unit,omitempty"`
}

type side string

const (
	atLeast side = "≥"
	atMost  side = "≤"
)

func newSheet(part, about string, rounds int) *sheet {
	return &sheet{Part: part, About: about, rounds: rounds, series: make(map[string]*series)}
}

func (s *sheet) add(name, unit string, value float64) {
	one := s.series[name]
	if one == nil {
		one = &series{Name: name, Unit: unit}
		s.series[name] = one
		s.Series = append(s.Series, one)
	}
	one.Values = append(one.Values, value)
}

// note adds a line below the figures, once.
func (s *sheet) note(text string) {
	if !slices.Contains(s.Notes, text) {
		s.Notes = append(s.Notes, text)
	}
}

// ratio compares two series of equal length, and wants at least
// target; 0 is no target.
func (s *sheet) ratio(b testing.TB, name, over, under string, target float64) {
	b.Helper()
	if target == 0 {
		s.compare(b, name, over, under, "", 0)
		return
	}
	s.compare(b, name, over, under, atLeast, target)
}

func (s *sheet) ratioAtMost(b testing.TB, name, over, under string, target float64) {
	b.Helper()
	s.compare(b, name, over, under, atMost, target)
}

func (s *sheet) goal(b testing.TB, name string, is side, target float64) {
	b.Helper()
	x := s.series[name]
	if x == nil {
		b.Fatalf("no figure %q", name)
	}
	s.Ratios = append(s.Ratios, &ratio{Name: name, Values: x.Values, Side: is, Target: target, Unit: x.Unit})
}

func (s *sheet) compare(b testing.TB, name, over, under string, is side, target float64) {
	b.Helper()
	x, y := s.series[over], s.series[under]
	if x == nil || y == nil || len(x.Values) != len(y.Values) {
		b.Fatalf("no ratio of %q and %q: each needs a value a round", over, under)
	}
	r := &ratio{Name: name, Side: is, Target: target}
	for i := range x.Values {
		r.Values = append(r.Values, x.Values[i]/y.Values[i])
	}
	s.Ratios = append(s.Ratios, r)
}

// takeTurns runs the sides in each round, every other round in
// reverse, so that none is always first.
func (s *sheet) takeTurns(sides []func()) {
	for round := range s.rounds {
		order := slices.Clone(sides)
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, side := range order {
			side()
		}
	}
}

// median of at least one value.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return (sorted[half-1] + sorted[half]) / 2
}
