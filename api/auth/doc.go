// Package auth decides who a request comes from and what it may do: by
// bearer tokens, of settings and of a file of named ones, and by JSON Web
// Tokens of end users and services. A Gate answers for a process;
// listen.go says where a process may listen.
package auth
