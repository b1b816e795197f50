// Package arch keeps the arrows between the packages of this module: who may import whom. It holds the rules and a check;
// its test runs the check over the module.
package arch
