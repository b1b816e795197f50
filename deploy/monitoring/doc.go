// Package ops holds what runs beside Dibs: alerts for Prometheus and a
// dashboard for Grafana, and the tests that keep them true.
package ops
