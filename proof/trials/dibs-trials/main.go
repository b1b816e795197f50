// dibs-trials is dibs with the commands that try it, lab and torture: what they
// link is no part of what serves. `dibs lab` and `dibs torture` build and run
// it in a clone.
package main

import (
	"dibs/cmd"
	"dibs/proof/trials"
)

func main() { cmd.Main(trials.Run) }
