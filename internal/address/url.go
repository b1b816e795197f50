package address

import (
	"errors"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// CheckURL refuses a URL, or several hosts that are separated by commas and of
// which the first has the scheme. Its scheme is up to the caller, and so are
// its path and its options.
func CheckURL(text string) error {
	if isQuoted(text) {
		return errQuotes
	}
	first := ""
	for i, host := range splitHosts(text) {
		_, authority, tail := splitURL(strings.TrimSpace(host))
		if strings.Contains(tail, "@") {
			return errEncode
		}
		info, address := splitUser(authority)
		if _, err := url.Parse("redis://" + info + "host"); err != nil {
			return errEncode
		}
		if i == 0 {
			first = info
		} else if info != "" && info != first {
			return errUsers
		}
		if err := checkHost(address); err != nil {
			return err
		}
	}
	return nil
}

// splitHosts splits a URL at the commas between its hosts. Behind a host of a
// cluster may stand a query; that of Sentinels stands behind all, and its
// values may hold commas.
func splitHosts(text string) []string {
	if !strings.HasPrefix(text, "redis+sentinel://") {
		return strings.Split(text, ",")
	}
	query := ""
	if at := strings.Index(text, "?"); at >= 0 {
		query = text[at:]
		text = text[:at]
	}
	hosts := strings.Split(text, ",")
	hosts[len(hosts)-1] += query
	return hosts
}

// splitURL splits the URL of one host. scheme ends with ://; tail begins with
// the path, the query or the fragment.
func splitURL(text string) (scheme, authority, tail string) {
	scheme = schemePart.FindString(text)
	text = text[len(scheme):]
	if at := strings.IndexAny(text, "/?#"); at >= 0 {
		return scheme, text[:at], text[at:]
	}
	return scheme, text, ""
}

// splitUser splits user:password@ from host:port.
func splitUser(authority string) (info, address string) {
	at := strings.LastIndex(authority, "@") + 1
	return authority[:at], authority[at:]
}

// checkHost refuses what is no host, with a port or without.
func checkHost(address string) error {
	if _, err := url.Parse("redis://" + address); err != nil {
		return errPort // its text quotes the port
	}
	_, port, found := strings.Cut(address[strings.LastIndex(address, "]")+1:], ":")
	if n, err := strconv.ParseUint(port, 10, 16); found && (err != nil || n == 0) {
		return errPort
	}
	return nil
}

// CheckHTTP refuses what is no http:// or https:// URL.
func CheckHTTP(text string) error {
	scheme, authority, _ := splitURL(text)
	if scheme != "http://" && scheme != "https://" || authority == "" || strings.Contains(authority, ",") {
		return errors.New("must be an http:// or https:// URL")
	}
	if err := CheckURL(authority); err != nil {
		return err
	}
	if _, err := url.Parse(text); err != nil {
		return errEncode
	}
	return nil
}

var schemePart = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*://`)

var knownScheme = regexp.MustCompile(`^(rediss?|redis\+sentinel|https?)://`)

// MaskURL hides the passwords of a URL that CheckURL accepts, and all of any
// other.
func MaskURL(text string) string {
	if CheckURL(text) != nil || !knownScheme.MatchString(text) {
		return masked
	}
	hosts := splitHosts(text)
	for i, host := range hosts {
		scheme, authority, tail := splitURL(strings.TrimSpace(host))
		info, address := splitUser(authority)
		hosts[i] = scheme + maskUser(info) + address + maskQuery(tail)
	}
	return strings.Join(hosts, ",")
}

// maskUser hides the password of user:password@.
func maskUser(info string) string {
	user, _, found := strings.Cut(info, ":")
	if !found {
		return info
	}
	return user + ":" + masked + "@"
}

// maskQuery hides a query that holds a password, a token or a key, or an option
// that can't be read: it may be what a password has behind an & or an =.
func maskQuery(tail string) string {
	path, query, found := strings.Cut(tail, "?")
	if !found {
		return tail
	}
	for option := range strings.SplitSeq(query, "&") {
		name, _, hasValue := strings.Cut(option, "=")
		known, err := url.QueryUnescape(name)
		if !hasValue || err != nil || isSecret(known) {
			return path + "?" + masked
		}
	}
	return tail
}

func isSecret(option string) bool {
	if option == "tls_key" { // it names a file
		return false
	}
	for _, word := range []string{"pass", "pwd", "token", "secret", "key", "auth", "sig"} {
		if strings.Contains(strings.ToLower(option), word) {
			return true
		}
	}
	return false
}
