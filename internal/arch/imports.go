package arch

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

const module = "dibs"

// testkit begins the packages that only tests may import: real
// servers, and code shared by tests of several packages.
const testkit = "internal/testkit/"

// startsServers may import the test kit although they are no tests.
var startsServers = []string{"proof/torture", "proof/lab", "proof/trials", "proof/luadebug"}

// tools may be imported by any package of the service. They
// import none of ours.
var tools = []string{
	"internal/address", "internal/caller", "internal/pulse", "internal/reread", "internal/seal", "internal/sleep", "internal/steps",
	"internal/tlsfiles", "internal/tracing",
}

// standAlone are copied or imported by other projects: they
// import not even the tools.
var standAlone = []string{"models", "internal/split", "internal/migrations", "client", "docs/examples", "consumer/redisbatch"}

// everything is for packages that wire the others together.
var everything = []string{"*"}

// imports maps each package to those its production code may
// import. A package is a folder with its subfolders. A package
// without a line is refused, so each new one needs a decision.
var imports = map[string][]string{
	"models":                {},
	"internal/split":        {},
	"lua":                   {"models"},
	"internal/redisconn":    {}, // clients, and checks of servers
	"internal/lease":        {"lua"},
	"internal/installation": {"internal/config", "internal/softstate", "lua", "syncer/settings"},
	"internal/softstate":    {"lua", "models"}, // shared between processes, apart from claims
	"internal/migrations":   {},
	"api": {"api/attempts", "api/auth", "api/claimed", "api/claiming", "api/claiming/form", "api/console", "api/console/health",
		"api/console/signin", "api/live", "api/operator", "api/route", "api/rows", "api/wire", "api/workers", "docs/asyncapi",
		"internal/softstate", "lua", "models"},
	// a message.Subscriber for any project
	"consumer/redisbatch": {},
	// only a few names of lua, see consumerNames
	"consumer":          {"lua", "models", "consumer/redisbatch"},
	"finance":           {"consumer", "internal/sqlstore", "models", "consumer/redisbatch"},
	"internal/webhooks": {"internal/sqlstore", "lua", "models"},
	"internal/ledger":   {"internal/sqlstore", "internal/migrations", "models"},
	"internal/config":   {"lua", "models"},
	"cmd":               everything,
	"internal/process":  everything, // wires the packages into roles
	"proof/bench":       everything, // compares any package with its upper bound
	"":                  {"cmd"},    // main.go

	// The API's packages don't import each other, only wire, workers,
	// and for routes the scopes of auth. claiming has packages of its own.
	"api/auth": {"api/wire", "models"},
	"api/claiming": {"api/attempts", "api/breaker", "api/claiming/form", "api/coalesce", "api/rows", "api/wire", "api/workers",
		"lua", "models"},
	"api/claiming/form": {"api/coalesce", "api/wire", "lua", "models"},
	"api/attempts":      {"api/wire", "api/workers", "internal/softstate"},
	"api/breaker":       {"api/workers", "lua"},
	"api/coalesce":      {"api/workers", "lua"},
	"api/rows":          {"api/coalesce", "api/workers", "lua"},
	"api/claimed":       {"api/wire", "api/workers", "lua", "models"},
	"api/operator":      {"api/wire", "lua", "models"},
	"api/console":       {"api/console/form", "api/console/health", "api/console/signin", "api/console/words", "api/wire", "models"},
	"api/live":          {"api/wire", "api/workers", "internal/softstate", "lua", "models"},
	"api/route":         {"api/auth", "api/wire", "models"},
	"api/wire":          {"models"},
	"api/workers":       {},

	"api/console/form":   {"api/console/words", "api/wire", "models"},
	"api/console/health": {"api/console/words", "internal/redisconn", "internal/softstate", "lua", "models"},
	"api/console/signin": {"api/wire", "models"},
	"api/console/words":  {"models"},

	// The syncer's packages, lowest first: each imports only those
	// above it in this list.
	"internal/sqlstore": {"internal/migrations"},
	"syncer/adder":      {"models"},
	"internal/audit":    {"internal/sqlstore", "models"},
	"syncer/offset":     {"internal/sqlstore", "lua", "models"},
	"syncer/parking":    {"internal/sqlstore", "lua", "models"},
	"syncer/settings":   {"internal/sqlstore", "models"},
	"syncer/tables":     {"internal/sqlstore", "lua", "models"},
	"syncer/sums":       {"internal/sqlstore", "internal/migrations", "syncer/adder"},
	"syncer/apply": {"internal/audit", "internal/sqlstore", "internal/ledger", "internal/migrations", "models", "syncer/adder",
		"syncer/offset", "syncer/parking", "syncer/sums", "syncer/tables"},
	"syncer/writer": {"internal/sqlstore", "models", "syncer/adder", "syncer/apply", "syncer/offset", "syncer/sums"},
	"syncer/campaigns": {"internal/audit", "internal/sqlstore", "internal/ledger", "lua", "internal/migrations", "models", "internal/split",
		"syncer/offset", "syncer/parking", "syncer/settings", "syncer/tables"},
	"syncer/lots": {"internal/audit", "internal/sqlstore", "lua", "models", "syncer/campaigns", "syncer/offset", "syncer/parking",
		"syncer/tables"},
	"syncer/resolve": {"internal/audit", "internal/sqlstore", "internal/ledger", "lua", "models", "syncer/campaigns",
		"syncer/lots", "syncer/offset", "syncer/tables"},
	// a repair writes parked claims
	"syncer/compare": {"internal/audit", "internal/sqlstore", "internal/ledger", "lua", "models", "syncer/campaigns", "syncer/lots",
		"syncer/apply", "syncer/offset", "syncer/parking", "syncer/tables"},
	"syncer/shards":    {"internal/sqlstore", "lua", "internal/migrations", "models", "syncer/campaigns", "syncer/offset"},
	"syncer/retention": {"internal/audit", "internal/sqlstore", "lua", "models"},
	"syncer/records":   {"internal/sqlstore", "models", "syncer/campaigns", "syncer/parking", "syncer/tables"},
	"syncer": {
		"internal/sqlstore", "lua", "models",
		"syncer/compare", "syncer/lots", "syncer/resolve", "syncer/retention", "syncer/shards",
	},
	// The strategies of the lab: only proof/trials imports them.
	"proof/lab": {
		"api", "consumer", "internal/redisconn", "internal/sqlstore", "lua", "internal/migrations", "models",
		"consumer/redisbatch", "syncer/campaigns", "syncer/lots", "syncer/offset",
	},

	"client": {}, // for storefronts, which import nothing else of ours

	"deploy/monitoring": {}, // alerts and dashboards
	"docs/asyncapi":     {}, // an embedded document
	// programs for others, who have nothing else of ours
	"docs/examples": {"consumer/redisbatch"},

	"internal/arch":  {},
	"proof/load":     {"client", "internal/printer"},
	"proof/luadebug": {"internal/redisconn", "lua", "models"}, // make lua-debug
	"internal/e2e":   everything,                              // whole-pipeline tests
	// checks of the Dockerfile and docker-compose.yml
	"internal/deploy": {},
	// linters of the OpenAPI document
	"internal/apilint":  everything,
	"internal/build":    {},
	"proof/mutants":     {},         // tests of tests
	"proof/trials":      everything, // the commands lab, load and torture
	"internal/address":  {},
	"internal/caller":   {},
	"internal/pulse":    {},
	"internal/printer":  {"models"},
	"internal/reread":   {},
	"internal/tlsfiles": {},
	"internal/seal":     {},
	"internal/sleep":    {},
	"internal/steps":    {}, // lets tests act inside production code
	"internal/tracing":  {},
	"internal/otlp":     {}, // sends spans; alone in using OpenTelemetry's SDK
	"internal/crowd":    {"models"},
	// and the test kit, see startsServers
	"proof/torture": {"internal/crowd", "internal/redisconn", "lua", "models"},
	// The test kit, lowest first.
	"internal/testkit/machine":    {},
	"internal/testkit/oracle":     {"lua", "models"},
	"internal/testkit/testenv":    {"internal/testkit/machine"},
	"internal/testkit/servetest":  everything,
	"internal/testkit/apitest":    everything,
	"internal/testkit/syncertest": everything,
	"scripts":                     {},
}

