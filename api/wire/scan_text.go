package wire

import (
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// text reads a string.
func (s *Scanner) text() ([]byte, *Problem) {
	if !s.take('"') {
		return nil, s.broken()
	}
	start, ascii := s.i, true
	for s.i < len(s.b) {
		switch c := s.b[s.i]; {
		case c == '"':
			out := s.b[start:s.i]
			s.i++
			if !ascii && !utf8.Valid(out) {
				return nil, Malformed("The body is not valid UTF-8.")
			}
			return out, nil
		case c == '\\':
			return s.escaped(start)
		case c < 0x20:
			return nil, Malformed("A string holds a control character; JSON wants it escaped.")
		case c >= utf8.RuneSelf:
			ascii = false
		}
		s.i++
	}
	return nil, s.broken()
}

// escaped goes on with a string in which an escape was met.
func (s *Scanner) escaped(start int) ([]byte, *Problem) {
	out := append([]byte(nil), s.b[start:s.i]...)
	for s.i < len(s.b) {
		c := s.b[s.i]
		switch {
		case c == '"':
			s.i++
			if !utf8.Valid(out) {
				return nil, Malformed("The body is not valid UTF-8.")
			}
			return out, nil
		case c < 0x20:
			return nil, Malformed("A string holds a control character; JSON wants it escaped.")
		case c != '\\':
			out = append(out, c)
			s.i++
		default:
			r, ok := s.escape()
			if !ok {
				return nil, s.broken()
			}
			out = utf8.AppendRune(out, r)
		}
	}
	return nil, s.broken()
}

const (
	escapes = `"\/bfnrt`
	meant   = "\"\\/\b\f\n\r\t"
)

// escape reads one escape. Half a surrogate pair is no character and is refused: two ids must not become one.
func (s *Scanner) escape() (rune, bool) {
	s.i++ // the backslash
	if s.i >= len(s.b) {
		return 0, false
	}
	if s.b[s.i] != 'u' {
		which := strings.IndexByte(escapes, s.b[s.i])
		s.i++
		if which < 0 {
			return 0, false
		}
		return rune(meant[which]), true
	}
	r, ok := s.hex4()
	if !ok || !utf16.IsSurrogate(r) {
		return r, ok
	}
	if !s.take('\\') || s.i >= len(s.b) || s.b[s.i] != 'u' {
		return 0, false
	}
	low, ok := s.hex4()
	r = utf16.DecodeRune(r, low)
	return r, ok && r != utf8.RuneError
}

// hex4 reads the u and the four digits of a \u escape.
func (s *Scanner) hex4() (rune, bool) {
	if len(s.b)-s.i < 5 {
		return 0, false
	}
	n, err := strconv.ParseUint(string(s.b[s.i+1:s.i+5]), 16, 16)
	s.i += 5
	return rune(n), err == nil
}
