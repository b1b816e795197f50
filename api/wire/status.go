package wire

import "net/http"

// StatusWriter records an answer's status.
type StatusWriter struct {
	http.ResponseWriter

	Status int
}

// WriteHeader records the status.
func (w *StatusWriter) WriteHeader(status int) {
	w.Status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap lets a stream set its deadlines and flush.
func (w *StatusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
