package config

import (
	"log/slog"

	"dibs/internal/reread"
)

// Renewed returns the current value of a setting, by its variable. If it is
// in a file, the file is reread. A later content that check refuses is
// logged, and the previous one stays valid.
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
