package redisbatch

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Entry is an entry of a stream.
type Entry struct {
	ID     string
	Fields []string // names and values, alternating, in no order
}

// Field returns the value of a field, or "".
func (e *Entry) Field(name string) string {
	for i := 0; i+1 < len(e.Fields); i += 2 {
		if e.Fields[i] == name {
			return e.Fields[i+1]
		}
	}
	return ""
}

// ErrPayload reports a payload that Marshal did not write.
var ErrPayload = errors.New("redisbatch: not the payload of a batch")

// Marshal encodes entries as a payload. It has their number, then for
// each its id, the number of its strings, and names and values,
// alternating. Numbers are unsigned varints as in encoding/binary and
// Protocol Buffers. A string is its length in bytes and its bytes.
func Marshal(entries []Entry) []byte {
	size := binary.MaxVarintLen32
	for i := range entries {
		size += len(entries[i].ID) + 2*binary.MaxVarintLen32
		for _, s := range entries[i].Fields {
			size += len(s) + binary.MaxVarintLen32
		}
	}
	b := binary.AppendUvarint(make([]byte, 0, size), uint64(len(entries)))
	for i := range entries {
		b = appendString(b, entries[i].ID)
		b = binary.AppendUvarint(b, uint64(len(entries[i].Fields)))
		for _, s := range entries[i].Fields {
			b = appendString(b, s)
		}
	}
	return b
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// Unmarshal decodes a payload of Marshal. Errors: ErrPayload.
func Unmarshal(payload []byte) ([]Entry, error) {
	rest := payload
	text := string(payload) // one copy, which all strings share
	number := func() int {
		n, size := binary.Uvarint(rest)
		if size < 1 || n > uint64(len(rest)-size) { // no count exceeds the bytes that follow
			rest = nil
			text = ""
			return -1
		}
		rest = rest[size:]
		return int(n)
	}
	next := func() (s string) {
		if n := number(); n > 0 {
			s = text[len(text)-len(rest):][:n]
			rest = rest[n:]
		}
		return s
	}
	count := number()
	entries := make([]Entry, 0, max(0, count))
	var strings []string
	for i := 0; i < count && text != ""; i++ {
		e := Entry{ID: next()}
		fields := max(0, number())
		if fields > cap(strings) {
			strings = make([]string, 0, max(fields, min(8*(count-i), len(rest))))
		}
		for range fields {
			strings = append(strings, next())
		}
		e.Fields = strings[:fields:fields]
		strings = strings[fields:]
		entries = append(entries, e)
	}
	if text == "" || len(rest) > 0 {
		return nil, fmt.Errorf("%w: %d bytes", ErrPayload, len(payload))
	}
	return entries, nil
}
