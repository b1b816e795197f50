package wire

import "net/http"

// StatusWriter keeps the status of an answer.
type StatusWriter struct {
	http.ResponseWriter

	Status int
}

// WriteHeader keeps the status.
func (w *StatusWriter) WriteHeader(status int) {
	w.Status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap lets a stream set its deadlines and flush.
func (w *StatusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
