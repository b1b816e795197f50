package testenv

// Sweep and LockFile let tests look at what has no outside.
var (
	Sweep    = sweep
	LockFile = lockFile
)
