package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// ErrMarkers says that a document has no place for figures.
var ErrMarkers = errors.New("lab: no place for the figures")

// Publish writes the plots into the folder lab below docs, and table and plots between the markers of a part of lab.md in
// docs: <!-- figures: part --> and <!-- end: part -->. An empty part is "mysql" or "mariadb", as the server is.
func (r *Report) Publish(docs, part string) error {
	if part == "" {
		part = r.serverPart()
	}
	file := filepath.Join(docs, "lab.md")
	old, err := os.ReadFile(file) //nolint:gosec // the caller names the folder
	if err != nil {
		return fmt.Errorf("lab: publish: %w", err)
	}
	plots, err := r.Plot(filepath.Join(docs, "lab"), part+"-")
	if err != nil {
		return err
	}
	var body strings.Builder
	body.WriteString(r.Markdown())
	for _, p := range plots {
		fmt.Fprintf(&body, "\n![%s](lab/%s)\n", p.Title, p.File)
	}
	doc, err := between(string(old), part, body.String())
	if err != nil {
		return fmt.Errorf("%w in %s", err, file)
	}
	return os.WriteFile(file, []byte(doc), 0o644) //nolint:gosec // a document that all may read
}

func (r *Report) serverPart() string {
	for _, server := range r.Servers {
		if strings.HasPrefix(server, "MariaDB") {
			return "mariadb"
		}
	}
	return "mysql"
}

// between replaces what stands between the markers of a part.
func between(doc, part, body string) (string, error) {
	first := "<!-- figures: " + part + " -->\n"
	last := "<!-- end: " + part + " -->"
	head, rest, found := strings.Cut(doc, first)
	_, tail, ended := strings.Cut(rest, last)
	if !found || !ended {
		return "", fmt.Errorf("%w: %s… %s", ErrMarkers, first, last)
	}
	return head + first + body + last + tail, nil
}
