// Package asyncapi holds the document of the claim streams: AsyncAPI 3.0,
// with a JSON Schema for each type of event.
package asyncapi

import _ "embed"

// Document is the document, as /asyncapi.json serves it.
//
//go:embed asyncapi.json
var Document []byte
