package address

import (
	"errors"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// CheckURL checks a URL, or several hosts separated by commas, the first with
// the scheme. The caller checks scheme, path and options.
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

// splitHosts splits a URL at the commas between its hosts. In a cluster's URL
// a query may follow any host. In that of Sentinels it follows the last, and
// its values may contain commas.
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

// splitURL splits the URL of one host. scheme ends with ://;
// tail starts with the path, the query or the fragment.
func splitURL(text string) (scheme, authority, tail string) {
	scheme = schemePart.FindString(text)
	text = text[len(scheme):]
	if at := strings.IndexAny(text, "/?#"); at >= 0 {
		return scheme, text[:at], text[at:]
	}
	return scheme, text, ""
}

func splitUser(authority string) (info, address string) {
	at := strings.LastIndex(authority, "@") + 1
	return authority[:at], authority[at:]
}

// checkHost refuses an invalid host or port.
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

// CheckHTTP refuses all but http:// and https:// URLs.
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

// MaskURL hides the passwords of a valid URL, and all of an invalid one.
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

func maskUser(info string) string {
	user, _, found := strings.Cut(info, ":")
	if !found {
		return info
	}
	return user + ":" + masked + "@"
}

// maskQuery hides a query with a password, token or key, or with an
// unreadable option: that may be the rest of a password after an & or =.
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
	if option == "tls_key" { // a file name
		return false
	}
	for _, word := range []string{"pass", "pwd", "token", "secret", "key", "auth", "sig"} {
		if strings.Contains(strings.ToLower(option), word) {
			return true
		}
	}
	return false
}
