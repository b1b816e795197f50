package reservemodel

import (
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"strings"
)

// step is a state and how it was reached.
type step[S comparable] struct {
	state S
	label label
}

// label is the text of a step, formatted when it is printed: most never are.
type label struct {
	format  string
	a, b, c uint8
}

func (l label) String() string {
	return strings.NewReplacer("$a", fmt.Sprint(l.a), "$b", fmt.Sprint(l.b), "$c", fmt.Sprint(l.c)).Replace(l.format)
}

// system is what can be explored.
type system[S comparable] interface {
	start() S
	steps(s S) []step[S]
	broken(s *S) string // the invariant that a state breaks; "" is none
}

// result says what a search found.
type result struct {
	states   int
	complete bool // all states within the bounds were visited
	broken   string
	path     string // to the broken state
}

// explore visits states breadth first, up to most of them.
func explore[S comparable](sys system[S], most int) (r result) {
	type from struct {
		previous int32
		label    label
	}
	seed := maphash.MakeSeed()
	first := sys.start()
	seen := map[uint64]struct{}{maphash.Comparable(seed, first): {}}
	back := []from{{previous: -1}}
	front, base := []S{first}, 0
	for len(front) > 0 {
		var ahead []S
		for i := range front {
			for _, n := range sys.steps(front[i]) {
				hash := maphash.Comparable(seed, n.state)
				if _, known := seen[hash]; known {
					continue
				}
				seen[hash] = struct{}{}
				ahead, back = append(ahead, n.state), append(back, from{previous: int32(base + i), label: n.label})
				if r.broken = sys.broken(&n.state); r.broken != "" {
					var labels []string
					for at := int32(len(back) - 1); at > 0; at = back[at].previous {
						labels = append(labels, back[at].label.String())
					}
					slices.Reverse(labels)
					r.states, r.path = len(seen), strings.Join(labels, "; ")
					return r
				}
			}
			if len(seen) > most {
				r.states = len(seen)
				return r
			}
		}
		base += len(front)
		front = ahead
	}
	r.states, r.complete = len(seen), true
	return r
}

// walkLength is how many steps a random walk takes before it starts again.
const walkLength = 90

// walk takes random steps.
func walk[S comparable](sys system[S], steps int, seed uint64) (r result) {
	random := rand.New(rand.NewPCG(seed, 1))
	for r.states < steps {
		s := sys.start()
		var path []step[S]
		for range walkLength {
			all := sys.steps(s)
			if len(all) == 0 {
				break
			}
			next := all[random.IntN(len(all))]
			s, path, r.states = next.state, append(path, next), r.states+1
			if r.broken = sys.broken(&s); r.broken != "" {
				r.path = strings.Join(shorten(sys, path), "; ")
				return r
			}
		}
	}
	return r
}

// replay takes the steps with some labels, and returns after how many an invariant is broken; 0 is none.
func replay[S comparable](sys system[S], path []step[S]) int {
	s := sys.start()
	for k := range path {
		all := sys.steps(s)
		at := slices.IndexFunc(all, func(n step[S]) bool { return n.label == path[k].label })
		if at < 0 {
			return 0
		}
		if s = all[at].state; sys.broken(&s) != "" {
			return k + 1
		}
	}
	return 0
}

// shorten leaves out steps as long as the path still breaks an invariant.
func shorten[S comparable](sys system[S], path []step[S]) (labels []string) {
	for again := true; again; {
		again = false
		for width := 4; width > 0; width-- {
			for at := 0; at+width <= len(path); {
				less := slices.Concat(path[:at], path[at+width:])
				if k := replay(sys, less); k > 0 {
					path, again = less[:k], true
				} else {
					at++
				}
			}
		}
	}
	for i := range path {
		labels = append(labels, path[i].label.String())
	}
	return labels
}
