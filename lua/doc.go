// Package lua is the gate to Redis: one verb is a script and the Go beside it (claim.lua, claim.go). Scripts are embedded
// byte for byte, called by their digest, and loaded again when Redis has forgotten them. A script checks everything
// before its first write; its outcomes are values, and its errors say whether anything can have happened.
package lua
