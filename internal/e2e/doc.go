// Package e2e tests Dibs as a whole: `dibs` processes, built and started for
// the test, on real Redis and real MariaDB or MySQL, under a crowd that comes
// over HTTP while processes and servers are killed, stopped and cut off.
//
// Every test ends with the same question, asked by books.violations: do the
// crowd, Redis, MySQL and a reader of the stream tell the same story? The
// controls run that question over pipelines that are broken on purpose, each in
// a way that has been someone's bug, and fail when it is answered with yes.
package e2e
