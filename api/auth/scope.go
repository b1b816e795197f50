package auth

import (
	"strings"
	"time"
)

// Scope is what a token may do. Scopes can be combined.
type Scope uint8

// The scopes. A route lists the allowed ones; Admin is always allowed.
const (
	Admin Scope = 1 << iota // everything
	// Storefront: claims, redeems, releases; reads claims, a campaign and its
	// stock.
	Storefront
	Viewer // reads
	User   // claims, reads claims and releases, for one user only
	// Open needs no token.
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

// roles are the scopes that a token can have by name. User is only for
// JWTs, as it needs a user.
var roles = map[string]Scope{"admin": Admin, "storefront": Storefront, "viewer": Viewer}

// scopesOf reads a JWT's scope, words separated by blanks. It skips other
// services' words.
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

// Grant is what a token allows.
type Grant struct {
	Actor  string // the token's holder
	Scopes Scope
	Until  time.Time // zero: unlimited
}

// May reports whether the grant has one of the scopes.
func (g *Grant) May(need Scope) bool { return g.Scopes&(need|Admin) != 0 }

// onlyFor is the only user that the grant may act for under these scopes;
// "" is any.
func (g *Grant) onlyFor(need Scope) string {
	if g.Scopes&(need&^User|Admin) != 0 {
		return ""
	}
	return g.Actor
}
