package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
)

// serviceLink matches the variables that Kubernetes sets in every pod for a
// Service whose name begins with dibs. Those that end in _PORT are
// recognized by their value: DIBS_HTTP_PORT=8080 is a mistake.
var serviceLink = regexp.MustCompile(
	`^DIBS_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)=|^DIBS_(\w+_)?PORT=(tcp|udp|sctp)://`)

// misspeltBy is the greatest distance, in letters, of a suggested variable.
const misspeltBy = 3

// checkNames refuses unknown variables with Prefix: a misspelt setting
// would be ignored.
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
