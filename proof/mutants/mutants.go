// Package mutants builds programs and tests with small mistakes, to check
// that a test notices. It does not modify the module's files: the toolchain
// gets changed copies by -overlay. Its tests try the mutants.
//
// A mutant is a file in the folder patches: a header, an empty line, and a
// unified diff. The header describes the mistake, names the test that must
// fail, and says whether everyday runs try the mutant:
//
//	Mutant: an expired token passes
//	Test: ./api/auth -run TestTokensFile
//	Everyday: yes
//
// At most 40 mutants cover the scripts, the writer and the rules
// of the log. Other packages have tests enough.
//
// A hunk is found by its text, which must occur in the file
// once. Line numbers are ignored. `git diff -U1` makes one.
package mutants

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Edit replaces a text of a module's file. The text must occur once.
type Edit struct{ File, Old, New string }

// Overlay writes changed copies of files of the module at root
// into a folder, and returns the file for -overlay. It fails
// unless each edit's text occurs exactly once.
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
