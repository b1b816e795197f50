package address

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/net/idna"
)

var errOrigin = errors.New("must be origins such as https://shop.example.com")

// CheckOrigin refuses what no browser sends as an Origin. The
// error names what browsers send instead.
func CheckOrigin(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || strings.Contains(text, "*") {
		return errOrigin
	}
	host, err := idna.Punycode.ToASCII(strings.ToLower(u.Hostname()))
	if err != nil {
		return errOrigin
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	sent := u.Scheme + "://" + host // url.Parse lowers the scheme
	usual := map[string]string{"http": "80", "https": "443"}[u.Scheme]
	if port := u.Port(); port != "" && port != usual {
		sent += ":" + port
	}
	if sent != text {
		return fmt.Errorf("must be origins as browsers send them, such as %s", sent)
	}
	return http.NewCrossOriginProtection().AddTrustedOrigin(text)
}
