package address_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"dibs/internal/address"
)

// password draws a password that may contain any character
// special in a URL, a DSN or a shell.
func password(t *rapid.T) string {
	letters := rapid.StringMatching(`[QXZJKVWY]{2,4}`)
	special := rapid.SampledFrom(strings.Split("/ ? # @ : , % & = ; ( ) [ ] ' \" \\ + $ ! %2F %zz ://", " "))
	parts := []string{letters.Draw(t, "letters")}
	for range rapid.IntRange(1, 4).Draw(t, "specials") {
		parts = append(parts, special.Draw(t, "special"), letters.Draw(t, "letters"))
	}
	return strings.Join(parts, "")
}

// requireNone checks that a text contains no four consecutive
// characters of a password.
func requireNone(t require.TestingT, secret, text, of string) {
	for i := 0; i+4 <= len(secret); i++ {
		if strings.Contains(text, secret[i:i+4]) {
			require.Failf(t, "a secret is quoted", "%q of %q", text, of)
		}
	}
}

// forms are addresses, valid and invalid; PW is the password.
var forms = []string{
	"redis://u:PW@one:6379/0", "rediss://:PW@one", "redis://u:PW@one:port", "redis://u:PW@one:1/x", "redis://u:PW@[::1:1", "redis://u:PW", "u:PW@one",
	"redis://u:PW@a:1,b:2", "redis://a:1,u:PW@b:2", "redis://u:PW@a:1,u:PW@b:2?pool_size=5", "redis://u:PW@a:1?pool_size=x", "\"redis://u:PW@one\"",
	"redis+sentinel://u:PW@a:1,b:2/m/0", "redis+sentinel://u:PW@a/m", "redis+sentinel://u:PW@a:1", "redis+sentinel://a:1,b:2/m?sentinel_password=PW", "https://u:PW@one/keys", "http://u:PW@one:port/",
	"u:PW@tcp(one:3306)/dibs", "u:PW@tcp(one:port)/dibs", "u:PW@tcp(one:3306)", "u:PW@one/dibs", "u:PW@unix(/s.sock)/dibs", "u:PW/dibs", "u:PW",
	"mysql://u:PW@one:3306/dibs", "jdbc:mysql://u:PW@one/dibs", "'u:PW@tcp(one)/dibs'", "u:PW@tcp(one)/dibs?ssl-mode=REQUIRED",
	"u:PW@tcp(one)/dibs?tls_ca=/a/b", "u:PW@tcp(one)/dibs?strict=true", "u:PW@tcp(one)/dibs?parseTime=perhaps", "u:PW@tcp(one)/di%zzbs", "PW",
}

func TestNothingThatIsSaidOfAnAddressHoldsAPieceOfItsPassword(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		secret := password(t)
		form := rapid.SampledFrom(forms).Draw(t, "form")
		if !strings.Contains(form, "@") {
			// what follows would be the host, for any parser
			secret = strings.ReplaceAll(secret, "@", "+")
		}
		text := strings.ReplaceAll(form, "PW", secret)
		_, err := address.ParseDSN(text)
		for _, err := range []error{address.CheckURL(text), address.CheckHTTP(text), err} {
			if err != nil {
				requireNone(t, secret, err.Error(), text)
			}
		}
		requireNone(t, secret, address.MaskURL(text), text)
		requireNone(t, secret, address.MaskDSN(text), text)
	})
}

// A DSN's password is not escaped.
func TestAPasswordOfADSNMayHoldAnything(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		secret := password(t)
		dsn, err := address.ParseDSN("u:" + secret + "@tcp(one:3306)/dibs?parseTime=true")
		require.NoError(t, err)
		require.Equal(t, []string{"u", secret, "one:3306", "dibs"}, []string{dsn.User, dsn.Passwd, dsn.Addr, dsn.DBName})
		require.Equal(t, "u:****@tcp(one:3306)/dibs?parseTime=true", address.MaskDSN("u:"+secret+"@tcp(one:3306)/dibs?parseTime=true"))
	})
}

