package config

import (
	"net/url"
	"strings"
)

// masked stands for a secret.
const masked = "****"

// mask hides the secret part of a setting's value.
func mask(key, value string) string {
	switch key {
	case "redis-url", "jwks-url":
		return maskURLs(value)
	case "mysql-dsn", "finance-dsn":
		return maskUser(value)
	default:
		return masked
	}
}

// maskUser hides the password of user:password@rest.
func maskUser(value string) string {
	at := strings.LastIndex(value, "@")
	if at < 0 && strings.Contains(value, ":") && !strings.ContainsAny(value, "([") {
		return masked // it may be a user and a password whose host is missing
	}
	if at < 0 {
		return value
	}
	user, _, found := strings.Cut(value[:at], ":")
	if !found {
		return value
	}
	return user + ":" + masked + value[at:]
}

// maskURLs hides the passwords of comma-separated URLs. If one of them cannot be read, it hides the whole value.
func maskURLs(value string) string {
	hosts := strings.Split(value, ",")
	for i, host := range hosts {
		scheme, rest, found := strings.Cut(strings.TrimSpace(host), "://")
		if !found {
			rest = scheme
			scheme = ""
		} else {
			scheme += "://"
		}
		if _, err := url.Parse("redis://" + rest); err != nil {
			return masked
		}
		hosts[i] = scheme + maskURL(rest)
	}
	return strings.Join(hosts, ",")
}

// maskURL hides the passwords of what follows the scheme of a URL: user:password@host/path?password=password.
func maskURL(rest string) string {
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		return maskHost(rest)
	}
	path, query, found := strings.Cut(rest[end:], "?")
	if strings.Contains(path, "@") {
		return masked // a password with a slash in it
	}
	if !found {
		return maskHost(rest[:end]) + path
	}
	parameters := strings.Split(query, "&")
	for i, p := range parameters {
		name, _, _ := strings.Cut(p, "=")
		if known, err := url.QueryUnescape(name); err != nil || strings.Contains(strings.ToLower(known), "pass") {
			parameters[i] = name + "=" + masked
		}
	}
	return maskHost(rest[:end]) + path + "?" + strings.Join(parameters, "&")
}

// maskHost hides the password of user:password@host:port. A host alone has a colon as well.
func maskHost(host string) string {
	if !strings.Contains(host, "@") {
		return host
	}
	return maskUser(host)
}
