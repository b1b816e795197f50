// Package recovery decides what is done next to a lot, or to a partition's claim stream, by what was observed of them in MySQL and Redis.
// A lot is a campaign, or one shard of it.
//
//	observation ─▶ PlanPartition ─ none ─▶ PlanLot ─▶ one step
//
// Both decisions are tables, read from the top: the first row that holds decides. They are pure functions. What an observation misses or
// what changes after it is caught by the guard of the step. docs/recovery.md shows the tables and the states that a lot goes through.
package recovery
