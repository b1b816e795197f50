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

	"dibs/models"
)

// FieldsOf returns a body's fields by the tags that the OpenAPI document
// shows: json, minLength, maxLength, pattern, enum, minimum and maximum. A
// field without omitempty is required. A Field of more replaces one of the
// same name. body points to a struct of strings, int64s and pointers to them.
func FieldsOf(body any, more ...Field) []Field {
	v := reflect.ValueOf(body).Elem()
	fields := more
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, omits, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || slices.ContainsFunc(more, func(known Field) bool { return known.Name == name }) {
			continue
		}
		fields = append(fields, Field{name, readerOf(name, v.Field(i), f.Tag), omits == ""})
	}
	return fields
}

func readerOf(name string, into reflect.Value, tags reflect.StructTag) func(r *reader) *Problem {
	kind := into.Type()
	if kind.Kind() == reflect.Pointer {
		kind = kind.Elem()
	}
	set := func(value any) {
		v := reflect.ValueOf(value).Convert(kind)
		if into.Kind() == reflect.Pointer {
			into.Set(reflect.New(kind))
			into.Elem().Set(v)
			return
		}
		into.Set(v)
	}
	switch kind.Kind() { //nolint:exhaustive // bodies have no others
	case reflect.String:
		return func(r *reader) *Problem {
			t, p := r.begin(name, '"', "a string")
			if p == nil {
				set(t.String())
				p = checkTags(name, t.String(), tags)
			}
			return p
		}
	case reflect.Int64:
		var n int64
		whole := Integer(name, &n, number(tags, "minimum", math.MinInt64), number(tags, "maximum", math.MaxInt64))
		return func(r *reader) *Problem {
			p := whole.read(r)
			set(n)
			return p
		}
	}
	panic(fmt.Sprintf("wire: field %s is of type %s", name, kind))
}

// idPattern is that of campaign and packet ids, whose check does more.
const idPattern = "^[A-Za-z0-9._-]+$"

func checkTags(name, text string, tags reflect.StructTag) *Problem {
	least := number(tags, "minLength", 0)
	most := number(tags, "maxLength", math.MaxInt64)
	n := int64(utf8.RuneCountInString(text))
	enum := tags.Get("enum")
	pattern := tags.Get("pattern")
	switch {
	case pattern == idPattern:
		return InvalidID(name, models.CheckCampaignID(text))
	case enum != "" && !slices.Contains(strings.Split(enum, ","), text):
		return Invalid(name, "must be one of "+strings.ReplaceAll(enum, ",", ", "))
	case n > most && least == 0:
		return Invalid(name, "must be at most "+strconv.FormatInt(most, 10)+" characters")
	case n < least || n > most:
		return Invalid(name, "must be "+strconv.FormatInt(least, 10)+" to "+strconv.FormatInt(most, 10)+" characters")
	case pattern != "" && !regexp.MustCompile(pattern).MatchString(text):
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
