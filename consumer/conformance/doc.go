// Package conformance runs watermill's own conformance suite for Pub/Subs against consumer.Subscriber. It has no code
// but tests, and stands apart from the tests of package consumer because the suite leaves goroutines of its own behind,
// which those tests would call a leak.
package conformance
