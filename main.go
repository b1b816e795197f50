// Dibs hands out a limited number of things to a crowd that all arrives at
// once: first come, first served, never one too many, and the books agree
// afterwards. See `go run . help`.
package main

import "dibs/cmd"

func main() { cmd.Main(cmd.Run) }
