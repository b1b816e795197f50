package lua

// Position is how far a lot is, in Redis, by MySQL, or as someone saw it. Each of its numbers only rises, over loads too.
type Position struct {
	Epoch int64 // of the load
	Seq   int64 // the highest that was used
	Units int64 // that were sold, ever
}

// IsBehind reports whether a lot is not as far as someone saw it.
func (p Position) IsBehind(seen Position) bool {
	return p.Epoch < seen.Epoch || p.Seq < seen.Seq || p.Units < seen.Units
}

// Later is as far as either position.
func (p Position) Later(o Position) Position {
	return Position{Epoch: max(p.Epoch, o.Epoch), Seq: max(p.Seq, o.Seq), Units: max(p.Units, o.Units)}
}
