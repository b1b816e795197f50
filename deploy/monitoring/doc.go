// Package ops has what runs beside Dibs: alerts for Prometheus,
// a dashboard for Grafana, and their tests.
package ops
