// Package torture is `dibs torture`: a whole Dibs of real processes and
// servers, clients that claim, redeem, release, restock, pause and hand out
// packets, and faults drawn by a seed. After each round of faults everything
// is healed and every invariant of docs/invariants.md is checked for each
// claim.
//
// A run is rounds. A round opens its own campaigns, draws its faults, runs
// the clients and ends with the check. It is strict or lossy. In a lossy one,
// faults may lose answered claims (see fault.loses), and such a fault must
// explain each claim without a row.
package torture
