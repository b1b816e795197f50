// Package models defines what several packages share: campaigns, claims,
// outcomes and valid ids. Its package event has what streams hold, stored
// MySQL's rows, calendar days and time zones. They import no other package
// of this module.
package models
