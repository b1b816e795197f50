// Package live shows watchers once a second how campaigns are: server-sent
// events, made by one sampler that all watchers of a process share.
package live
