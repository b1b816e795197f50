package api

import "time"

// SetReadTimeouts sets how long the headers and the whole of a request may
// take.
func (s *Server) SetReadTimeouts(headers, whole time.Duration) {
	s.headerTimeout, s.readTimeout = headers, whole
}
