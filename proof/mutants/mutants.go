// Package mutants builds programs and tests with small mistakes in them, to see
// whether a test notices. The files of the module are not touched: the
// toolchain is given changed copies by -overlay. Its tests try the mutants.
//
// A mutant is a file in the folder patches: a header, an empty line, and a
// unified diff. The header says what is wrong, which test must fail, and
// whether the mutant is tried every day:
//
//	Mutant: an expired token passes
//	Test: ./api/auth -run TestTokensFile
//	Everyday: yes
//
// There are mutants of the scripts, of the writer and of the rules of the log,
// at most 40: other packages have tests enough.
//
// A hunk is found by its text, which must stand in the file once; line numbers
// say nothing. `git diff -U1` makes one.
package mutants

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Edit replaces a text of a file of the module. The text must occur once.
type Edit struct{ File, Old, New string }

// Overlay writes changed copies of files of the module at root into a folder,
// and returns the file that -overlay takes. It fails when an edit has no place
// in its file, or several.
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
