// Package address reads the addresses of servers that may hold a password: URLs
// of Redis and HTTP, and DSNs of MySQL.
//
// A password with a character that has a meaning there ends up in another part:
// in the host, the port, the path or an option. The parsers of libraries quote
// that part in their errors. So an address is checked here before a library
// gets it, what a library says of it is dropped, and no error of this package
// quotes any part of an address but the names of known options.
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

// masked stands for a secret.
const masked = "****"

// isQuoted reports whether a value begins with a quotation mark, as of a shell
// that did not take it away.
func isQuoted(text string) bool { return strings.HasPrefix(text, `"`) || strings.HasPrefix(text, "'") }
