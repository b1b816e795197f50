// Package console is the operator's page: every active campaign live, what
// can be done about it, and the life of a claim. It is served on the API's
// address, asks the API's own routes with the token of who is signed in,
// and needs no build step.
package console
