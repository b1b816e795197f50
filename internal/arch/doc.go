// Package arch has the rules for imports within this module. Its
// test checks the module against them.
package arch
