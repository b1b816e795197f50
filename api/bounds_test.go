package api_test

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"dibs/api"
	"dibs/internal/testkit/apitest"
	"dibs/models"
)

// beyond returns values that a schema forbids, by the violated keyword.
func beyond(s *openapi3.Schema) map[string]any {
	all := map[string]any{}
	if s.MaxLength != nil {
		all["maxLength"] = strings.Repeat("x", int(*s.MaxLength)+1)
	}
	if s.MinLength > 0 {
		all["minLength"] = ""
	}
	if s.Pattern != "" {
		all["pattern"] = "\u00e9 \u00e9"
	}
	if len(s.Enum) > 0 {
		all["enum"] = "no-such-value"
	}
	if s.Max != nil {
		all["maximum"] = *s.Max + 1
	}
	if s.Min != nil {
		all["minimum"] = *s.Min - 1
	}
	if s.MaxItems != nil && *s.MaxItems < 2000 { // more need a body of megabytes
		all["maxItems"] = make([]map[string]any, *s.MaxItems+1)
	}
	switch {
	case s.Type.Is("object"):
		all["type"] = "a text"
	case s.Type != nil:
		all["type"] = map[string]any{"an": "object"}
	}
	return all
}

// Every limit in the document must be enforced: each violation is 422.
func TestOpenAPI_WhatABodyMayHoldIsEnforced(t *testing.T) {
	t.Parallel()
	fake := apitest.NewFake(apitest.Coupon("x", 9), models.Campaign{ID: "p", Kind: models.KindPacket})
	fake.Campaigns["x"].Rows = []models.Claim{{ID: "x", CampaignID: "x", UserID: "u", Status: models.ClaimClaimed}}
	h := apitest.NewServer(t, fake, api.Config{})
	doc, _ := apitest.Document(t, h)
	tried := 0
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			if op.RequestBody == nil {
				continue
			}
			content := op.RequestBody.Value.Content["application/json"]
			example, err := json.Marshal(content.Example)
			require.NoError(t, err)
			send := func(what string, change func(body map[string]any)) {
				t.Helper()
				var body map[string]any
				require.NoError(t, json.Unmarshal(example, &body))
				change(body)
				text, err := json.Marshal(body)
				require.NoError(t, err)
				url := strings.ReplaceAll(path, "{id}", "x")
				headers := []string{"Content-Type: application/json"}
				if strings.HasSuffix(path, "/packets") {
					url = strings.ReplaceAll(path, "{id}", "p")
					headers = append(headers, "Idempotency-Key: k")
				}
				w := apitest.Ask(h, method, url, string(text), headers...)
				status := w.Code
				if path == "/v1/claims:batch" && status == 200 {
					require.Contains(t, w.Body.String(), `"status":422`, "%s %s %s", method, path, what)
					status = 422
				}
				require.Equal(t, 422, status, "%s %s %s: %.200s", method, path, what, w.Body)
				tried++
			}
			for name, property := range content.Schema.Value.Properties {
				for bound, value := range beyond(property.Value) {
					send(name+" "+bound, func(body map[string]any) { body[name] = value })
				}
				if property.Value.Items == nil {
					continue
				}
				for field, inner := range property.Value.Items.Value.Properties {
					for bound, value := range beyond(inner.Value) {
						send(name+"[]."+field+" "+bound, func(body map[string]any) {
							element := map[string]any{}
							if list, _ := body[name].([]any); len(list) > 0 {
								first, _ := list[0].(map[string]any)
								maps.Copy(element, first)
							} else if name == "limits" {
								element = map[string]any{"by": "user", "per": "hour", "max": 1}
							}
							element[field] = value
							body[name] = []any{element}
						})
					}
				}
			}
		}
	}
	require.Greater(t, tried, 80)
}
