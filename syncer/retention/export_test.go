package retention

import "time"

// KeepFlushes makes p keep rows of stock_flushes for that long.
func KeepFlushes(p *Pruner, kept time.Duration) *Pruner {
	p.flushesKept = kept
	return p
}

// KeepRepairs makes p keep that many rows of repairs a campaign.
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

// TrimAtOnce makes t trim that many entries with one call.
func TrimAtOnce(t *Trimmer, entries int64) *Trimmer {
	t.call = entries
	return t
}

// ArchiverWithPage makes a move that many claims in a transaction.
func ArchiverWithPage(a *Archiver, claims int) *Archiver {
	a.pageSize = claims
	return a
}

func ArchiverWithStep(a *Archiver, step func(name string)) *Archiver {
	a.steps.Observe(step)
	return a
}
