package wire

import (
	"bytes"
	"strconv"
)

// depthMax bounds the nesting of a body.
const depthMax = 32

// number steps over a number by JSON's grammar; whole says that it has neither fraction nor exponent.
func (s *Scanner) number() (whole, ok bool) {
	s.take('-')
	if !s.take('0') && s.digits() == 0 {
		return false, false
	}
	whole = true
	if s.take('.') {
		whole = false
		if s.digits() == 0 {
			return false, false
		}
	}
	if s.take('e') || s.take('E') {
		whole = false
		if !s.take('+') {
			s.take('-')
		}
		if s.digits() == 0 {
			return false, false
		}
	}
	return whole, true
}

func (s *Scanner) digits() (n int) {
	for s.i < len(s.b) && s.b[s.i] >= '0' && s.b[s.i] <= '9' {
		s.i++
		n++
	}
	return n
}

// skip steps over any value.
func (s *Scanner) skip(depth int) *Problem {
	if s.i >= len(s.b) {
		return s.broken()
	}
	switch c := s.b[s.i]; {
	case c == '"':
		_, p := s.text()
		return p
	case c == '{' || c == '[':
		if depth == 0 {
			return Malformed("The body is nested more than " + strconv.Itoa(depthMax) + " deep.")
		}
		return s.skipNested(depth-1, c)
	case c == '-' || c >= '0' && c <= '9':
		if _, ok := s.number(); !ok {
			return s.broken()
		}
		return nil
	}
	for _, word := range []string{"null", "true", "false"} {
		if bytes.HasPrefix(s.b[s.i:], []byte(word)) {
			s.i += len(word)
			return nil
		}
	}
	return s.broken()
}

func (s *Scanner) skipNested(depth int, open byte) *Problem {
	closing := open + 2 // } and ] are two behind { and [
	s.i++
	if s.space(); s.take(closing) {
		return nil
	}
	for {
		s.space()
		if open == '{' {
			if _, p := s.text(); p != nil {
				return p
			}
			if s.space(); !s.take(':') {
				return s.broken()
			}
			s.space()
		}
		if p := s.skip(depth); p != nil {
			return p
		}
		s.space()
		if s.take(closing) {
			return nil
		}
		if !s.take(',') {
			return s.broken()
		}
	}
}
