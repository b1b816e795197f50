package wire

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"dibs/models"
)

const depthMax = 32

// Field is a possible field of a JSON object.
type Field struct {
	Name     string
	read     func(r *reader) *Problem
	required bool
}

// Required refuses an object that lacks the field.
func (f Field) Required() Field {
	f.required = true
	return f
}

// ReadObject reads a body that is one JSON object. A syntax error anywhere
// is malformed, whatever else is wrong. Otherwise the first bad field is
// refused.
func ReadObject(body []byte, fields []Field) *Problem {
	r := readers.Get().(*reader) //nolint:forcetypeassert // only these go in
	defer readers.Put(r)
	r.in = *bytes.NewBuffer(body)
	r.broken = nil
	r.d.Reset(&r.in, jsontext.AllowDuplicateNames(true))
	var refused *Problem
	switch r.d.PeekKind() {
	case '{':
		refused = r.object(fields)
	case jsontext.KindInvalid:
		r.token()
	default:
		return Malformed("The body must be a JSON object.")
	}
	r.skipTo(0)
	r.end()
	if r.broken != nil {
		return r.broken
	}
	return refused
}

// TextOrFalse is a string, or false, which is read as "".
func TextOrFalse[T ~string](name string, into **T) Field {
	return Field{name, func(r *reader) *Problem {
		if r.d.PeekKind() == 'f' {
			r.token()
			*into = new(T)
			return nil
		}
		t, p := r.begin(name, '"', "a string or false")
		switch {
		case p != nil:
			return p
		case t.String() == "":
			return Invalid(name, "must not be empty")
		}
		*into = new(T(t.String()))
		return nil
	}, false}
}

// TextOrNull is a string or null.
func TextOrNull(name string, into **string, null *bool) Field {
	return Field{name, func(r *reader) *Problem {
		*null = r.d.PeekKind() == 'n'
		if *null {
			r.token()
			return nil
		}
		t, p := r.begin(name, '"', "a string")
		if p == nil {
			*into = new(t.String())
		}
		return p
	}, false}
}

// ID is a string that check accepts, see models.ErrID.
func ID(name string, into *string, check func(id string) error) Field {
	return Visible(name, into, func(text string) (string, error) { return text, check(text) })
}

// Visible is a string in the form that parse returns, see models.UserID.
func Visible(name string, into *string, parse func(text string) (string, error)) Field {
	return Field{name, func(r *reader) *Problem {
		t, p := r.begin(name, '"', "a string")
		if p != nil {
			return p
		}
		text, err := parse(t.String())
		*into = text
		return InvalidID(name, err)
	}, false}
}

// Subjects is an object of strings by name, see models.Subject.
func Subjects(name string, into *models.Subjects) Field {
	return Field{name, func(r *reader) *Problem {
		if _, p := r.begin(name, '{', "an object"); p != nil {
			return p
		}
		*into = nil
		for r.d.PeekKind() != '}' {
			if p := r.subject(name, into); p != nil {
				return p
			}
		}
		r.token()
		return r.broken
	}, false}
}

func (r *reader) subject(object string, into *models.Subjects) *Problem {
	subject := r.token().String()
	if r.broken != nil {
		return r.broken
	}
	name := object + "." + Shorten(subject)
	if _, twice := (*into)[subject]; twice {
		return Invalid(name, "is there twice")
	}
	t, p := r.begin(name, '"', "a string")
	if p != nil {
		return p
	}
	value, err := models.Subject(subject, t.String())
	if err != nil {
		return InvalidID(name, err)
	}
	if len(*into) == models.SubjectsMax {
		return Invalid(object, "must be at most "+strconv.Itoa(models.SubjectsMax))
	}
	if *into == nil {
		*into = make(models.Subjects)
	}
	(*into)[subject] = value
	return nil
}

