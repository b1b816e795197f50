// Package reservemodel checks the protocol by which units move between the lots of a campaign, by exploring all interleavings of its
// steps up to bounds. It consists of tests: see docs/decisions/0111-hold-the-reserve-in-redis-as-a-lot.md for the rules and for what was
// found.
//
// A lot is its counters. What its primary holds and what survives a crash of it are kept apart: at any step a disk may catch up, so a
// crash can lose any suffix of the writes of each lot by itself. One MySQL books what it reads, and can be restored to any earlier commit.
package reservemodel
