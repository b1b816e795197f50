// Package residency loads campaigns into Redis and evicts them.
//
//	first claim ─▶ Hydrator: proof that MySQL has every claim ─ staged load ─ confirmation ─▶ resident
//	idle, and MySQL has every claim ─▶ Maintainer ─▶ evicted
//	gone from Redis, or Redis was rolled back ─▶ fenced ─ proof, or an operator's repair ─▶ loaded again under a new epoch
//
// Maintainer notices that a server lost data, and tends lots without being asked.
package residency
