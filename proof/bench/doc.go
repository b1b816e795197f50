// Package bench compares Dibs with upper bounds and with what it
// replaces, as ratios within one run:
//
//	make bench                                 all parts, some minutes
//	make bench WRITE=1                         and puts the figures into proof/bench/results.json and docs/bench.md
//	make bench BENCH=/script ROUNDS=5          one part, by its name; docs/bench.md lists them
//	make bench ROUNDS=1 SHORT=1                each once and briefly, to see that it still runs
//
// The sides of a comparison alternate within each round, so that
// a busy machine slows all alike. A ratio is computed per round;
// its median is reported. No figure makes a benchmark fail. It
// fails if a claim was not made or not stored.
package bench
