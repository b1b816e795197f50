// Package machine gives tests what they need of the machine: folders,
// ports, disks, proxies that cut connections, and server programs that
// end with the test binary, even when that is killed.
package machine
