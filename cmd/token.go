package cmd

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"dibs/api/auth"
	"dibs/internal/config"
	"dibs/internal/printer"
)

func newToken(env Env) *cobra.Command {
	var name, role, expires string
	var form printer.Form
	c := command(env, cobra.Command{
		Use:   "token",
		Short: "Make a bearer token, and its line for the file of DIBS_TOKENS_FILE",
		Long: `Make a bearer token of 256 random bits, and the line that lets it in.

Give the token to who shall use it: it is shown once and kept nowhere. Add the line, which
holds a digest of it only, to the file that DIBS_TOKENS_FILE names; processes read it
within a second. To replace a token, add a second line of the same name, and remove the
first when no one uses it any more.`,
		Example: "  dibs token --actor shop-1 --role storefront\n  dibs token --actor ann --role admin --expires 2160h",
	}, func(_ context.Context, _ *cobra.Command, _ *config.Config) error {
		until, err := timeOrSpan("--expires", expires, 1)
		if err == nil && expires != "" && !until.After(time.Now()) {
			err = usagef("--expires must be a time to come, not %q", expires)
		}
		if err != nil {
			return err
		}
		var secret [32]byte
		_, _ = rand.Read(secret[:]) // never fails
		token := "dibs_" + base64.RawURLEncoding.EncodeToString(secret[:])
		line, err := auth.Line(name, role, token, until)
		if err != nil {
			return usagef("--actor %q --role %q: %w", name, role, err)
		}
		return printer.PrintOne(env.Stdout, form, map[string]string{"token": token, "line": line},
			fmt.Sprintf("token: %s\nline:  %s", token, line))
	})
	c.Flags().StringVar(&name, "actor", "viewer", "the name of who holds it, as the audit log has it; no blanks")
	c.Flags().StringVar(&role, "role", "viewer", "admin, storefront or viewer")
	c.Flags().StringVar(&expires, "expires", "", "a time such as 2027-01-31T18:00:00Z, or in how long, such as 2160h; never unless given")
	form.Add(c)
	return c
}