// Integer is a whole number from least to most, in plain digits: 1.0 and
// 1e0 are refused.
func Integer(name string, into *int64, least, most int64) Field {
	return Field{name, func(r *reader) *Problem {
		t, p := r.begin(name, '0', "a whole number")
		if p != nil {
			return p
		}
		text := t.String()
		if strings.ContainsAny(text, ".eE") {
			return Invalid(name, "must be a whole number, without fraction or exponent")
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < least || n > most {
			return Invalid(name, "must be "+strconv.FormatInt(least, 10)+" to "+strconv.FormatInt(most, 10))
		}
		*into = n
		return nil
	}, false}
}

// List is an array of up to most objects with the fields of FieldsOf. The
// first bad element refuses the array.
func List[T any](name string, most int, into *[]T) Field {
	fields := func(element *T) []Field { return FieldsOf(element) }
	return Each(name, most, into, fields, func(_ *T, i int, p *Problem) *Problem {
		if p != nil {
			p = Within(name+"["+strconv.Itoa(i)+"]", p)
		}
		return p
	})
}

// Each is an array of up to most objects. check is called after each, with
// its fault. A fault that check returns refuses the array.
func Each[T any](name string, most int, into *[]T, fields func(*T) []Field, check func(element *T, i int, p *Problem) *Problem) Field {
	return Field{name, func(r *reader) *Problem {
		if _, p := r.begin(name, '[', "an array"); p != nil {
			return p
		}
		*into = []T{}
		var element, zero T
		elementFields := fields(&element)
		depth := r.d.StackDepth()
		for i := 0; r.d.PeekKind() != ']'; i++ {
			if i == most {
				return Invalid(name, "must be 1 to "+strconv.Itoa(most))
			}
			element = zero
			p := r.object(elementFields)
			r.skipTo(depth)
			if r.broken != nil {
				return r.broken
			}
			p = check(&element, i, p)
			if p != nil {
				return p
			}
			*into = append(*into, element)
		}
		r.token()
		return r.broken
	}, false}
}

// reader reads one JSON text up to its first syntax error.
type reader struct {
	in     bytes.Buffer
	d      *jsontext.Decoder
	broken *Problem
}

// readers allow repeated names: object refuses and names them.
var readers = sync.Pool{New: func() any { return &reader{d: jsontext.NewDecoder(&bytes.Buffer{})} }}

// token returns a token without a kind after a syntax error.
func (r *reader) token() jsontext.Token {
	if r.broken != nil {
		return jsontext.Token{}
	}
	t, err := r.d.ReadToken()
	switch {
	case err != nil:
		r.broken = brokenText(err)
		return jsontext.Token{}
	case r.d.StackDepth() > depthMax:
		r.broken = Malformed("The body is nested more than " + strconv.Itoa(depthMax) + " deep.")
	}
	return t
}

func (r *reader) begin(name string, kind jsontext.Kind, wanted string) (jsontext.Token, *Problem) {
	t := r.token()
	switch {
	case r.broken != nil:
		return t, r.broken
	case t.Kind() == kind:
		return t, nil
	case t.Kind() == 'n':
		return t, Invalid(name, "must be "+wanted+", not null; leave it out instead")
	default:
		return t, Invalid(name, "must be "+wanted)
	}
}

// object reads an object up to the first refused field.
func (r *reader) object(fields []Field) *Problem {
	if _, p := r.begin("", '{', "an object"); p != nil {
		return p
	}
	var seen uint64
	for {
		t := r.token()
		if t.Kind() != '"' {
			return cmp.Or(r.broken, missing(fields, seen))
		}
		name := t.String()
		i := slices.IndexFunc(fields, func(f Field) bool { return f.Name == name })
		if i < 0 {
			return Invalid(Shorten(name), "is not a known field")
		}
		if seen&(1<<i) != 0 {
			return Invalid(name, "is there twice")
		}
		seen |= 1 << i
		if p := fields[i].read(r); p != nil {
			return p
		}
	}
}

func missing(fields []Field, seen uint64) *Problem {
	for i := range fields {
		if fields[i].required && seen&(1<<i) == 0 {
			return Invalid(fields[i].Name, "is required")
		}
	}
	return nil
}

// skipTo skips what is nested deeper than depth.
func (r *reader) skipTo(depth int) {
	for r.broken == nil && r.d.StackDepth() > depth {
		r.token()
	}
}

func (r *reader) end() {
	if r.broken != nil {
		return
	}
	if _, err := r.d.ReadToken(); !errors.Is(err, io.EOF) {
		r.broken = brokenText(err)
	}
}

func brokenText(err error) *Problem {
	switch syntax, ok := errors.AsType[*jsontext.SyntacticError](err); {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return Malformed("The body ends early.")
	case ok:
		return Malformed("The body is not JSON in UTF-8 at byte " + strconv.FormatInt(syntax.ByteOffset+1, 10) + ".")
	case err == nil:
		return Malformed("The body goes on after its JSON object.")
	default:
		return Malformed("The body is empty.")
	}
}

// Shorten shortens an unknown field's name for an answer.
func Shorten(name string) string {
	const most = 64
	if len(name) <= most {
		return name
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(name[cut]) {
		cut--
	}
	return name[:cut] + "…"
}

// Within adds the list's element to a refusal.
func Within(element string, p *Problem) *Problem {
	reason := strings.TrimPrefix(p.Detail, p.Field+": ")
	if p.Field != "" {
		element += "." + p.Field
	}
	return Invalid(element, reason)
}
