package testenv

import "testing"

// Sweep and LockFile let tests look at what has no outside.
var (
	Sweep    = sweep
	LockFile = lockFile
)

// NothingInstalled makes this test's Redis and SQLServer believe that no server program is installed and asks for
// Docker again. The test must not be parallel.
func NothingInstalled(t *testing.T) {
	t.Helper()
	folders, answers := programFolders, dockerAnswers
	programFolders, dockerAnswers = nil, askDocker
	t.Cleanup(func() { programFolders, dockerAnswers = folders, answers })
}

// StartErrors returns what starting either server gives, for machines where it must fail.
func StartErrors() (redis, sql error) {
	_, _, _, redis = startRedis("", nil, 0) //nolint:dogsled // only the error matters here
	_, _, _, sql = startSQL(nil)            //nolint:dogsled // the same
	return redis, sql
}
