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

// Publish writes the plots and all figures (part.csv) into the folder lab below docs, and what they are of between the markers of a part
// of lab.md in docs: <!-- figures: part --> and <!-- end: part -->. An empty part is "mysql" or "mariadb", as the server is.
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
	fmt.Fprintf(&body, "%s\n\n%s", r.facts(), r.below("- "))
	for _, p := range plots {
		fmt.Fprintf(&body, "\n![%s](lab/%s)\n", p.Title, p.File)
	}
	fmt.Fprintf(&body, "\n[All figures](lab/%s.csv)\n", part)
	doc, err := between(string(old), part, body.String())
	if err != nil {
		return fmt.Errorf("%w in %s", err, file)
	}
	figures := []byte(r.CSV())
	if err := os.WriteFile(filepath.Join(docs, "lab", part+".csv"), figures, 0o644); err != nil { //nolint:gosec // as the document
		return fmt.Errorf("lab: publish: %w", err)
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
