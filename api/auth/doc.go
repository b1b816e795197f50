// Package auth decides who sends a request and what it may do. Credentials
// are bearer tokens, from settings and from a file of named ones, and JSON
// Web Tokens of end users and services. A process has one Gate. listen.go
// decides on which addresses a process may listen.
package auth
