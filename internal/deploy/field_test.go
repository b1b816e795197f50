package deploy_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorm.io/gorm"

	"dibs/api"
	"dibs/client"
	"dibs/internal/sqlstore"
	"dibs/internal/testkit/apitest"
	"dibs/internal/testkit/syncertest"
	"dibs/models"
)

// ofTheProgram are columns of definitions that are not set by operators.
var ofTheProgram = []string{"campaign_id", "version", "changes", "told_line", "dealt", "pause_id", "created_digest", "created_at", "closed_told_at"}

var fixed = []string{"kind", "shards", "shard_by", "time_zone", "currency", "sender_id", "hold_for", "hold_max"}

// place is where a campaign's field must appear.
type place struct {
	name  string
	words string   // all its content
	lacks []string // fields that don't belong there
}

func (p place) forgets(field string) bool {
	dashed := strings.ReplaceAll(field, "_", "-")
	return !regexp.MustCompile(`\b(`+field+`(_ms)?|`+dashed+`)\b`).MatchString(p.words) && !slices.Contains(p.lacks, field)
}

// A new field of a campaign must appear everywhere. Otherwise
// the failure names the missing document or program.
func TestRecipe_AFieldIsEverywhere(t *testing.T) {
	t.Parallel()
	db := syncertest.OpenStore(t, sqlstore.Config{Path: filepath.Join(t.TempDir(), "dibs.db")})
	for _, p := range placesOf(t, db) {
		for column := range strings.FieldsSeq(columnsOf(t, db, "definitions")) {
			field := strings.TrimSuffix(column, "_ms")
			if !slices.Contains(ofTheProgram, column) {
				require.False(t, p.forgets(field), "the field %s is not in %s", field, p.name)
			}
		}
		require.True(t, p.forgets("forgotten"), p.name)
		for _, field := range p.lacks {
			p.lacks = nil
			require.True(t, p.forgets(field), "%s has %s: it is no exception any more", p.name, field)
		}
	}
}

func placesOf(t *testing.T, db *gorm.DB) []place {
	t.Helper()
	document := apitest.Ask(apitest.NewServer(t, apitest.NewFake(), api.Config{}), "GET", "/openapi.json", "").Body.Bytes()
	c := filled()
	return []place{
		{name: "the view defined_lots", words: columnsOf(t, db, "defined_lots")},
		{name: "the view campaigns", words: columnsOf(t, db, "campaigns")},
		{name: "the view campaign_shards", words: columnsOf(t, db, "campaign_shards"), lacks: []string{"public"}},
		{name: "models.DefinitionOf, which the claim stream gets", words: jsonOf(t, models.DefinitionOf(&c, ""))},
		{name: "Campaign.DefinitionJSON, the answers and the audit log", words: jsonOf(t, c.DefinitionJSON())},
		{name: "the body of POST /v1/campaigns", words: bodyOf(t, document, "/v1/campaigns", "post"), lacks: []string{"status"}},
		{name: "the body of PATCH /v1/campaigns/{id}", words: bodyOf(t, document, "/v1/campaigns/{id}", "patch"), lacks: fixed},
		{name: "writeChange of syncer/campaigns/change.go", words: updated(t), lacks: fixed},
		{name: "client.Campaign", words: tagsOf(client.Campaign{})},
		{name: "client.NewCampaign", words: tagsOf(client.NewCampaign{}), lacks: []string{"status"}},
		{name: "cmd/campaign.go", words: read(t, "cmd/campaign.go"), lacks: []string{"sender_id"}},
		{name: "api/console/pages/new.html", words: read(t, "api/console/pages/fields.html") + read(t, "api/console/pages/new.html"), lacks: []string{"status"}},
		{name: "docs/api/README.md", words: read(t, "docs/api/README.md")},
	}
}

// filled is a campaign without empty fields.
func filled() (c models.Campaign) {
	v := reflect.ValueOf(&c).Elem()
	for _, f := range v.Fields() {
		switch f.Interface().(type) {
		case *time.Time:
			f.Set(reflect.ValueOf(new(time.Now())))
		case models.Limits:
			f.Set(reflect.ValueOf(models.Limits{{By: "device", Per: models.PerAll, Max: 1}}))
		default:
			switch f.Kind() {
			case reflect.String:
				f.SetString("x")
			case reflect.Int, reflect.Int64:
				f.SetInt(2)
			}
		}
	}
	return c
}

func jsonOf(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	require.NoError(t, err)
	return string(text)
}

func tagsOf(value any) (words string) {
	for f := range reflect.TypeOf(value).Fields() {
		words += f.Tag.Get("json") + " "
	}
	return words
}

func columnsOf(t *testing.T, db *gorm.DB, table string) string {
	t.Helper()
	var names []string
	require.NoError(t, db.Raw("SELECT name FROM pragma_table_info(?)", table).
		Scan(&names).Error)
	return strings.Join(names, " ")
}

// updated are the columns of definitions that a change writes.
func updated(t *testing.T) string {
	t.Helper()
	_, after, _ := strings.Cut(read(t, "syncer/campaigns/change.go"), "UPDATE definitions SET")
	columns, _, _ := strings.Cut(after, "WHERE")
	return columns
}

func bodyOf(t *testing.T, document []byte, path, method string) string {
	t.Helper()
	var of struct {
		Paths map[string]map[string]struct {
			RequestBody struct {
				Content map[string]struct {
					Schema struct {
						Ref        string                     `json:"$ref"`
						Properties map[string]json.RawMessage `json:"properties"`
					} `json:"schema"`
				} `json:"content"`
			} `json:"requestBody"` //nolint:tagliatelle // OpenAPI says so
		} `json:"paths"`
		Components struct {
			Schemas map[string]struct {
				Properties map[string]json.RawMessage `json:"properties"`
			} `json:"schemas"`
		} `json:"components"`
	}
	require.NoError(t, json.Unmarshal(document, &of))
	var names []string
	for _, content := range of.Paths[path][method].RequestBody.Content {
		properties := content.Schema.Properties
		if content.Schema.Ref != "" {
			properties = of.Components.Schemas[content.Schema.Ref[strings.LastIndexByte(content.Schema.Ref, '/')+1:]].Properties
		}
		for name := range properties {
			names = append(names, name)
		}
	}
	require.NotEmpty(t, names, path)
	return strings.Join(names, " ")
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(root + file)
	require.NoError(t, err)
	return string(text)
}
