package lua

// Position is how far a lot is, or was seen.
// Its numbers only rise, across loads too.
type Position struct {
	Epoch int64 // of the load
	Seq   int64 // the highest used
	Units int64 // ever sold
}

// IsBehind reports whether a lot is behind where it was seen.
func (p Position) IsBehind(seen Position) bool {
	return p.Epoch < seen.Epoch || p.Seq < seen.Seq || p.Units < seen.Units
}

// Later returns the maximum of both positions.
func (p Position) Later(o Position) Position {
	return Position{Epoch: max(p.Epoch, o.Epoch), Seq: max(p.Seq, o.Seq), Units: max(p.Units, o.Units)}
}
