package reconcile

import "time"

// CountAlways has each round count the rows of each campaign.
func (r *Reconciler) CountAlways() { r.countEvery = time.Nanosecond }

// KeepRecords keeps so many rows of a campaign in reconciliations.
func (r *Reconciler) KeepRecords(most int) { r.recordedMost = most }
