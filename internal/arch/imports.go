package arch

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// module is the import path of this module.
const module = "dibs"

// forTests are the packages that only tests may import: real servers, and what
// the tests of several packages share.
var forTests = []string{"internal/testenv", "internal/apitest", "internal/syncertest", "internal/servetest"}

// startsServers are packages that are no tests and start servers all the same.
var startsServers = []string{"proof/torture", "proof/lab", "proof/trials", "proof/luadebug"}

// tools are small packages that any package of the service may import; they
// import nothing of ours.
var tools = []string{
	"internal/address", "internal/caller", "internal/pulse", "internal/reread", "internal/seal", "internal/sleep", "internal/steps",
	"internal/tlsfiles", "internal/tracing",
}

// standAlone are packages that others copy or import: they have not even the
// tools.
var standAlone = []string{"models", "internal/split", "internal/migrations", "client", "docs/examples", "consumer/redisbatch"}

// everything is for packages that put the others together.
var everything = []string{"*"}

// imports lists, for each package, the packages its production code may import.
// A package is a folder with all folders below it. A package outside every
// package is refused, so that a new package gets its line here on the day it is
// built.
var imports = map[string][]string{
	"models":                {},
	"internal/split":        {},
	"lua":                   {"models"},
	"internal/redisconn":    {}, // clients, and what is checked of servers
	"internal/lease":        {"lua"},
	"internal/installation": {"internal/config", "internal/softstate", "lua", "syncer/campaigns"},
	"internal/softstate":    {"lua", "models"}, // what processes share beside the claims
	"internal/migrations":   {},
	"api": {"api/auth", "api/claimed", "api/claiming", "api/console", "api/live", "api/operator", "api/wire", "api/workers",
		"docs/asyncapi", "internal/softstate", "lua", "models"},
	// a message.Subscriber for anybody
	"consumer/redisbatch": {},
	// of lua a few names only, see consumerNames
	"consumer":          {"lua", "models", "consumer/redisbatch"},
	"finance":           {"consumer", "internal/sqlstore", "models", "consumer/redisbatch"},
	"internal/webhooks": {"internal/sqlstore", "lua", "models"},
	"internal/ledger":   {"internal/sqlstore", "internal/migrations", "models"},
	"internal/config":   {"lua", "models"},
	"cmd":               everything,
	"internal/process":  everything, // wires the packages into roles
	"proof/bench":       everything, // measures any package against its ceiling
	"":                  {"cmd"},    // main.go

	// Inside the API: its packages don't know each other, and stand on wire and
	// workers.
	"api/auth":     {"api/wire", "models"},
	"api/claiming": {"api/wire", "api/workers", "internal/softstate", "lua", "models"},
	"api/claimed":  {"api/wire", "api/workers", "lua", "models"},
	"api/operator": {"api/wire", "lua", "models"},
	"api/console":  {"api/wire", "internal/redisconn", "internal/softstate", "lua", "models"},
	"api/live":     {"api/wire", "api/workers", "internal/softstate", "lua", "models"},
	"api/wire":     {"models"},
	"api/workers":  {},

	// The packages of the syncer, from the lowest up: each may import those
	// above it in this list alone.
	"internal/sqlstore": {"internal/migrations"},
	"syncer/adder":      {"models"},
	"internal/audit":    {"internal/sqlstore", "models"},
	"syncer/writer":     {"internal/audit", "internal/sqlstore", "internal/ledger", "lua", "internal/migrations", "models", "syncer/adder"},
	"syncer/campaigns": {"internal/audit", "internal/sqlstore", "internal/ledger", "lua", "internal/migrations", "models", "internal/split",
		"syncer/writer"},
	"syncer/lots": {"internal/audit", "internal/sqlstore", "lua", "models", "syncer/campaigns", "syncer/writer"},
	"syncer/resolve": {"internal/audit", "internal/sqlstore", "internal/ledger", "lua", "models", "syncer/campaigns",
		"syncer/lots", "syncer/writer"},
	"syncer/compare": {"internal/audit", "internal/sqlstore", "internal/ledger", "lua", "models", "syncer/campaigns", "syncer/lots",
		"syncer/writer"},
	"syncer/shards":    {"internal/sqlstore", "lua", "internal/migrations", "models", "syncer/campaigns", "syncer/writer"},
	"syncer/retention": {"internal/audit", "internal/sqlstore", "lua", "models"},
	"syncer/records":   {"internal/sqlstore", "models"},
	"syncer": {
		"internal/sqlstore", "lua", "models",
		"syncer/compare", "syncer/lots", "syncer/resolve", "syncer/retention", "syncer/shards",
	},
	// The strategies of the lab: only proof/trials imports them.
	"proof/lab": {
		"api", "consumer", "internal/redisconn", "internal/sqlstore", "lua", "internal/migrations", "models",
		"consumer/redisbatch", "syncer/campaigns", "syncer/lots", "syncer/writer",
	},

	"client": {}, // storefronts import it, and nothing of ours with it

	"deploy/monitoring": {}, // alerts and dashboards
	"docs/asyncapi":     {}, // a document, embedded
	// programs of others, who have nothing else of ours
	"docs/examples": {"consumer/redisbatch"},

	"internal/arch":   {},
	"internal/crowd":  {"models"},
	"internal/oracle": {"lua", "models"},
	"proof/load":      {"client", "internal/printer"},
	"proof/luadebug":  {"internal/redisconn", "lua", "models"}, // make lua-debug
	"internal/e2e":    everything,                              // whole-pipeline tests
	// checks of the Dockerfile and docker-compose.yml
	"internal/deploy": {},
	// the linters of the OpenAPI document
	"internal/apilint":  everything,
	"internal/build":    {},
	"proof/mutants":     {},         // for tests of tests
	"proof/trials":      everything, // the commands lab, load and torture
	"proof/logmodel":    {},         // tests alone
	"internal/address":  {},
	"internal/caller":   {},
	"internal/pulse":    {},
	"internal/printer":  {"models"},
	"internal/reread":   {},
	"internal/tlsfiles": {},
	"internal/seal":     {},
	"internal/sleep":    {},
	"internal/steps":    {}, // where tests act in the middle of production code
	"internal/tracing":  {},
	"internal/otlp":     {}, // sends spans; the only package that has OpenTelemetry's SDK
	"internal/testenv":  {},
	// and internal/testenv, see startsServers
	"proof/torture":       {"internal/crowd", "internal/oracle", "internal/redisconn", "lua", "models"},
	"internal/syncertest": everything,
	"internal/servetest":  everything,
	"scripts":             {},
	"internal/apitest":    everything,
}

