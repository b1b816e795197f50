// Package e2e tests Dibs as a whole: `dibs` processes on real Redis and real
// MariaDB or MySQL, used by a crowd over HTTP, and the guides of docs/guides.
// What happens under faults is proof/torture's to show.
//
// A test of claims ends with books.violations: do the crowd, Redis, MySQL and
// a stream reader agree? internal/testkit/oracle has the controls of that check.
package e2e
