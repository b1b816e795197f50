package wire

import (
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// FieldsOf are the fields of a body by the tags of its struct, as the OpenAPI document has them: json, minLength, maxLength, pattern,
// enum, minimum and maximum. A field of more takes the place of the one with its name. body is a pointer to a struct of *string and
// *int64, and of what more reads.
func FieldsOf(body any, more ...Field) []Field {
	v := reflect.ValueOf(body).Elem()
	fields := more
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || slices.ContainsFunc(more, func(known Field) bool { return known.Name == name }) {
			continue
		}
		switch into := v.Field(i).Addr().Interface().(type) {
		case **string:
			fields = append(fields, Field{name, Text(name, into).checked(func() *Problem { return checkTags(name, *into, f.Tag) })})
		case **int64:
			fields = append(fields, OptionalInteger(name, into, number(f.Tag, "minimum", math.MinInt64), number(f.Tag, "maximum", math.MaxInt64)))
		default:
			panic(fmt.Sprintf("wire: field %s is of type %T", name, into))
		}
	}
	return fields
}

// checked reads a field and checks what was read.
func (f Field) checked(check func() *Problem) func(r *reader) *Problem {
	return func(r *reader) *Problem {
		if p := f.read(r); p != nil {
			return p
		}
		return check()
	}
}

// checkTags refuses a text that the tags of its field do not allow; nil was not sent.
func checkTags(name string, text *string, tags reflect.StructTag) *Problem {
	if text == nil {
		return nil
	}
	least := number(tags, "minLength", 0)
	most := number(tags, "maxLength", math.MaxInt64)
	n := int64(utf8.RuneCountInString(*text))
	enum := tags.Get("enum")
	pattern := tags.Get("pattern")
	switch {
	case enum != "" && !slices.Contains(strings.Split(enum, ","), *text):
		return Invalid(name, "must be one of "+strings.ReplaceAll(enum, ",", ", "))
	case n > most && least == 0:
		return Invalid(name, "must be at most "+strconv.FormatInt(most, 10)+" characters")
	case n < least || n > most:
		return Invalid(name, "must be "+strconv.FormatInt(least, 10)+" to "+strconv.FormatInt(most, 10)+" characters")
	case pattern != "" && !regexp.MustCompile(pattern).MatchString(*text):
		return Invalid(name, "must match "+pattern)
	}
	return nil
}

func number(tags reflect.StructTag, name string, otherwise int64) int64 {
	n, err := strconv.ParseInt(tags.Get(name), 10, 64)
	if err != nil {
		return otherwise
	}
	return n
}