// Names are the names of all packages, as Go code has them.
func Names() (names []string) {
	for folder := range imports {
		if folder != "" {
			names = append(names, path.Base(folder))
		}
	}
	return names
}

// redisClients are the libraries that talk to Redis.
var redisClients = []string{"github.com/redis/go-redis/", "github.com/bsm/redislock"}

// redisPackages are the packages that may import a Redis client. Only lua
// changes campaigns; of the others each has the reason that stands beside it.
var redisPackages = []string{
	"lua",
	"internal/redisconn",          // makes the clients
	"internal/softstate",          // what processes share beside the claims
	"consumer/redisbatch",         // reads streams
	"consumer",                    // parks messages in streams
	"internal/process", "cmd", "", // make the client and its log
	"proof/lab",     // strategies of their own
	"docs/examples", // programs of others
	"proof/torture", // acts on servers
	"proof/luadebug", "internal/testenv", "internal/apitest", "internal/syncertest",
}

// Package is what the check needs to know of one package.
type Package struct {
	ImportPath string
	Imports    []string // of its production files
}

// Violations returns one line for each import that the list does not allow,
// sorted.
func Violations(packages []Package) []string {
	var found []string
	for _, p := range packages {
		from, known := packageOf(p.ImportPath)
		if !known {
			found = append(found, p.ImportPath+" is in no package of the list: give its folder a line in internal/arch/imports.go")
			continue
		}
		for _, path := range p.Imports {
			if isRedisClient(path) && !slices.Contains(redisPackages, from) {
				found = append(found, fmt.Sprintf("%s must not import %s: ask Redis through a verb of lua", p.ImportPath, path))
			}
			if to, ours := packageOf(path); ours && !allowed(from, to) {
				found = append(found, fmt.Sprintf("%s must not import %s", p.ImportPath, path))
			}
		}
	}
	slices.Sort(found)
	return found
}

func isRedisClient(path string) bool {
	return slices.ContainsFunc(redisClients, func(client string) bool { return strings.HasPrefix(path, client) })
}

// allowed reports whether package from may import package to. No production
// code may import test helpers.
func allowed(from, to string) bool {
	switch {
	case from == to:
		return true
	case slices.Contains(tools, to):
		return !slices.Contains(tools, from) && !slices.Contains(standAlone, from)
	case slices.Contains(forTests, to):
		return slices.Contains(forTests, from) || to == "internal/testenv" && slices.Contains(startsServers, from)
	default:
		return slices.Contains(imports[from], to) || slices.Equal(imports[from], everything)
	}
}

// packageOf returns the package of an import path: the longest folder above it
// that has a line. False for packages of other modules and for folders without
// a package.
func packageOf(path string) (name string, ok bool) {
	if path == module {
		return "", true
	}
	folder, ours := strings.CutPrefix(path, module+"/")
	if !ours {
		return "", false
	}
	for folder != "" {
		if _, ok := imports[folder]; ok {
			return folder, true
		}
		cut := max(strings.LastIndexByte(folder, '/'), 0)
		folder = folder[:cut]
	}
	return "", false
}
