// Package address parses server addresses that may contain a
// password: URLs of Redis and HTTP, and DSNs of MySQL.
//
// A password with a special character spills into another part: the host, the
// port, the path or an option. Parsers of libraries quote that part in their
// errors. So this package checks an address first and drops the library's
// error. Its own errors quote nothing of an address but the names of known
// options.
package address

import (
	"errors"
	"strings"
)

var (
	errQuotes = errors.New("must not be in quotes")
	errEncode = errors.New("can't be read; in the user and the password percent-encode each / ? # @ : , % and blank, as %2F for /")
	errUsers  = errors.New("must have one user and password for all hosts; percent-encode each comma in them as %2C")
	errPort   = errors.New("has a port that is no number from 1 to 65535, or no host; " +
		"in the user and the password percent-encode each / ? # @ : , % and blank, as %2F for /")
)

const masked = "****"

// isQuoted reports whether a value starts with a quotation mark,
// left there by a shell.
func isQuoted(text string) bool { return strings.HasPrefix(text, `"`) || strings.HasPrefix(text, "'") }
