package cmd

import (
	"log/slog"

	"dibs/internal/config"
	"dibs/internal/reread"
)

// renewed is the value of a setting by its variable: of the file that holds it as that is by now,
// if one does. A file that check refuses later is logged, and what it said before stays in force.
func renewed(cfg *config.Config, setting, value string, log *slog.Logger, check func(string) error) (func() string, error) {
	file := cfg.FileOf(setting)
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
		return nil, config.Refuse(setting+"_FILE", "%w", err)
	}
	return now.Get, nil
}
