// Package e2e tests Dibs as a whole: `dibs` processes on real Redis and real
// MariaDB or MySQL, used by a crowd over HTTP while processes and servers are
// killed, stopped and disconnected.
//
// Every test ends with books.violations: do the crowd, Redis, MySQL and a
// stream reader agree? Control tests run this check on deliberately broken
// pipelines, each modelled on a former bug, and fail if it finds nothing.
package e2e
