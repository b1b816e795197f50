package tracing

import "strings"

const (
	traceParent = "traceparent"
	// parentLength is the length of a version 00 traceparent.
	parentLength = 55
	// metadataHead precedes the traceparent in an entry's metadata:
	// a MessagePack map of one, as watermill writes it. claim.lua
	// has the same bytes.
	metadataHead = "\x81\xab" + traceParent + "\xd9\x37"
)

// ParentIn returns the traceparent in the metadata of
// claim.lua's entry, or "".
func ParentIn(metadata string) string {
	parent, found := strings.CutPrefix(metadata, metadataHead)
	if !found || len(parent) != parentLength {
		return ""
	}
	return parent
}
