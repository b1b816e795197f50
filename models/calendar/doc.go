// Package calendar has time zones, days and local times. Its zones are
// those of one database, whatever the machine has.
package calendar
