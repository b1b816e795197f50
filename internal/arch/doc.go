// Package arch lists what each package of this module may import. It holds the
// rules and a check; its test runs the check over the module.
package arch
