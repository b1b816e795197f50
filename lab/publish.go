package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Markers between which Publish puts the figures.
const (
	firstMarker = "<!-- figures: lab -->\n"
	lastMarker  = "<!-- end: lab -->"
)

// ErrMarkers says that a document has no place for figures.
var ErrMarkers = errors.New("lab: no place for the figures")

// Publish writes the plots into the folder lab below docs, and table and plots between the markers of lab.md in docs.
func (r *Report) Publish(docs string) error {
	file := filepath.Join(docs, "lab.md")
	old, err := os.ReadFile(file) //nolint:gosec // the caller names the folder
	if err != nil {
		return fmt.Errorf("lab: publish: %w", err)
	}
	plots, err := r.Plot(filepath.Join(docs, "lab"))
	if err != nil {
		return err
	}
	var body strings.Builder
	body.WriteString(r.Markdown())
	for _, p := range plots {
		fmt.Fprintf(&body, "\n![%s](lab/%s)\n", p.Title, p.File)
	}
	doc, err := between(string(old), body.String())
	if err != nil {
		return fmt.Errorf("%w: %s needs the lines %s and %s", err, file, strings.TrimSpace(firstMarker), lastMarker)
	}
	return os.WriteFile(file, []byte(doc), 0o644) //nolint:gosec // a document that all may read
}

// between replaces what stands between the markers.
func between(doc, body string) (string, error) {
	head, rest, found := strings.Cut(doc, firstMarker)
	_, tail, ended := strings.Cut(rest, lastMarker)
	if !found || !ended {
		return "", ErrMarkers
	}
	return head + firstMarker + body + lastMarker + tail, nil
}
