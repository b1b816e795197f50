package retention

import "time"

func KeepFlushes(p *Pruner, kept time.Duration) *Pruner {
	p.flushesKept = kept
	return p
}

func KeepRepairs(p *Pruner, kept int) *Pruner {
	p.repairsKept = kept
	return p
}

// SpendOnATable makes p spend that long on a table in a round, or one
// page if that takes longer.
func SpendOnATable(p *Pruner, most time.Duration) *Pruner {
	p.time = most
	return p
}

func TrimAtOnce(t *Trimmer, entries int64) *Trimmer {
	t.call = entries
	return t
}

func ArchiverWithPage(a *Archiver, claims int) *Archiver {
	a.pageSize = claims
	return a
}

func ArchiverWithStep(a *Archiver, step func(name string)) *Archiver {
	a.steps.Observe(step)
	return a
}
