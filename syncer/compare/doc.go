// Package compare compares Redis and MySQL at a common watermark: MySQL
// has applied the last entry of the claim stream. Before that MySQL
// lags, which is no difference.
//
// A repair loads what differs, which corrects MySQL's counters by its
// rows. There is no third authority. Parked claims are retried first.
// An operator may give up what is lost.
package compare
