package cmd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"dibs/internal/config"
	"dibs/internal/migrations"
)

func newGrants(env Env) *cobra.Command {
	var user, host, database, account string
	c := command(env, cobra.Command{
		Use: "grants", Short: "Print the GRANT statements that an account of MySQL needs",
		Long: `Prints the statements that give an account of MySQL or MariaDB its rights, for you to run.
It connects to nothing. Run those of 'roles' again after an upgrade that adds tables.

  roles     what every role and command but migrate runs as; after 'dibs migrate'
  migrate   what 'dibs migrate' runs as
  finance   what 'dibs finance' runs as, with a database of its own
  reader    an account that only reads`,
		Example: "  dibs grants --user dibs_run | mysql\n  dibs grants --user dibs_migrate --account migrate --database shop",
	}, func(context.Context, *cobra.Command, *config.Config) error {
		for name, value := range map[string]string{"user": user, "host": host, "database": database} {
			if value == "" || strings.ContainsAny(value, "'\\\x00\n") {
				return fmt.Errorf("%w: --%s: one name, without quotes", ErrUsage, name)
			}
		}
		of := migrations.Account(account)
		if !slices.Contains(migrations.Accounts(), of) {
			return fmt.Errorf("%w: --account must be one of %v", ErrUsage, migrations.Accounts())
		}
		_, err := fmt.Fprintln(env.Stdout, strings.Join(migrations.Grants(of, database, user, host), "\n"))
		return err //nolint:wrapcheck // a closed terminal
	})
	c.Flags().StringVar(&user, "user", "", "the account, which exists")
	c.Flags().StringVar(&host, "host", "%", "from where it connects")
	c.Flags().StringVar(&database, "database", "dibs", "Dibs' database")
	c.Flags().StringVar(&account, "account", string(migrations.AccountRoles), "roles, migrate, finance or reader")
	return c
}
