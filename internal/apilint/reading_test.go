package apilint

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/docs/asyncapi"
	"dibs/internal/testkit/apitest"
)

// docs/api must match the two documents it is generated from.
// DIBS_WRITE=1, as set by `make api-docs`, writes it.
func TestDocsAPI_IsTheDocumentsForReading(t *testing.T) {
	t.Parallel()
	openAPI := apitest.Ask(apitest.NewServer(t, apitest.NewFake(), api.Config{}), "GET", "/openapi.json", "").Body.Bytes()
	for name, text := range map[string]string{"README.md": readHTTP(t, openAPI), "events.md": readEvents(t, asyncapi.Document)} {
		file := filepath.Join("..", "..", "docs", "api", name)
		if os.Getenv("DIBS_WRITE") == "1" {
			require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
			require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
		}
		written, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, text, string(written), "docs/api/%s is not what the document says: run make api-docs", name)
	}
}

// schema is the part of JSON Schema used by both documents.
type schema struct {
	Ref         string             `json:"$ref"`
	Type        any                `json:"type"` // a name, or names
	Format      string             `json:"format"`
	Description string             `json:"description"`
	Enum        []any              `json:"enum"`
	Items       *schema            `json:"items"`
	Properties  map[string]*schema `json:"properties"`
	Required    []string           `json:"required"`
}

type media map[string]struct {
	Schema  schema          `json:"schema"`
	Example json.RawMessage `json:"example"`
}

type operation struct {
	Summary, Description string
	Tags                 []string
	Parameters           []struct {
		Name, In, Description string
		Required              bool
		Schema                schema
	}
	RequestBody struct{ Content media } `json:"requestBody"` //nolint:tagliatelle // OpenAPI's
	Responses   map[string]struct {
		Description string
		Content     media
	}
}

type document struct {
	Info       struct{ Title, Description string }
	Tags       []struct{ Name, Description string }
	Paths      map[string]map[string]operation
	Channels   map[string]struct{ Address, Description string }
	Components struct {
		Schemas  map[string]*schema
		Messages map[string]struct {
			Name, Summary string
			Payload       schema
		}
	}
}

// page is a Markdown page being written.
type page struct {
	strings.Builder
	shown map[string]bool // examples
}

func (p *page) linef(format string, args ...any) { _, _ = fmt.Fprintf(p, format+"\n", args...) }

func (p *page) row(cells ...string) {
	for i, cell := range cells {
		cells[i] = strings.ReplaceAll(strings.ReplaceAll(cell, "\n", " "), "|", "\\|")
	}
	p.linef("| %s |", strings.Join(cells, " | "))
}

func (p *page) head(cells ...string) {
	p.linef("")
	p.row(cells...)
	p.linef("|%s", strings.Repeat("---|", len(cells)))
}

const notice = "<!-- Made by `make api-docs`. A test holds it to the document. -->\n"

func readHTTP(t *testing.T, text []byte) string {
	t.Helper()
	var d document
	require.NoError(t, json.Unmarshal(text, &d))
	p := &page{shown: make(map[string]bool)}
	p.linef("%s\n# The HTTP API\n\n%s\n\nThis is `/openapi.json` for reading. What happens in the stream is in [events.md](events.md)."+
		"\n\nA refusal is a [Problem](#problem). Any operation may be refused with %s; its own refusals are listed with it. An example that several operations share is shown once.",
		notice, d.Info.Description, strings.Join(everywhere, "; "))
	for _, tag := range d.Tags {
		p.linef("\n## %s%s\n\n%s", strings.ToUpper(tag.Name[:1]), tag.Name[1:], tag.Description)
		for _, path := range slices.Sorted(maps.Keys(d.Paths)) {
			for _, method := range slices.Sorted(maps.Keys(d.Paths[path])) {
				if op := d.Paths[path][method]; op.Tags[0] == tag.Name {
					p.operation(strings.ToUpper(method), path, &op)
				}
			}
		}
	}
	p.types(d.Components.Schemas)
	return p.String()
}

// everywhere are refusals of most operations, listed once.
var everywhere = []string{
	"400 malformed", "401 unauthorized", "403 forbidden", "413 too_large", "415 unsupported_media_type", "422 invalid", "429 rate_limited", "500 internal",
	"503 unavailable",
}

func (p *page) operation(method, path string, op *operation) {
	p.linef("\n### `%s %s`\n\n**%s.** %s", method, path, op.Summary, op.Description)
	if len(op.Parameters) > 0 {
		p.linef("")
	}
	for _, one := range op.Parameters {
		p.linef("- `%s` (%s%s): %s", one.Name, one.In, must(one.Required), one.Description)
	}
	for _, kind := range slices.Sorted(maps.Keys(op.RequestBody.Content)) {
		content := op.RequestBody.Content[kind]
		p.linef("\nBody: %s (`%s`)", content.Schema.name(), kind)
		p.example(content.Example)
	}
	var refusals []string
	p.linef("")
	for _, status := range slices.Sorted(maps.Keys(op.Responses)) {
		answer := op.Responses[status]
		if status >= "400" {
			refusals = append(refusals, status+" "+answer.Description)
			continue
		}
		var bodies []string
		for _, kind := range slices.Sorted(maps.Keys(answer.Content)) {
			content := answer.Content[kind]
			bodies = append(bodies, " "+content.Schema.name())
		}
		if len(bodies) == 0 {
			bodies = []string{" no body"}
		}
		p.linef("Answer %s:%s. %s.", status, strings.Join(bodies, ","), answer.Description)
	}
	refusals = slices.DeleteFunc(refusals, func(one string) bool { return slices.Contains(everywhere, one) })
	if len(refusals) > 0 {
		p.linef("Refused with %s.", strings.Join(refusals, "; "))
	}
	for _, status := range slices.Sorted(maps.Keys(op.Responses)) {
		for _, content := range op.Responses[status].Content {
			if status < "300" && len(content.Example) > 0 {
				p.example(content.Example)
			}
		}
	}
}

