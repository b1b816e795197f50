package api

// Codes lists every code with its status.
func Codes() map[Code]int {
	all := map[Code]int{}
	for code, line := range refusals {
		all[code] = line.Status
	}
	return all
}
