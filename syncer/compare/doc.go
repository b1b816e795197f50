// Package compare holds what Redis and MySQL say of campaigns against each other, at one watermark: the last entry of the claim stream is
// the one that MySQL has applied last. Before that MySQL lags, which is business as usual and never called a difference.
//
// It repairs by loading what differs, which counts the counters of MySQL from its rows. There is no third authority. Parked claims are
// tried again first; what is lost is given up if an operator says so.
package compare
