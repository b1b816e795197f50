package lua

import "fmt"

// Position is how far a campaign and its claim stream were at one moment: in Redis, by what MySQL recorded, or as someone saw them.
// What is zero is not known.
type Position struct {
	Epoch, Seq int64 // Seq claims of load Epoch were accepted
	Version    int64 // of the definition
	Released   int64 // claims that were released
	Stream     StreamPosition
}

// StreamPosition is how far a claim stream was.
type StreamPosition struct {
	Generation string  // names the life of the stream without a loss
	Tip        EntryID // the highest id that was ever in it
	Added      int64   // entries that were ever in it
	Gap        EntryID // an entry that was in it and is missing, although older ones are there
}

// Before reports whether p was earlier than o by load and claims.
func (p Position) Before(o Position) bool {
	return p.Epoch < o.Epoch || p.Epoch == o.Epoch && p.Seq < o.Seq
}

// Later is the later of two positions of a campaign, by load and claims alone.
func (p Position) Later(o Position) Position {
	if p.Epoch != o.Epoch {
		if p.Epoch < o.Epoch {
			p = o
		}
		return Position{Epoch: p.Epoch, Seq: p.Seq}
	}
	return Position{Epoch: p.Epoch, Seq: max(p.Seq, o.Seq)}
}

// Behind says in what p, which Redis holds now, is behind known, which it held before; "" is nothing. Everything that checks for a
// Redis that was rolled back asks it, and claim.lua does the same by load and claims before it takes any. A newer load counts from its own
// beginning, and a campaign that is being loaded has no definition yet.
func (p Position) Behind(known Position) string {
	switch {
	case p.Epoch < known.Epoch:
		return fmt.Sprintf("it holds load %d, load %d is known", p.Epoch, known.Epoch)
	case p.Epoch > known.Epoch:
	case p.Seq < known.Seq:
		return fmt.Sprintf("it holds %d claims, %d are known", p.Seq, known.Seq)
	case p.Version > 0 && p.Version < known.Version:
		return fmt.Sprintf("it works by definition %d, %d was in force", p.Version, known.Version)
	case p.Released < known.Released:
		return fmt.Sprintf("it knows %d releases, and was told of %d", p.Released, known.Released)
	}
	return p.Stream.behind(known.Stream)
}

func (p StreamPosition) behind(known StreamPosition) string {
	switch {
	case known.Generation == "":
		return ""
	case p.Generation == "":
		return "it lost the claim stream"
	case p.Generation != known.Generation:
		return "it holds another claim stream"
	case p.Tip.Less(known.Tip):
		return fmt.Sprintf("its claim stream ends at %s, %s is known", p.Tip, known.Tip)
	case p.Gap != EntryID{}:
		return fmt.Sprintf("its claim stream lacks entry %s", p.Gap)
	case p.Added < known.Added:
		return fmt.Sprintf("its claim stream had %d entries, %d are known", p.Added, known.Added)
	}
	return ""
}
