package address

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"
)

const formDSN = "user:password@tcp(host:3306)/database, with the password as it is"

var (
	errURL     = errors.New("must not be a URL, but " + formDSN)
	errDSN     = errors.New("must be " + formDSN)
	errOptions = errors.New("can't be read behind its database: options are name=value, separated by &, " +
		"with values percent-encoded, as %2F for /")
)

var (
	schemeOfURL = regexp.MustCompile(`(?i)^(jdbc:|(mysql|mariadb)[a-z+]*://|(tcp|https?)://)`)
	network     = regexp.MustCompile(`^(|tcp|tcp6|unix|(tcp|tcp6|unix)\(([^()]*)\))$`)
	// slashInOption matches a server, its database and an option
	// whose value has an unescaped slash.
	slashInOption = regexp.MustCompile(`\)/[^/]*\?.*=`)
	optionName    = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.]*$`)
	// sslOption matches other clients' options for TLS.
	sslOption = regexp.MustCompile(`(?i)^(use|require|verify)?_?ssl([-_]?(mode|ca|cert|key))?$|^require_?ssl$`)
)

// ParseDSN parses a DSN in go-sql-driver's form.
func ParseDSN(text string) (*mysql.Config, error) {
	head, options, err := splitDSN(text)
	if err != nil {
		return nil, err
	}
	for _, option := range options {
		if err := checkOption(option); err != nil {
			return nil, err
		}
	}
	dsn, err := mysql.ParseDSN(text)
	if err == nil {
		return dsn, nil
	}
	for _, option := range options {
		if _, err := mysql.ParseDSN("/?" + option); err != nil {
			name, _, _ := strings.Cut(option, "=")
			return nil, fmt.Errorf("has an option %s with a value that it can't have", name)
		}
	}
	if _, err := mysql.ParseDSN(head); err != nil {
		return nil, errDSN // its text may quote the password
	}
	return nil, errOptions
}

func splitDSN(text string) (head string, options []string, err error) {
	switch {
	case isQuoted(text):
		return "", nil, errQuotes
	case schemeOfURL.MatchString(text):
		return "", nil, errURL
	}
	slash := strings.LastIndex(text, "/")
	if slash < 0 {
		return "", nil, errDSN
	}
	database, query, found := strings.Cut(text[slash:], "?")
	if strings.Contains(text[slash:], "@") {
		return "", nil, errDSN
	}
	server := text[strings.LastIndex(text[:slash], "@")+1 : slash]
	parts := network.FindStringSubmatch(server)
	switch {
	case parts == nil && slashInOption.MatchString(server):
		return "", nil, errOptions
	case parts == nil:
		return "", nil, errDSN
	}
	if host, port, err := net.SplitHostPort(parts[3]); err == nil {
		if n, err := strconv.ParseUint(port, 10, 16); host == "" || err != nil || n == 0 {
			return "", nil, errors.New("has a host or port in tcp(host:port) that can't be")
		}
	}
	if found {
		options = strings.Split(query, "&")
	}
	return text[:slash] + database, options, nil
}

func checkOption(option string) error {
	name, _, found := strings.Cut(option, "=")
	switch {
	case sslOption.MatchString(name):
		return errors.New("has an option for TLS that other clients know: write tls=true, tls=skip-verify, tls_ca=FILE, " +
			"or tls_cert=FILE&tls_key=FILE")
	case !found || !optionName.MatchString(name):
		return errOptions
	case name == "strict": // the driver panics
		return errors.New("has the option strict, which there is no more")
	}
	return nil
}

// MaskDSN hides the password of a valid DSN, and all of an invalid one.
func MaskDSN(text string) string {
	if _, err := ParseDSN(text); err != nil {
		return masked
	}
	slash := strings.LastIndex(text, "/")
	at := strings.LastIndex(text[:slash], "@") + 1
	return maskUser(text[:at]) + text[at:]
}
