package config

import (
	"log/slog"

	"dibs/internal/reread"
)

// Renewed is the value of a setting by its variable: of the file that holds it
// as that is by now, if one does. A file that check refuses later is logged,
// and what it said before stays in force.
func (c *Config) Renewed(setting, value string, log *slog.Logger, check func(string) error) (func() string, error) {
	file := c.FileOf(setting)
	if file == "" {
		return func() string { return value }, nil
	}
	now, err := reread.New(log, func() (string, error) {
		text, err := reread.Text(file)
		if err == nil {
			err = check(text)
		}
		return text, err
	}, file)
	if err != nil {
		return nil, Refuse(setting+"_FILE", "%w", err)
	}
	return now.Get, nil
}
