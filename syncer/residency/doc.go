// Package residency loads campaigns into Redis and evicts them.
//
//	first claim ─▶ Hydrator: proof that MySQL has every claim ─ staged load ─ confirmation ─▶ resident
//	idle, and MySQL has every claim ─▶ Evictor ─▶ evicted
//	gone from Redis, or Redis was rolled back ─▶ fenced ─ proof, or an operator's repair ─▶ loaded again under a new epoch
//
// StreamWatcher notices that a claim stream lost entries. Resumer completes what a process that died left half done.
package residency
