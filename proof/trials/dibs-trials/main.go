// dibs-trials is dibs with the trial commands lab and torture,
// whose dependencies must not be in the server. In a clone,
// `dibs lab` and `dibs torture` build and run it.
package main

import (
	"dibs/cmd"
	"dibs/proof/trials"
)

func main() { cmd.Main(trials.Run) }
