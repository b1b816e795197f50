// Package lab is the strategy ladder: ways to hand out a limited number of units, from a naive counter to Dibs itself, each
// a Strategy, all under one workload, with what each sells, loses and leaves behind.
//
//	Run ─ servers ─ one round after another, in each all strategies ─┬─ Prepare, here
//	                                                            ├─ worker processes: warm-up, measure, sell-out
//	                                                            └─ a worker that is killed where it hurts most
//
// The strategies are written as their inventors meant them and made as fast as they can be without becoming another strategy: pools
// are sized, scripts preloaded, indexes there, waiting is spread. Their flaws are left in; the tests show each.
package lab
