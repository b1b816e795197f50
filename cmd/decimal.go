package cmd

import (
	"errors"
	"regexp"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var (
	wholeNumber = regexp.MustCompile(`^-?[0-9]+$`)
	errDecimal  = errors.New("must be decimal digits")
)

// decimal is a number flag in decimal digits. pflag would read Go's
// syntax: 0100 as 64, 0x10 and 1_000.
type decimal struct{ pflag.Value }

func (d decimal) Set(text string) error {
	if !wholeNumber.MatchString(text) {
		return errDecimal
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return errDecimal
	}
	return d.Value.Set(strconv.FormatInt(n, 10))
}

func decimalFlags(c *cobra.Command) {
	c.Flags().VisitAll(func(f *pflag.Flag) {
		switch f.Value.Type() {
		case "int", "int64", "uint64":
			f.Value = decimal{f.Value}
		}
	})
	for _, below := range c.Commands() {
		decimalFlags(below)
	}
}
