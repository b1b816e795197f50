package asyncapi_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"dibs/docs/asyncapi"
	"dibs/models"
	"dibs/models/event"
)

// document is what of the document the tests look at.
type document struct {
	AsyncAPI   string `json:"asyncapi"`
	Components struct {
		Schemas  map[string]*openapi3.Schema `json:"schemas"`
		Messages map[string]struct {
			Name    string            `json:"name"`
			Payload map[string]string `json:"payload"`
		} `json:"messages"`
	} `json:"components"`
}

func read(t *testing.T) (doc document, byType map[string]*openapi3.Schema) {
	t.Helper()
	require.NoError(t, json.Unmarshal(asyncapi.Document, &doc))
	byType = map[string]*openapi3.Schema{}
	for _, m := range doc.Components.Messages {
		byType[m.Name] = doc.Components.Schemas[strings.TrimPrefix(m.Payload["$ref"], "#/components/schemas/")]
		require.NotNil(t, byType[m.Name], m.Name)
	}
	return doc, byType
}

// TestRealEventsAreAsTheDocumentSays: the events that package models is held
// to, byte for byte.
func TestRealEventsAreAsTheDocumentSays(t *testing.T) {
	t.Parallel()
	doc, byType := read(t)
	require.Equal(t, "3.0.0", doc.AsyncAPI)
	text, err := os.ReadFile("../../models/testdata/events.jsonl")
	require.NoError(t, err)
	seen := map[string]bool{}
	givenUp, err := json.Marshal(&event.Event{
		V: 1, Type: event.ClaimsGivenUp, ID: "g", CampaignID: "spring", Quantity: 7, IDs: []string{"a"}, Seqs: [][2]int64{{4, 9}},
		At: models.NewTime(time.Now()),
	})
	require.NoError(t, err)
	dropped, err := json.Marshal(&event.Event{
		V: 1, Type: event.ClaimsDropped, ID: "d", CampaignID: "spring", Shard: 2, IDs: []string{"a"}, At: models.NewTime(time.Now()),
	})
	require.NoError(t, err)
	deleted, err := json.Marshal(&event.Event{V: 1, Type: event.CampaignDeleted, ID: "x", CampaignID: "spring", At: models.NewTime(time.Now())})
	require.NoError(t, err)
	all := string(text) + string(givenUp) + "\n" + string(dropped) + "\n" + string(deleted) + "\n"
	for line := range strings.Lines(all) {
		require.NoError(t, Conforms(byType, []byte(line)), line)
		var e event.Event
		require.NoError(t, json.Unmarshal([]byte(line), &e))
		seen[string(e.Type)] = true
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(byType)), slices.Collect(maps.Keys(seen)), "each type has its event, and each event its type")
}

// Conforms holds one event to the schema of its type: nothing missing,
// nothing wrong, nothing that is not described.
func Conforms(byType map[string]*openapi3.Schema, event []byte) error {
	var fields map[string]any
	if err := json.Unmarshal(event, &fields); err != nil {
		return err
	}
	schema := byType[fields["type"].(string)]
	closed := *schema
	closed.AdditionalProperties = openapi3.AdditionalProperties{Has: new(false)}
	return closed.VisitJSON(fields)
}

func TestTheDocumentIsHeldTo(t *testing.T) {
	t.Parallel()
	_, byType := read(t)
	good := `{"v":1,"type":"claim.accepted","id":"a","campaign_id":"spring","user_id":"ada","quantity":2,"seq":17,"at":"2026-11-21T04:47:02.663Z"}`
	require.NoError(t, Conforms(byType, []byte(good)))
	for _, spoil := range [][2]string{
		{`"seq":17,`, ``}, {`"seq":17`, `"seq":"17"`}, {`"v":1`, `"v":2`}, {`"v":1`, `"v":1,"x":1`}, {`.663Z`, `Z`}, {`"quantity":2`, `"quantity":0`},
	} {
		require.Error(t, Conforms(byType, []byte(strings.Replace(good, spoil[0], spoil[1], 1))), "%v", spoil)
	}
}

// TestEveryFieldOfAnEventIsDescribed: what the code may write stands in some
// schema.
func TestEveryFieldOfAnEventIsDescribed(t *testing.T) {
	t.Parallel()
	_, byType := read(t)
	described := map[string]bool{}
	for _, schema := range byType {
		for name := range schema.Properties {
			described[name] = true
		}
	}
	for f := range reflect.TypeFor[event.Event]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		require.True(t, described[name], name)
	}
}

// TestAsyncAPIsOwnParserTakesTheDocument runs @asyncapi/parser where npm can
// bring it.
func TestAsyncAPIsOwnParserTakesTheDocument(t *testing.T) {
	t.Parallel()
	npm, err := exec.LookPath("npm")
	if err != nil {
		t.Skip("NO NPM: asyncapi.json is not held to AsyncAPI's own parser. Install Node.js with npm.")
	}
	folder := os.Getenv("DIBS_NPM") // a folder that has it saves the download
	if folder == "" {
		folder = t.TempDir()
		install := exec.CommandContext(t.Context(), npm, "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "@asyncapi/parser@3.6.3")
		install.Dir, install.WaitDelay = folder, time.Second
		if said, err := install.CombinedOutput(); err != nil {
			t.Skipf("NO REGISTRY: npm can't bring @asyncapi/parser: %v %s", err, said)
		}
	}
	script, err := os.ReadFile("check.mjs")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "check.mjs"), script, 0o600))
	here, err := filepath.Abs("asyncapi.json")
	require.NoError(t, err)
	check := exec.CommandContext(t.Context(), "node", "check.mjs", here)
	check.Dir = folder
	said, err := check.CombinedOutput()
	require.NoError(t, err, "%s", said)
	require.False(t, bytes.Contains(said, []byte("warning")), "%s", said)
}
