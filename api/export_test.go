package api

import "time"

// SetReadTimeouts bounds reading a request's headers, and the whole request.
func (s *Server) SetReadTimeouts(headers, whole time.Duration) {
	s.headerTimeout, s.readTimeout = headers, whole
}
