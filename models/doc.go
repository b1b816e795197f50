// Package models defines what several packages share: campaigns, claims, events
// and outcomes, which ids are valid, and the rows of MySQL. It imports no other
// package of this module.
package models