// example writes an example new to the page, in one line if it fits.
func (p *page) example(text json.RawMessage) {
	if len(text) == 0 || text[0] != '{' {
		return
	}
	var parsed any
	_ = json.Unmarshal(text, &parsed) // it came from a document
	shown, _ := json.Marshal(parsed)
	if p.shown[string(shown)] {
		return
	}
	p.shown[string(shown)] = true
	if len(shown) > 150 {
		shown, _ = json.MarshalIndent(parsed, "", "  ")
	}
	p.linef("\n```json\n%s\n```", shown)
}

func readEvents(t *testing.T, text []byte) string {
	t.Helper()
	var d document
	require.NoError(t, json.Unmarshal(text, &d))
	p := &page{}
	p.linef("%s\n# The stream\n\n%s\n\nThis is `/asyncapi.json` for reading.", notice, d.Info.Description)
	for _, name := range slices.Sorted(maps.Keys(d.Channels)) {
		p.linef("\nKey: `%s`. %s", d.Channels[name].Address, d.Channels[name].Description)
	}
	p.head("event", "says", "fields")
	for _, name := range slices.Sorted(maps.Keys(d.Components.Messages)) {
		message := d.Components.Messages[name]
		p.row("`"+message.Name+"`", message.Summary, message.Payload.name())
	}
	p.events(d.Components.Schemas)
	return p.String()
}

// events lists events' fields once, with the most common
// description, and the fields of each event by name.
func (p *page) events(all map[string]*schema) {
	said := make(map[string]map[string]int) // descriptions of a field, by number of events
	for _, s := range all {
		for field, of := range s.Properties {
			if said[field] == nil {
				said[field] = make(map[string]int)
			}
			said[field][of.said()]++
		}
	}
	common := make(map[string]string)
	p.linef("\n## Fields\n")
	for _, field := range slices.Sorted(maps.Keys(said)) {
		texts := slices.Sorted(maps.Keys(said[field]))
		common[field] = slices.MaxFunc(texts, func(a, b string) int { return said[field][a] - said[field][b] })
		if field != "type" {
			p.linef("- `%s` %s", field, common[field])
		}
	}
	p.linef("\n## Types")
	for _, name := range slices.Sorted(maps.Keys(all)) {
		var always, others, differs []string
		for _, field := range slices.Sorted(maps.Keys(all[name].Properties)) {
			if slices.Contains(all[name].Required, field) {
				always = append(always, "`"+field+"`")
			} else {
				others = append(others, "`"+field+"`")
			}
			if text := all[name].Properties[field].said(); text != common[field] && field != "type" {
				differs = append(differs, "\n- `"+field+"` "+text)
			}
		}
		p.linef("\n### %s\n", name)
		if len(always) > 0 {
			p.linef("Always: %s.", strings.Join(always, ", "))
		}
		if len(others) > 0 {
			p.linef("May have: %s.", strings.Join(others, ", "))
		}
		if len(differs) > 0 {
			p.linef("%s", strings.Join(differs, ""))
		}
	}
}

func (s *schema) said() string { return "(" + s.name() + ")" + colon(s.Description) }

func colon(description string) string {
	if description == "" {
		return ""
	}
	return ": " + strings.ReplaceAll(description, "\n", " ")
}

// types writes a table of fields for each named schema.
func (p *page) types(all map[string]*schema) {
	p.linef("\n## Types")
	for _, name := range slices.Sorted(maps.Keys(all)) {
		s := all[name]
		p.linef("\n### %s", name)
		if s.Description != "" {
			p.linef("\n%s", s.Description)
		}
		if len(s.Properties) == 0 {
			p.linef("\n%s", s.name())
			continue
		}
		p.linef("")
		for _, field := range slices.Sorted(maps.Keys(s.Properties)) {
			of := s.Properties[field]
			p.linef("- `%s` (%s%s)%s", field, of.name(), must(slices.Contains(s.Required, field)), colon(of.Description))
		}
	}
}

func must(is bool) string {
	if is {
		return ", always"
	}
	return ""
}

func (s *schema) name() string {
	if s.Ref != "" {
		name := s.Ref[strings.LastIndexByte(s.Ref, '/')+1:]
		return "[" + name + "](#" + strings.ToLower(name) + ")"
	}
	var kinds []string
	switch is := s.Type.(type) {
	case string:
		kinds = append(kinds, is)
	case []any:
		for _, one := range is {
			kinds = append(kinds, fmt.Sprint(one))
		}
	}
	kind := cmp.Or(strings.Join(kinds, " or "), "anything")
	switch {
	case s.Items != nil:
		return "list of " + s.Items.name()
	case len(s.Enum) > 0:
		values := make([]string, len(s.Enum))
		for i, v := range s.Enum {
			values[i] = fmt.Sprintf("`%v`", v)
		}
		return strings.Join(values, ", ")
	case s.Format != "" && s.Format != "int64":
		return kind + ", " + s.Format
	}
	return kind
}
