package deploy_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// indexFile is an index of all pages in the format of https://llmstxt.org.
const indexFile = "docs/llms.txt"

// Each page needs a line with its title and first sentence.
// `make docs-index` writes it.
func TestIndex_HasEveryPage(t *testing.T) {
	t.Parallel()
	all := pages(t)
	var b strings.Builder
	b.WriteString("# Dibs\n\n> " + lead(all["README.md"]) + "\n")
	for _, part := range []struct{ title, folder string }{
		{"Pages", "docs/"}, {"Guides", "docs/guides/"}, {"The API", "docs/api/"}, {"Decisions", "docs/decisions/"},
	} {
		b.WriteString("\n## " + part.title + "\n\n")
		for _, path := range slices.Sorted(maps.Keys(all)) {
			name, isPage := strings.CutPrefix(path, part.folder)
			if !isPage || strings.Contains(name, "/") {
				continue
			}
			title, _, _ := strings.Cut(strings.TrimPrefix(all[path], "# "), "\n")
			_, _ = fmt.Fprintf(&b, "- [%s](%s): %s\n", title, strings.TrimPrefix(path, "docs/"), lead(all[path]))
		}
	}
	if os.Getenv("DIBS_WRITE") != "" {
		require.NoError(t, os.WriteFile(root+indexFile, []byte(b.String()), 0o600))
	}
	have, err := os.ReadFile(root + indexFile)
	require.NoError(t, err)
	require.Equal(t, b.String(), string(have), "make docs-index")
}

// lead is the first sentence of a page's first paragraph.
func lead(text string) string {
	for paragraph := range strings.SplitSeq(codeBlock.ReplaceAllString(text, ""), "\n\n") {
		paragraph = strings.Join(strings.Fields(linked.ReplaceAllString(paragraph, "$1")), " ")
		if paragraph == "" || strings.ContainsAny(paragraph[:1], "#|-<![*") {
			continue
		}
		for _, end := range []string{". ", ": "} {
			if first, _, has := strings.Cut(paragraph, end); has {
				return strings.TrimSuffix(first, ".") + "."
			}
		}
		return paragraph
	}
	return ""
}