func TestAWrongDSNIsToldTheRightForm(t *testing.T) {
	t.Parallel()
	for text, says := range map[string]string{
		"mysql://u:p@h:3306/d": "not be a URL, but user:password@tcp(host:3306)/database", "jdbc:mysql://h/d": "user:password@tcp(",
		"mariadb://h/d": "not be a URL", `"u:p@tcp(h)/d"`: "must not be in quotes", "'u:p@tcp(h)/d'": "must not be in quotes",
		"u:p@tcp(h)/d?ssl-mode=REQUIRED": "tls=true", "u:p@tcp(h)/d?sslmode=require": "tls=true", "u:p@tcp(h)/d?useSSL=true": "tls=true",
		"u:p@tcp(h)/d?ssl_ca=x": "tls_ca=FILE", "u:p@tcp(h)/d?ssl=1": "tls=true", "u:p@tcp(h)/d?requireSSL=true": "tls=true",
		"u:p@h/d": "user:password@tcp(", "u:p@tcp(h)": "user:password@tcp(", "u:p@tcp(h:port)/d": "port", "u:p@tcp(h:70000)/d": "port",
		"u:p@tcp(h)/d?loc=Nowhere": "option loc ", "u:p@tcp(h)/d?timeout=5": "option timeout ", "u:p@tcp(h)/d?strict=true": "strict",
		"u:p@tcp(h)/d?tls_ca=/a/b": "%2F for /", "u:p@tcp(h)/d?a": "name=value", "u:p@tcp(h)/%zz": "user:password@tcp(", "": "user:password@tcp(",
	} {
		_, err := address.ParseDSN(text)
		require.ErrorContains(t, err, says, text)
	}
	for _, text := range []string{
		"/d", "tcp(h)/d", "tcp/d", "u@unix(/tmp/s.sock)/d", "u:p@tcp([::1]:3306)/d?tls=skip-verify&innodb_lock_wait_timeout=5", "u:p@tcp(h)/d?tls_ca=%2Fa%2Fb",
		"u:p@tcp6(h)/",
	} {
		_, err := address.ParseDSN(text)
		require.NoError(t, err, text)
	}
}

func TestAWrongURLIsToldWhatToEncode(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"redis://u:p/w@h", "redis://u:p#w@h", "redis://u:p?w@h", "redis://u:p%zz@h", "redis://u:p,w@h:1", "redis://u:p w@h", "redis+sentinel://u:p/w@a:1/m",
		"redis://h:port", "redis://h:0", "redis://h:70000", "redis://[::1:1",
	} {
		require.ErrorContains(t, address.CheckURL(text), "percent-encode", text)
	}
	require.ErrorContains(t, address.CheckURL(`"redis://h"`), "quotes")
	for _, text := range []string{
		"redis://u:p%2Fw@h:1/0?pool_size=5", "redis://a:1,b:2", "redis://u:p@a:1,redis://u:p@b:2?db=1", "redis+sentinel://u:p@a:1,b:2/m/3", "redis://[::1]:6379",
		"redis://u:p@w@h", "redis://h",
	} {
		require.NoError(t, address.CheckURL(text), text)
	}
	require.ErrorContains(t, address.CheckHTTP("ftp://h"), "http:// or https://")
	require.ErrorContains(t, address.CheckHTTP("https://u:p/w@h/"), "percent-encode")
	require.NoError(t, address.CheckHTTP("https://u:p@h:8443/keys?a=b,c"))
}

func TestCheckOrigin(t *testing.T) {
	t.Parallel()
	for _, good := range []string{
		"https://shop.example.com", "http://localhost:5173", "https://shop.example.com:8443", "http://[::1]:8080", "https://xn--bcher-kva.example",
		"http://127.0.0.1:443", "capacitor://localhost", "https://a_b.example",
	} {
		require.NoError(t, address.CheckOrigin(good), good)
	}
	for bad, says := range map[string]string{
		"https://shop.example.com:443": "such as https://shop.example.com", "http://shop.example.com:80": "such as http://shop.example.com",
		"https://Shop.example.com": "such as https://shop.example.com", "HTTPS://shop.example.com": "such as https://shop.example.com",
		"https://shop.example.com/": "such as https://shop.example.com", "https://b\u00fccher.example": "such as https://xn--bcher-kva.example",
		"http://[::1]:80": "such as http://[::1]", "*": "must be origins", "https://*.example.com": "must be origins", "shop.example.com": "must be origins",
		"https://u@shop.example.com": "must be origins", "null": "must be origins", "https://": "must be origins", "localhost:8080": "must be origins",
	} {
		require.ErrorContains(t, address.CheckOrigin(bad), says, bad)
	}
}
