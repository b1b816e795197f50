package migrations

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Account is the purpose of a MySQL account.
type Account string

// The accounts.
const (
	AccountRoles   Account = "roles"   // every role and command except migrate
	AccountMigrate Account = "migrate" // `dibs migrate`
	AccountFinance Account = "finance" // `dibs finance` with its own database
	AccountReader  Account = "reader"  // a DBA who only reads
)

// Accounts lists all accounts.
func Accounts() []Account {
	return []Account{AccountRoles, AccountMigrate, AccountFinance, AccountReader}
}

// rightsOfRoles are the rights on tables that don't get all row rights.
var rightsOfRoles = map[string]string{
	"audit_log": "SELECT, INSERT", "ledger_events": "SELECT, INSERT", "goose_db_version": "SELECT",
}

var (
	aTable = regexp.MustCompile(`(?m)^CREATE TABLE IF NOT EXISTS (\w+)`)
	aView  = regexp.MustCompile(`(?m)^CREATE OR REPLACE SQL SECURITY INVOKER VIEW (\w+)`)
)

func tables() (tables, views []string) {
	names, _ := files.ReadDir("mysql")
	tables = []string{"goose_db_version"}
	for _, name := range names {
		text, _ := files.ReadFile("mysql/" + name.Name()) // it is embedded
		for _, found := range aTable.FindAllSubmatch(text, -1) {
			tables = append(tables, string(found[1]))
		}
		for _, found := range aView.FindAllSubmatch(text, -1) {
			views = append(views, string(found[1]))
		}
	}
	slices.Sort(tables)
	slices.Sort(views)
	return slices.Compact(tables), slices.Compact(views)
}

// Grants returns the statements that grant an account its rights
// in a database. For roles and finance the tables must exist.
func Grants(of Account, database, user, host string) (statements []string) {
	to := " TO '" + user + "'@'" + host + "'"
	give := func(rights, what string) {
		statements = append(statements, fmt.Sprintf("GRANT %s ON %s.%s%s;", rights, quoted(database), what, to))
	}
	switch of {
	case AccountMigrate:
		give("SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, INDEX, DROP, REFERENCES, CREATE VIEW, SHOW VIEW", "*")
	case AccountReader:
		give("SELECT, SHOW VIEW", "*")
	case AccountFinance:
		give("SELECT, INSERT, UPDATE", "accounts")
		give("SELECT, INSERT, UPDATE", "account_entries")
		give("SELECT, INSERT", "audit_log")
		give("SELECT", "goose_db_version")
		give("SELECT", "lots")                     // has the database campaigns
		give("SELECT, INSERT, UPDATE", "settings") // of the installation
	case AccountRoles:
		tables, views := tables()
		for _, table := range tables {
			rights := rightsOfRoles[table]
			if rights == "" {
				rights = "SELECT, INSERT, UPDATE, DELETE"
			}
			give(rights, table)
		}
		for _, view := range views {
			give("SELECT", view)
		}
	}
	return statements
}

// quoted quotes a name if needed.
func quoted(name string) string {
	if regexp.MustCompile(`^[a-z_][a-z0-9_]*$`).MatchString(name) {
		return name
	}
	return "`" + strings.ReplaceAll(name, "`", "``") + "`"
}
