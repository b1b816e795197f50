// Package bench measures Dibs against ceilings and against what it replaces, as
// ratios within one run:
//
//	make bench                                 all parts, some minutes
//	make bench WRITE=1                         and puts the figures into proof/bench/results.json and docs/bench.md
//	make bench BENCH=/script ROUNDS=5          one part, by its name; docs/bench.md lists them
//	make bench ROUNDS=1 SHORT=1                each once and briefly, to see that it still runs
//
// The sides of a comparison take turns within each round, so that a busy
// machine hurts all alike; a ratio is taken round by round, and its median
// counts. Nothing here fails because of a figure: a benchmark fails when
// something was not claimed, or not booked.
package bench
