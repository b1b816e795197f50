// Package lab compares ways to hand out a limited number of units, from a
// naive counter to Dibs. Each is a Strategy. All get the same workload. The
// report shows what each sells, loses and leaves behind.
//
//	Run ─ servers ─ rounds, in each all strategies ─┬─ Prepare, in this process
//	                                                ├─ worker processes: warm-up, measure, sell-out
//	                                                └─ a worker that is killed at the worst step
//
// A strategy is written as its authors intended, and as fast as it can be
// without becoming another: pools are sized, scripts preloaded, lookups
// indexed, waits spread. Its flaw is kept, and a test shows it.
package lab
