package deploy_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// pages are the repository's Markdown files, by path.
func pages(t *testing.T) map[string]string {
	t.Helper()
	found := make(map[string]string)
	for _, pattern := range []string{"*.md", "proof/*.md", "docs/*.md", "docs/*/*.md"} {
		paths, err := filepath.Glob(root + pattern)
		require.NoError(t, err)
		for _, path := range paths {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			found[strings.TrimPrefix(path, root)] = string(text)
		}
	}
	require.Greater(t, len(found), 60)
	return found
}

var codeBlock = regexp.MustCompile("(?ms)^ *```.*?^ *```$")

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	linked  = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	notSlug = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// anchors are the link targets of a page's headings.
func anchors(text string) map[string]bool {
	found := make(map[string]bool)
	for _, h := range heading.FindAllStringSubmatch(codeBlock.ReplaceAllString(text, ""), -1) {
		title := notSlug.ReplaceAllString(strings.ToLower(linked.ReplaceAllString(h[1], "$1")), "")
		found[strings.ReplaceAll(strings.TrimSpace(title), " ", "-")] = true
	}
	return found
}

func TestDocs_LinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	all := pages(t)
	checked := 0
	for path, text := range all {
		for _, found := range link.FindAllStringSubmatch(codeBlock.ReplaceAllString(text, ""), -1) {
			file, anchor, _ := strings.Cut(found[1], "#")
			if strings.Contains(file, "://") {
				continue
			}
			target := path
			if file != "" {
				target = filepath.Join(filepath.Dir(path), file)
			}
			_, err := os.Stat(root + target)
			require.NoError(t, err, "%s links to it", path)
			if page, known := all[target]; known && anchor != "" {
				require.True(t, anchors(page)[anchor], "%s links to %s", path, found[1])
			}
			checked++
		}
	}
	require.Greater(t, checked, 100)
}
