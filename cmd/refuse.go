package cmd

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"dibs/client"
	"dibs/internal/arch"
	"dibs/internal/config"
	"dibs/internal/printer"
)

// refusal is an error in the form of -o json.
type refusal struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Detail  string `json:"detail,omitempty"` // from the API, like Field
	Field   string `json:"field,omitempty"`
}

var (
	// wantsJSON finds -o json among arguments, one per line, even
	// refused ones.
	wantsJSON = regexp.MustCompile(`(?m)^(--json(=true)?|(-o=?\n?|--output[=\n])json)$`)
	// packages are prefixes of errors, meant for logs.
	packages  = regexp.MustCompile(`(^|: |; )((usage|` + strings.Join(arch.Names(), "|") + `): )+`)
	plainWord = regexp.MustCompile(`^[a-z][a-z -]{0,20}$`)
)

// sentence is an error for people, without names of packages. The API's own
// words stay: it has fields, such as split, that are called as a package is.
func sentence(err error) string {
	text := err.Error()
	ours := len(text)
	if p, ok := errors.AsType[*client.Problem](err); ok && strings.Contains(text, p.Detail) {
		ours = strings.LastIndex(text, p.Detail)
	}
	return strings.ReplaceAll(packages.ReplaceAllString(text[:ours], "$1")+text[ours:], "\n", "; ")
}

func printError(env Env, err error) {
	if !wantsJSON.MatchString(strings.Join(env.Args, "\n")) {
		printer.Printf(env.Stderr, "dibs: %s\n", sentence(err))
		return
	}
	shown := refusal{Code: "error", Message: sentence(err)}
	for code, named := range map[string]error{
		"usage": ErrUsage, "config": config.ErrConfig, "drift": ErrDrift, "parked": ErrParked, "not_final": ErrNotFinal,
	} {
		if errors.Is(err, named) {
			shown.Code = code
		}
	}
	if p, ok := errors.AsType[*client.Problem](err); ok {
		shown.Code = string(p.Code)
		shown.Detail = p.Detail
		shown.Field = p.Field
	}
	if code, ok := errors.AsType[client.Code](err); ok { // of a request that wasn't sent or not answered
		shown.Code = string(code)
	}
	_ = printer.PrintJSON(env.Stderr, map[string]refusal{"error": shown})
}

func usagef(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrUsage, fmt.Errorf(format, args...))
}

func unknownCommand(c *cobra.Command, name string) error {
	hint := fmt.Sprintf("; `dibs help%s` lists them.", strings.TrimPrefix(c.CommandPath(), "dibs"))
	if near := nearest(c, name); near != "" {
		hint = fmt.Sprintf(", did you mean %q?", near)
	}
	return usagef("no command %s%s Usage: %s COMMAND", quoted(name), hint, c.CommandPath())
}

// badFlag refuses unreadable flags. It reports an unknown command
// first, because its flags are unknown, too.
func badFlag(c *cobra.Command, err error) error {
	if args := c.Flags().Args(); c.HasSubCommands() && len(args) > 0 {
		return unknownCommand(c, args[0])
	}
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return usagef("%w", err)
	}
	if unknown.GetSpecifiedShortnames() != "" {
		return usagef("unknown flag -%.1s. Usage: %s", unknown.GetSpecifiedName(), c.UseLine())
	}
	flags := &cobra.Command{} // a command for each flag, so that cobra can compare them
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			flags.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
		}
	})
	hint := "."
	if near := nearest(flags, unknown.GetSpecifiedName()); near != "" {
		hint = ": did you mean --" + near + "?"
	}
	return usagef("unknown flag --%s%s Usage: %s", unknown.GetSpecifiedName(), hint, c.UseLine())
}

// nearest is the subcommand of c with the most similar name, or "".
func nearest(c *cobra.Command, name string) string {
	for c.SuggestionsMinimumDistance = 1; c.SuggestionsMinimumDistance <= 2; c.SuggestionsMinimumDistance++ {
		if near := c.SuggestionsFor(name); len(near) > 0 {
			return near[0]
		}
	}
	return ""
}

// asUsed refuses arguments that Use lacks, a missing or empty argument, and
// a missing or empty required flag.
func asUsed(c *cobra.Command, args []string) error {
	_, takes, _ := strings.Cut(c.Use, " ")
	most := min(len(takes), 1)
	switch {
	case len(args) > most && c.HasSubCommands():
		return unknownCommand(c, args[0])
	case len(args) > most:
		return usagef("unexpected argument %s. Usage: %s", quoted(args[most]), c.UseLine())
	case len(args) < most && takes[0] != '[':
		return missing(c, takes)
	case len(args) > 0 && args[0] == "":
		return usagef("%s is empty", strings.Trim(strings.Fields(takes)[0], "[]"))
	}
	err := c.ValidateFlagGroups()
	if err != nil {
		return usagef("%w, such as `%s`", err, firstExample(c))
	}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		isRequired := f.Annotations[cobra.BashCompOneRequiredFlag] != nil
		switch {
		case isRequired && !f.Changed:
			err = missing(c, "--"+f.Name)
		case f.Changed && f.Value.String() == "" && (isRequired || strings.HasSuffix(f.Usage, allUnlessGiven)):
			err = usagef("--%s is empty", f.Name)
		}
	})
	return err
}

// allUnlessGiven ends the help of a flag that selects. An empty one is refused,
// like an empty argument: a variable that isn't set must not select all.
const allUnlessGiven = "all unless given"

// missing names what is missing, with an example that has it.
func missing(c *cobra.Command, what string) error {
	return usagef("%s is missing, such as `%s`", what, firstExample(c))
}

func firstExample(c *cobra.Command) string {
	first, _, _ := strings.Cut(strings.TrimSpace(c.Example), "\n")
	return first
}

// quoted quotes an argument, unless it may be an address or a secret
// in the wrong position.
func quoted(arg string) string {
	if plainWord.MatchString(arg) {
		return strconv.Quote(arg)
	}
	return "of that form"
}
