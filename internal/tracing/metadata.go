package tracing

import "strings"

const (
	traceParent = "traceparent"
	// parentLength is that of a traceparent of version 00.
	parentLength = 55
	// metadataHead comes before the traceparent in an entry's metadata: a
	// MessagePack map of one, as watermill writes metadata. claim.lua has it,
	// too.
	metadataHead = "\x81\xab" + traceParent + "\xd9\x37"
)

// ParentIn is the traceparent in the metadata of an entry that claim.lua wrote;
// "" when there is none.
func ParentIn(metadata string) string {
	parent, found := strings.CutPrefix(metadata, metadataHead)
	if !found || len(parent) != parentLength {
		return ""
	}
	return parent
}
