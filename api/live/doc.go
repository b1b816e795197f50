// Package live streams campaigns' figures once a second as server-sent
// events. All watchers of a process share one sampler.
package live
