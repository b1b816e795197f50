// Package models holds the words that several rooms of Dibs share: what a campaign, a claim, an event and an outcome are,
// which ids are legal, and the rows of MySQL. It imports nothing of ours.
package models
