package reconcile

import "time"

// CountAlways has each round count the rows of each campaign.
func (r *Reconciler) CountAlways() { r.countEvery = time.Nanosecond }

// CountNoMore ends CountAlways.
func (r *Reconciler) CountNoMore() { r.countEvery = time.Hour }

// KeepRecords keeps so many rows of a campaign in reconciliations.
func (r *Reconciler) KeepRecords(most int) { r.maxRecorded = most }

// StillMost is how many campaigns a round compares that have not moved.
const StillMost = maxStill

// RestMost is for how many rounds the books may rest.
const RestMost = maxRest

// Rest is for how many rounds the books are not read.
func Rest(r *Reconciler) int { return r.rest }

// Turns takes ids in turns of at most so many, several times, and returns each.
func Turns(ids []string, most, times int) (all [][]string) {
	var t roundRobin
	for range times {
		all = append(all, t.next(ids, most))
	}
	return all
}
