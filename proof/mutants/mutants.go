// Package mutants builds programs and tests with small mistakes in them, to see whether a test notices. The files of the module are not
// touched: the toolchain is given changed copies by -overlay.
//
// A mutant is a file in the folder patches: a header, an empty line, and a unified diff. The header says what is wrong, which test must
// fail, and whether the mutant is tried every day:
//
//	Mutant: an expired token passes
//	Test: ./api/auth -run TestTokensFile
//	Everyday: yes
//
// In place of Everyday, Equivalent says why no test can notice the mutant, and Survives why none does. These are not tried.
//
// A hunk is found by its text, which must stand in the file once; line numbers say nothing. `git diff -U1` makes one.
package mutants

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Edit replaces a text of a file of the module. The text must occur once.
type Edit struct{ File, Old, New string }

// Mutant is a patch and the test that must fail with it.
type Mutant struct {
	Name     string
	Package  string // as "./api/auth"
	Run      string // pattern of the tests' names
	Everyday bool
	Edits    []Edit

	Equivalent, Survives string // why; "" is that it must be noticed
}

// MustBeNoticed reports whether a test has to fail.
func (m *Mutant) MustBeNoticed() bool { return m.Equivalent == "" && m.Survives == "" }

// Selects reports whether the pattern selects a test, of which it has names joined by "/". Alternatives within parentheses are not known.
func (m *Mutant) Selects(test string) bool {
	names := strings.Split(test, "/")
	for pattern := range strings.SplitSeq(m.Run, "|") {
		parts := strings.Split(pattern, "/")
		matches := len(names) >= len(parts)
		for i := 0; matches && i < len(parts); i++ {
			is, err := regexp.MatchString(parts[i], names[i])
			matches = is && err == nil
		}
		if matches {
			return true
		}
	}
	return false
}

// Parse reads a patch.
func Parse(text string) (m Mutant, err error) {
	header, diff, found := strings.Cut(text, "\n\n")
	if !found {
		return m, errors.New("mutants: no empty line ends the header")
	}
	for line := range strings.SplitSeq(header, "\n") {
		name, value, _ := strings.Cut(line, ": ")
		switch name {
		case "Mutant":
			m.Name = value
		case "Test":
			m.Package, m.Run, found = strings.Cut(value, " -run ")
			if !found {
				return m, fmt.Errorf("mutants: %q is not a package, -run and a pattern", line)
			}
		case "Everyday":
			m.Everyday = value == "yes"
		case "Equivalent":
			m.Equivalent = value
		case "Survives":
			m.Survives = value
		default:
			return m, fmt.Errorf("mutants: unknown line in the header: %q", line)
		}
	}
	m.Edits, err = parseDiff(diff)
	if err == nil && (m.Name == "" || m.Run == "" || len(m.Edits) == 0) {
		err = errors.New("mutants: Mutant, Test and a hunk are needed")
	}
	return m, err
}

// parseDiff reads the hunks of a unified diff.
func parseDiff(diff string) (edits []Edit, err error) {
	file := ""
	for line := range strings.Lines(diff) {
		text := strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "diff "), strings.HasPrefix(line, "index "), strings.HasPrefix(line, "--- "), text == "":
			continue
		case strings.HasPrefix(line, "+++ b/"):
			file = strings.TrimPrefix(text, "+++ b/")
			continue
		case strings.HasPrefix(line, "@@"):
			edits = append(edits, Edit{File: file})
			continue
		case file == "" || len(edits) == 0:
			return nil, fmt.Errorf("mutants: %q stands before the first hunk", text)
		}
		last := &edits[len(edits)-1]
		switch line[0] {
		case ' ':
			last.Old += line[1:]
			last.New += line[1:]
		case '-':
			last.Old += line[1:]
		case '+':
			last.New += line[1:]
		default:
			return nil, fmt.Errorf("mutants: %q is not a line of a hunk", text)
		}
	}
	return edits, nil
}

// Overlay writes changed copies of files of the module at root into a folder, and returns the file that -overlay takes. It fails when an
// edit has no place in its file, or several.
func Overlay(root, folder string, edits []Edit) (string, error) {
	overlay := struct {
		Replace map[string]string `json:"Replace"` //nolint:tagliatelle // as the go command spells it
	}{Replace: map[string]string{}}
	for _, e := range edits {
		path := filepath.Join(root, e.File)
		from := path
		if changed := overlay.Replace[path]; changed != "" {
			from = changed
		}
		text, err := os.ReadFile(from) //nolint:gosec // a file of the module
		if err != nil {
			return "", fmt.Errorf("mutants: %w", err)
		}
		if n := strings.Count(string(text), e.Old); n != 1 || e.Old == e.New {
			return "", fmt.Errorf("mutants: %s holds the text to change %d times, not once; mend the mutant: %s", e.File, n, e.Old)
		}
		changed := filepath.Join(folder, strings.ReplaceAll(e.File, "/", "_"))
		err = os.WriteFile(changed, []byte(strings.Replace(string(text), e.Old, e.New, 1)), 0o600) //nolint:gosec // a test's own folder
		if err != nil {
			return "", fmt.Errorf("mutants: %w", err)
		}
		overlay.Replace[path] = changed
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		return "", fmt.Errorf("mutants: %w", err)
	}
	path := filepath.Join(folder, "overlay.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return "", fmt.Errorf("mutants: %w", err)
	}
	return path, nil
}
