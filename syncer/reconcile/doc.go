// Package reconcile compares Redis and MySQL at a common watermark, and repairs what differs when an operator asks for it.
package reconcile