// Names returns the names of all packages, as used in Go code.
func Names() (names []string) {
	for folder := range imports {
		if folder != "" {
			names = append(names, path.Base(folder))
		}
	}
	return names
}

var redisClients = []string{"github.com/redis/go-redis/", "github.com/bsm/redislock"}

// redisPackages may import a Redis client. Only lua changes
// campaigns; the others' reasons follow.
var redisPackages = []string{
	"lua",
	"internal/redisconn",          // makes the clients
	"internal/softstate",          // shared between processes, apart from claims
	"consumer/redisbatch",         // reads streams
	"consumer",                    // parks messages in streams
	"internal/process", "cmd", "", // make the client and its log
	"proof/lab",     // its own strategies
	"docs/examples", // programs for others
	"proof/torture", // acts on servers
	"proof/luadebug", "internal/testkit/testenv", "internal/testkit/apitest", "internal/testkit/syncertest",
}

// Package is the check's view of a package.
type Package struct {
	ImportPath string
	Imports    []string // of production files
}

// Violations returns one line for each import that the rules forbid, sorted.
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

// allowed reports whether package from may import package to.
// Production code may not import test helpers.
func allowed(from, to string) bool {
	switch {
	case from == to:
		return true
	case slices.Contains(tools, to):
		return !slices.Contains(tools, from) && !slices.Contains(standAlone, from)
	case strings.HasPrefix(to, testkit) && !strings.HasPrefix(from, testkit):
		return slices.Contains(startsServers, from)
	default:
		return slices.Contains(imports[from], to) || slices.Equal(imports[from], everything)
	}
}

// packageOf returns the package of an import path: its longest
// folder that has a line. It returns false for other modules and
// for folders without a line.
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
