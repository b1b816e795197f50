// Package hourlimit adds a limit that Dibs does not have, of a user and an hour, to a build of its own, as docs/lua.md says, and tests
// it there: testdata/per_user_per_hour.patch changes the production files, testdata/limit_test.go runs on the result.
//
// When the patch does not apply any more, make the change by hand in a scratch worktree and write it anew:
//
//	git diff -U1 > internal/hourlimit/testdata/per_user_per_hour.patch
package hourlimit
