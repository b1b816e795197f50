package lab

import (
	"math"
	"strconv"
)

// axis gives values their places, in pixels from left to right.
type axis struct {
	log         bool
	from, to    float64 // at left and at right
	left, right int
}

// ticksAbout is how many parts a linear axis has, more or less.
const ticksAbout = 4

// nearly forgives what a logarithm loses: that of 1,000 is a little less than 3.
const nearly = 1e-9

// newAxis has space for all values: whole powers of ten around those above 0, or from 0 to a round number.
func newAxis(log bool, values []float64, left, right int) axis {
	a := axis{log: log, left: left, right: right}
	least := math.Inf(1)
	most := 0.0
	for _, v := range values {
		most = max(most, v)
		if v > 0 {
			least = min(least, v)
		}
	}
	switch {
	case !log:
		step := roundStep(most / ticksAbout)
		a.to = math.Ceil(most/step-nearly) * step
		a.to = max(a.to, step)
	case most == 0:
		a.from = 1
		a.to = 10
	default:
		a.from = math.Pow(10, math.Floor(math.Log10(least)+nearly))
		a.to = max(math.Pow(10, math.Ceil(math.Log10(most)-nearly)), 10*a.from)
	}
	return a
}

// roundStep is 1, 2 or 5 times a power of ten, no less than least; 1 for nothing.
func roundStep(least float64) float64 {
	if least <= 0 {
		return 1
	}
	ten := math.Pow(10, math.Floor(math.Log10(least)+nearly))
	for _, times := range []float64{1, 2, 5} {
		if times*ten >= least*(1-nearly) {
			return times * ten
		}
	}
	return 10 * ten
}

// x is the place of a value. On a logarithmic axis it must be above 0.
func (a axis) x(v float64) int {
	share := (v - a.from) / (a.to - a.from)
	if a.log {
		share = math.Log(v/a.from) / math.Log(a.to/a.from)
	}
	return a.left + int(math.Round(share*float64(a.right-a.left)))
}

// ticks are the values that the axis names.
func (a axis) ticks() []float64 {
	var all []float64
	if a.log {
		for v := a.from; v <= a.to*(1+nearly); v *= 10 {
			all = append(all, v)
		}
		return all
	}
	step := roundStep(a.to / ticksAbout)
	for i := 0; float64(i)*step <= a.to*(1+nearly); i++ {
		all = append(all, float64(i)*step)
	}
	return all
}

// tickText is a tick in as few digits as it has.
func tickText(v float64) string {
	if v >= 1 && v == math.Trunc(v) {
		return whole(v)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}
