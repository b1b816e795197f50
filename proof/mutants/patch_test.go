package mutants_test

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"dibs/proof/mutants"
)

// mutant is a patch and the test that must fail with it.
type mutant struct {
	Name     string
	Package  string // as "./api/auth"
	Run      string // pattern of the tests' names
	Everyday bool
	Edits    []mutants.Edit
}

// selects reports whether the pattern selects a test, given with names joined
// by "/". Alternatives in parentheses are not supported.
func (m *mutant) selects(test string) bool {
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

func parse(text string) (m mutant, err error) {
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

func parseDiff(diff string) (edits []mutants.Edit, err error) {
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
			edits = append(edits, mutants.Edit{File: file})
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
