package retention

import "time"

// KeepFlushes has p keep rows of stock_flushes for that long.
func KeepFlushes(p *Pruner, kept time.Duration) *Pruner {
	p.flushesKept = kept
	return p
}

// KeepRepairs has p keep so many rows of repairs a campaign.
func KeepRepairs(p *Pruner, kept int) *Pruner {
	p.repairsKept = kept
	return p
}

// SpendOnATable has p spend that long on a table in a round, or one page if
// that takes longer.
func SpendOnATable(p *Pruner, most time.Duration) *Pruner {
	p.time = most
	return p
}

// TrimAtOnce has t trim so many entries with one call.
func TrimAtOnce(t *Trimmer, entries int64) *Trimmer {
	t.call = entries
	return t
}

// ArchiverWithPage has a move so many claims in a transaction.
func ArchiverWithPage(a *Archiver, claims int) *Archiver {
	a.pageSize = claims
	return a
}

// ArchiverWithStep has step called at each step of a.
func ArchiverWithStep(a *Archiver, step func(name string)) *Archiver {
	a.steps.Observe(step)
	return a
}
