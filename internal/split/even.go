package split

// even divides spare into n parts. The first spare%n get one more.
func even(n int, spare int64) []int64 {
	each := spare / int64(n)
	more := spare % int64(n)
	parts := make([]int64, n)
	for i := range parts {
		parts[i] = each
		if int64(i) < more {
			parts[i]++
		}
	}
	return parts
}
