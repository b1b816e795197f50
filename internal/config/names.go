package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
)

// serviceLink are the variables that Kubernetes sets in every pod for each
// Service, here for those whose names begin with dibs. Those that end in _PORT
// are told by their value: DIBS_HTTP_PORT=8080 is a mistake.
var serviceLink = regexp.MustCompile(
	`^DIBS_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)=|^DIBS_(\w+_)?PORT=(tcp|udp|sctp)://`)

// misspeltBy is the most letters by which a variable differs from the one that
// was meant.
const misspeltBy = 3

// checkNames refuses variables with Prefix that are no settings: what a
// misspelt one was to say would be passed over.
func checkNames(environ []string) error {
	var unknown []string
	for _, line := range environ {
		name, _, _ := strings.Cut(line, "=")
		isKnown := slices.ContainsFunc(settings, func(s setting) bool { return s.variable() == name })
		if strings.HasPrefix(name, Prefix) && !isKnown && !serviceLink.MatchString(line) {
			unknown = append(unknown, name+hint(name))
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s; `dibs help settings` lists all", ErrConfig, strings.Join(unknown, ", "))
}

// hint names the setting that a name is nearest to.
func hint(name string) string {
	least := misspeltBy + 1
	meant := ""
	for _, s := range settings {
		n := levenshtein.ComputeDistance(name, s.variable())
		if strings.HasPrefix(s.variable(), name+"_") {
			n = misspeltBy
		}
		if n < least {
			least = n
			meant = s.variable()
		}
	}
	if meant == "" {
		return ": there is no such setting"
	}
	return ": there is no such setting, did you mean " + meant + "?"
}
