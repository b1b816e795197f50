// Package console is the operators' web page: active campaigns live, actions
// on them, and the history of a claim. It is served on the API's address,
// calls the API's routes with the user's token, and needs no build step.
package console
