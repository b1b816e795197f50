package auth

import (
	"strings"
	"time"
)

// Scope is what a token may do; scopes add up.
type Scope uint8

// The scopes. A route lists those that may call it; Admin may call all.
const (
	Admin Scope = 1 << iota // everything
	// claims, redeems, releases, reads claims, and a campaign and its stock
	Storefront
	Viewer // reads
	User   // claims, reads claims and releases, for one user alone
	// Open asks for no token.
	Open Scope = 0
)

// String names the scopes: "storefront or admin".
func (s Scope) String() string {
	var names []string
	for _, one := range []struct {
		scope Scope
		name  string
	}{{Viewer, "viewer"}, {User, "user"}, {Storefront, "storefront"}, {Admin, "admin"}} {
		if s&one.scope != 0 {
			names = append(names, one.name)
		}
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, " or ")
}

// roles are the scopes that a token may have by name. User is for JWTs
// alone: it needs the user.
var roles = map[string]Scope{"admin": Admin, "storefront": Storefront, "viewer": Viewer}

// scopesOf reads the scope of a JWT: words separated by blanks. Those of
// others are passed over.
func scopesOf(claim string) (all Scope) {
	for word := range strings.FieldsSeq(claim) {
		name, ours := strings.CutPrefix(word, "dibs:")
		switch {
		case !ours:
		case name == "user":
			all |= User
		default:
			all |= roles[name]
		}
	}
	return all
}

// Grant is what a token is good for.
type Grant struct {
	Actor  string // who holds it
	Scopes Scope
	Until  time.Time // zero: for ever
}

// May reports whether the grant suffices for what needs one of the scopes.
func (g *Grant) May(need Scope) bool { return g.Scopes&(need|Admin) != 0 }

// onlyFor is the user for whom alone the grant allows what needs one of
// the scopes; "" is any.
func (g *Grant) onlyFor(need Scope) string {
	if g.Scopes&(need&^User|Admin) != 0 {
		return ""
	}
	return g.Actor
}
