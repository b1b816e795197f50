// Package models defines what several packages share: campaigns, claims,
// events, outcomes, valid ids and MySQL's rows. It imports no other package
// of this module.
package models
