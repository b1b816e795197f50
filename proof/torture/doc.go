// Package torture is `dibs torture`: a whole Dibs of real processes on real
// servers, clients that claim, redeem, release, restock, pause and hand out
// packets, and faults that a seed draws. After each round of faults everything
// is healed and every invariant of docs/invariants.md is checked claim by
// claim.
//
// A run is rounds. A round opens campaigns of its own, draws its faults, lets
// the clients go on, and ends with the check. A round is strict, or lossy: then
// its faults may be such as lose claims that were answered (see Fault.Loses),
// and a claim without a row has to be explained by one of them.
package torture
