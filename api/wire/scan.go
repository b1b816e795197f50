package wire

import (
	"bytes"
	"strconv"
	"unicode/utf8"

	"dibs/models"
)

// scanner reads one JSON text strictly: whole, valid UTF-8, each field known and there once. A text that is broken
// anywhere is malformed, whatever else is wrong with it.
type Scanner struct {
	b []byte
	i int
}

// scanObject reads a whole body that is one object.
func ScanObject(body []byte, names []string, set func(s *Scanner, i int) *Problem) *Problem {
	s := &Scanner{b: body}
	s.space()
	if s.i == len(body) {
		return Malformed("The body is empty.")
	}
	if body[s.i] != '{' {
		return Malformed("The body must be a JSON object.")
	}
	p := s.Object(names, set)
	if p != nil && p.Code == CodeMalformed {
		return p
	}
	if s.space(); s.i != len(s.b) {
		return s.broken()
	}
	return p
}

// object reads an object and calls set for the value of each field, by its place in names. The first refusal of a field is
// returned after the whole object was read; a broken text at once.
func (s *Scanner) Object(names []string, set func(s *Scanner, i int) *Problem) (first *Problem) {
	if !s.take('{') {
		return s.broken()
	}
	if s.space(); s.take('}') {
		return nil
	}
	var seen uint64
	for {
		s.space()
		p := s.member(names, set, &seen)
		if p != nil && p.Code == CodeMalformed {
			return p
		}
		if first == nil {
			first = p
		}
		s.space()
		if s.take('}') {
			return first
		}
		if !s.take(',') {
			return s.broken()
		}
	}
}

// member reads one `name: value`. After a refusal the value is read over.
func (s *Scanner) member(names []string, set func(s *Scanner, i int) *Problem, seen *uint64) *Problem {
	name, p := s.text()
	if p != nil {
		return p
	}
	i := indexOf(names, name)
	var refused *Problem
	switch {
	case i < 0:
		refused = Invalid(shorten(name), "is not a known field")
	case *seen&(1<<i) != 0:
		refused = Invalid(names[i], "is there twice")
	default:
		*seen |= 1 << i
	}
	if s.space(); !s.take(':') {
		return s.broken()
	}
	s.space()
	start := s.i
	if refused == nil {
		if refused = set(s, i); refused == nil || refused.Code == CodeMalformed {
			return refused
		}
	}
	s.i = start
	if p := s.skip(depthMax); p != nil {
		return p
	}
	return refused
}

func indexOf(names []string, name []byte) int {
	for i := range names {
		if string(name) == names[i] {
			return i
		}
	}
	return -1
}

// shorten keeps a stranger's field name fit for an answer.
func shorten(name []byte) string {
	const most = 64
	if len(name) <= most {
		return string(name)
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(name[cut]) {
		cut--
	}
	return string(name[:cut]) + "…"
}

// array reads an array and calls set for each element.
func (s *Scanner) Array(name string, set func(i int) *Problem) *Problem {
	if !s.take('[') {
		return s.WrongType(name, "an array")
	}
	if s.space(); s.take(']') {
		return nil
	}
	for i := 0; ; i++ {
		s.space()
		if p := set(i); p != nil {
			return p
		}
		s.space()
		if s.take(']') {
			return nil
		}
		if !s.take(',') {
			return s.broken()
		}
	}
}

// str reads a string value. The bytes are the body's own unless they had escapes.
func (s *Scanner) Str(name string) ([]byte, *Problem) {
	if s.i >= len(s.b) || s.b[s.i] != '"' {
		return nil, s.WrongType(name, "a string")
	}
	return s.text()
}

// integer reads a whole number from least to most. 1.0 and 1e0 are refused: amounts are written as what they are.
func (s *Scanner) Integer(name string, least, most int64) (int64, *Problem) {
	if s.i >= len(s.b) || s.b[s.i] != '-' && (s.b[s.i] < '0' || s.b[s.i] > '9') {
		return 0, s.WrongType(name, "a whole number")
	}
	start := s.i
	whole, ok := s.number()
	if !ok {
		return 0, s.broken()
	}
	if !whole {
		return 0, Invalid(name, "must be a whole number, without fraction or exponent")
	}
	n, err := strconv.ParseInt(string(s.b[start:s.i]), 10, 64)
	if err != nil || n < least || n > most {
		return 0, Invalid(name, "must be "+strconv.FormatInt(least, 10)+" to "+strconv.FormatInt(most, 10))
	}
	return n, nil
}

// null reads a null if one is here.
func (s *Scanner) Null() bool {
	if !bytes.HasPrefix(s.b[s.i:], []byte("null")) {
		return false
	}
	s.i += len("null")
	return true
}

// atObject tells whether an object begins here, or the text ends.
func (s *Scanner) AtObject() bool { return s.i >= len(s.b) || s.b[s.i] == '{' }

// wrongType is for a value that does not begin as it should.
func (s *Scanner) WrongType(name, wanted string) *Problem {
	start := s.i
	if p := s.skip(depthMax); p != nil {
		return p
	}
	if string(s.b[start:s.i]) == "null" {
		return Invalid(name, "must be "+wanted+", not null; leave it out instead")
	}
	return Invalid(name, "must be "+wanted)
}

func (s *Scanner) space() {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return
		}
	}
}

func (s *Scanner) take(c byte) bool {
	if s.i < len(s.b) && s.b[s.i] == c {
		s.i++
		return true
	}
	return false
}

// broken is for a text that is no JSON here.
func (s *Scanner) broken() *Problem {
	if s.i >= len(s.b) {
		return Malformed("The body ends early.")
	}
	return Malformed("The body is not JSON at byte " + strconv.Itoa(s.i+1) + ".")
}

// idReason is the part of a models.ErrID that follows the sentinel's own words.
func IDReason(err error) string { return err.Error()[len(models.ErrID.Error())+2:] }

func (s *Scanner) UserID(name string) (string, *Problem) {
	text, p := s.Str(name)
	if p != nil {
		return "", p
	}
	id := string(text)
	if err := models.CheckUserID(id); err != nil {
		return "", Invalid(name, IDReason(err))
	}
	return id, nil
}

func (s *Scanner) CampaignID(name string) (string, *Problem) {
	text, p := s.Str(name)
	if p != nil {
		return "", p
	}
	id := string(text)
	if err := models.CheckCampaignID(id); err != nil {
		return "", Invalid(name, IDReason(err))
	}
	return id, nil
}

func (s *Scanner) IdempotencyKey(name string) (string, *Problem) {
	text, p := s.Str(name)
	if p != nil {
		return "", p
	}
	key := string(text)
	if err := models.CheckIdempotencyKey(key); err != nil {
		return "", Invalid(name, IDReason(err))
	}
	return key, nil
}
