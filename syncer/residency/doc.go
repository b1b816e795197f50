// Package residency brings campaigns into Redis and takes them out again.
//
//	first need ─▶ Hydrator ─ proof that MySQL holds every claim ─ staged load ─ confirm ─▶ resident
//	idle and in MySQL to the last claim ─▶ Evictor ─▶ evicted
//	lost from Redis, or Redis went back ─▶ fenced ─ proof, or an operator's repair ─▶ loaded anew under a new epoch
//
// StreamWatcher notices when a claim stream lost entries. Resumer completes what a process that died left half done.
package residency
