package shards

import (
	"dibs/lua"
	"dibs/models"
)

func (m *Mover) Observe(observe func(step string)) { m.steps.Observe(observe) }

// Lowering returns how many units each shard gives when units leave the
// total, and whether users have them.
func Lowering(units int64, views ...lua.ShardView) (parts []int64, taken bool) {
	p := &snapshot{views: views}
	parts = make([]int64, len(views))
	debits := p.lowering(units)
	if len(debits) == 0 {
		debits = p.lowerTaken(units)
	}
	for _, d := range debits {
		parts[d.from-1] = d.units
		taken = taken || d.taken
	}
	return parts, taken
}

func Gathering(need models.Need, views ...lua.ShardView) (parts []int64) {
	p := &snapshot{views: views}
	parts = make([]int64, len(views))
	for _, s := range p.moves(need) {
		parts[s.from-1] = s.units
	}
	return parts
}
